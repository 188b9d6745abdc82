"""What the authors' own scorers give for the answers of the whole-family tests: tests/journeys/official.json.

python journeys.py UPSTREAM        UPSTREAM: the four repositories, as records/README.md says; ../shared is needed, too
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.golden.making import official
from tests.golden.making.make import module, run, write_rows
from tests.journeys import made_families

TESTS = Path(__file__).resolve().parents[2]
SHARED = TESTS.parents[1] / "shared"

Numbers = dict[str, Any]
PARTS = {"topic_retrieval_longchat": ("exact_match/first", "exact_match/second", "exact_match/third"),
         "sci_fi": ("loyalty", "fact")}  # fmt: skip
DIMENSIONS = {"token_length": "length", "contextual_requirement": "requirement", "difficulty": "difficulty",
              "primary_task": "primary_task", "language": "language"}  # fmt: skip


def longbench_e(upstream: Path, work: Path, files: dict[str, list[Numbers]]) -> Numbers:
    folder = work / "pred_e" / "model"
    for task, rows in files.items():
        write_rows(folder / f"{task.removesuffix('_e')}.jsonl", rows)
    run(upstream / "THUDM+LongBench/LongBench/eval.py", "--model", "model", "--e", cwd=work)
    found = json.loads((folder / "result.json").read_text())
    return {f"{task}_e|{bucket}": number for task, one in found.items() for bucket, number in one.items()}


def longbench_v2(upstream: Path, work: Path, files: dict[str, list[Numbers]]) -> Numbers:
    place = upstream / "THUDM+LongBench"
    tree = ast.parse((place / "pred.py").read_text("utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "extract_answer")
    names: dict[str, Any] = {"re": re}
    exec(compile(ast.Module([found], []), "pred.py", "exec"), names)
    rows = []
    for row in files["mcq"]:
        if row["output"]:  # pred.py leaves an empty output out
            letter = names["extract_answer"](row["output"].strip())
            rows.append(row | {"pred": letter, "judge": letter == row["answer"]})
    numbers = {}
    script = (place / "result.py").read_text("utf-8")
    for metric, switch in (("accuracy", False), ("compensated", True)):
        write_rows(work / metric / "results" / "model.jsonl", rows)
        (work / metric / "result.py").write_text(script.replace("compensated = False", f"compensated = {switch}"))
        run(work / metric / "result.py", cwd=work / metric)
        columns, line = (one.split("\t") for one in (work / metric / "result.txt").read_text("utf-8").splitlines())
        for column, number in list(zip(columns, line, strict=True))[1:]:
            numbers[f"mcq|{metric}" + ("" if column == "Overall" else f"/{column.lower()}")] = float(number)
    return numbers


def longbench_pro(upstream: Path, work: Path, files: dict[str, list[Numbers]]) -> Numbers:
    evaluation = module(upstream / "caskcsg+longcontext" / "LongBench-Pro", "modules.evaluation")
    evaluation.SentenceTransformer = Alike
    evaluator = evaluation.Evaluator(0)
    rows = [
        row | {"metric": float(evaluator.calculate_metric(row["secondary_task"], row["answer"], row["prediction"],
                                                          row["language"] == "Chinese")[1])}
        for some in files.values() for row in some
    ]  # fmt: skip
    write_rows(work / "evaluated.jsonl", rows)
    evaluator.metric_summary(str(work / "evaluated.jsonl"), 0, str(work / "summary.json"), made_families.PRO_ITERATIONS)
    return dict(_report(json.loads((work / "summary.json").read_text("utf-8"))))


class Alike(official.Similar):
    """An embedding model to which texts of one kind (``made_families.kind``) are the same, others wholly unlike."""

    def similarity(self, some: list[str], others: list[str]) -> Alike:
        found = Alike()
        kinds = set(map(made_families.kind, others))
        found.value = float(any(made_families.kind(text) in kinds for text in some))
        return found


def _report(found: Numbers) -> Iterator[tuple[str, float]]:
    yield "overall|all|average", found["average_overall_metric"]
    for dimension, grouping in DIMENSIONS.items():
        for name, number in found[f"average_{dimension}_metric"].items():
            yield f"{grouping}|{name}|average", number
    for n in range(1, made_families.PRO_ITERATIONS + 1):
        yield f"overall|all|iteration {n}", found[f"inference_iteration_{n}_overall_metric"]
        yield f"overall|all|pass@{n}", found[f"pass@{n}"]
        yield f"overall|all|bon@{n}", found[f"BoN-{n}"]["overall_metric"]
        for dimension, grouping in DIMENSIONS.items():
            for name, number in found[f"BoN-{n}"][dimension].items():
                yield f"{grouping}|{name}|bon@{n}", number


def lveval(upstream: Path, work: Path, files: dict[str, list[Numbers]]) -> Numbers:
    for task, rows in files.items():
        write_rows(work / f"{task}.jsonl", rows)
    run(upstream / "infinigence+LVEval" / "evaluation.py", "--input-dir", work, cwd=work)
    found = json.loads((work / "eval_result/result.json").read_text())
    return {f"{task}|": number for task, number in found.items()}


def leval(upstream: Path, work: Path, files: dict[str, list[Numbers]]) -> Numbers:
    numbers = {}
    for task, rows in files.items():
        write_rows(work / f"{task}.pred.jsonl", rows)
        printed = run(
            upstream / "OpenLMLab+LEval/Evaluation/auto_eval.py", "--pred_file", f"{task}.pred.jsonl", cwd=work
        )
        metrics = [ast.literal_eval(one) for one in re.findall(r"^[^{\n]*(\{.*'display'.*\})$", printed, re.MULTILINE)]
        if average := re.search(r"^average score of .*: ([\d.]+)$", printed, re.MULTILINE):
            numbers[f"{task}|exact_match"] = float(average[1])
            for part, one in zip(PARTS[task], metrics, strict=True):
                numbers[f"{task}|{part}"] = one["exact_match"]
            continue
        for name in ("exact_match", "f1", "rouge/geometric_mean", "rouge/rouge1", "rouge/rouge2", "rouge/rougeL"):
            if name in metrics[0]:
                numbers[f"{task}|{name.removeprefix('rouge/')}"] = metrics[0][name]
    return numbers


def main() -> None:
    official.stand_in()
    upstream, numbers = Path(sys.argv[1]).resolve(), {}
    for name, score in ((one.__name__, one) for one in (longbench_e, longbench_v2, longbench_pro, lveval, leval)):
        with tempfile.TemporaryDirectory(prefix="official-") as work:
            files = made_families.FAMILIES[name](lambda place: SHARED / place).predictions
            numbers[name] = score(upstream, Path(work), files)
        print(f"{name}: {len(numbers[name])} numbers")
    text = json.dumps(numbers, indent=1, ensure_ascii=False)
    (TESTS / "journeys" / "official.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
