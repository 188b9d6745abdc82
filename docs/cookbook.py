"""Runs the queries of docs/cookbook.md on small results files, and writes their results into the page.

    python docs/cookbook.py            write them
    python docs/cookbook.py --check    check that they are current, and exit with 1 if they are not

Every block of SQL on the page is followed by a block of text: the result of `lbx sql`, in plain columns.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lbx.base.records import Sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store
from lbx.results.read.queries import attach_files, open_query
from lbx.results.scoring.aggregation import aggregate_scores

PAGE = Path(__file__).with_name("cookbook.md")
BLOCK = re.compile(r"(```sql\n(.*?)```\n\n)```text\n.*?```", re.DOTALL)
_TASKS = {"longbench": ("qasper", "hotpotqa"), "needle": ("single_en",)}
_MODELS = {"small-F16": 3, "small-Q4": 5}
"""{model: a number; the larger it is, the fewer answers are wrong}."""


def make(folder: Path) -> tuple[Path, Path]:
    """Write results.duckdb with two models, and last.duckdb with an older run of the first one."""
    results, last = folder / "results.duckdb", folder / "last.duckdb"
    with Store(results) as store:
        for model, every in _MODELS.items():
            _fill(store, model, every)
    with Store(last) as store:
        _fill(store, "small-F16", 2)
    return results, last


def _fill(store: Store, model: str, every: int) -> None:
    thinks = model == "small-F16"
    settings = {"seed": 0, "temperature": 0.0, "weights": model.rpartition("-")[2], "thinking": thinks}
    counts = {f"{benchmark}/{task}": 12 for benchmark, tasks in _TASKS.items() for task in tasks}
    store.begin_run(RunRow(model, model, "llamacpp", "1", {}, "0" * 64, settings, {}, "0.1.0", counts))
    for benchmark, tasks in _TASKS.items():
        for task in tasks:
            for number in range(12):
                _answer(store, model, _sample(benchmark, task, number), number, every)
        aggregate_scores(store, model, BENCHMARKS[benchmark])
    store.finish_run(model, "done")


def _sample(benchmark: str, task: str, number: int) -> Sample:
    length = 1000 << number % 4
    meta = (
        {"depth": number % 3 / 2, "needles": 1, "keys": ["k"], "document_length": length} if task == "single_en" else {}
    )
    return Sample(
        benchmark, task, f"{number:02d}", f"{task} document {number // 3}", f"Question {number}?", ("here",), "en",
        length, "words", meta,
    )  # fmt: skip


def _answer(store: Store, run: str, sample: Sample, number: int, every: int) -> None:
    generations, scores = [], []
    version = BENCHMARKS[sample.benchmark].metric_version
    metric = "recall" if sample.benchmark == "needle" else "f1"
    thinks = run == "small-F16"
    for iteration in range(2 if sample.benchmark == "needle" else 1):
        key = (run, *sample.key[:3], iteration)
        if number == 7 and sample.task == "qasper" and not thinks:
            generations.append(GenerationRow(*key, error="The prompt does not fit.", error_type="PromptError"))
            continue
        right = (5 * number + len(sample.task) + iteration) % 7 % every != 0
        original = sample.length * 3 // 2
        prompt = min(original, 8000)
        generations.append(
            GenerationRow(
                *key,
                output="here" if right else f"there {iteration}",
                reasoning="Let me look." if thinks else None,
                reasoning_tokens=30 if thinks else None,
                reasoning_closed=True if thinks else None,
                finish_reason="length" if number % 5 == 4 else "stop",
                prompt_tokens=prompt,
                cached_tokens=prompt - 100 if number % 3 else 0,
                output_tokens=(40 if thinks else 10) + number,
                original_tokens=original,
                truncated=original > prompt,
                tokens_cut=original - prompt,
                reference_cut=number == 11 if original > prompt else None,
                prefill_s=prompt / 1000,
                decode_s=1.0,
            )
        )
        scores.append(ScoreRow(*key, metric, version, float(right), None, headline=True))
    store.write(samples=[SampleRow(sample, number)], generations=generations, scores=scores)


def shown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format rows in plain columns, numbers with at most three decimals."""
    texts = [[_text(value) for value in row] for row in [columns, *rows]]
    widths = [max(len(row[at]) for row in texts) for at in range(len(columns))]
    lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in texts)
    return "\n".join(lines)


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def answered(folder: Path) -> str:
    """Return the page with the current results."""
    results, last = make(folder)
    with Store(results, read_only=True, allowed_files=[last]) as store:
        attach_files(store, {"last": last})

        def answer(found: re.Match[str]) -> str:
            with open_query(store, found[2]) as rows:
                return f"{found[1]}```text\n{shown(rows.columns, list(rows.rows))}\n```"

        return BLOCK.sub(answer, PAGE.read_text("utf-8"))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        text = answered(Path(folder))
    if text == PAGE.read_text("utf-8"):
        return 0
    print(f"{PAGE.name} is out of date")
    if "--check" in sys.argv:
        return 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
