"""Exports in the form of lm-evaluation-harness, read by its own functions, by datasets and by Every Eval Ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.exchange.export_readers import told_by, tool
from tests.exchange.test_every_eval_ever import validate
from tests.exchange.tool_export_parts import ODD, Numbers, exported, numbers_of, odd_file

_READ = """
import json, sys
from pathlib import Path
import datasets
from lm_eval.utils import get_file_datetime, get_file_task_name, get_latest_filename, get_results_filenames
from lm_eval.utils import get_sample_results_filenames, make_table
datasets.disable_progress_bars()
folders = {}
for folder in sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_dir()):
    names = [str(path) for path in folder.iterdir()]
    results, samples = get_results_filenames(names), get_sample_results_filenames(names)
    latest = get_latest_filename(results)
    assert {get_file_datetime(name) + ".json" for name in samples} == {get_file_datetime(latest)}
    folders[folder.name] = {
        "table": make_table(json.loads(Path(latest).read_text())),
        "rows": {
            get_file_task_name(Path(name).name): datasets.load_dataset(
                "json", data_files=name, split="train", cache_dir=sys.argv[2]
            ).num_rows
            for name in samples
        },
    }
print(json.dumps(folders))
"""


def read_numbers(folder: Path) -> tuple[Numbers, dict[str, Any]]:
    """{benchmark/task: {metric: (score, standard error)}} of a run's folder, and its results file."""
    (path,) = folder.glob("results_*.json")
    results = json.loads(path.read_text("ascii"))
    numbers: Numbers = {}
    for name, row in results["results"].items():
        config = results["configs"][name]
        task = numbers.setdefault(f"{config['dataset_path']}/{config['dataset_name']}", {})
        for key, value in row.items():
            metric, _, form = key.partition(",")
            if form and not metric.endswith("_stderr"):
                error = row[f"{metric}_stderr,{form}"]
                task[metric] = (value, None if error == "N/A" else error)
    return numbers, results


def check_numbers(results: Path, folder: Path) -> None:
    found = {}
    for place in (path for path in folder.iterdir() if path.is_dir()):
        numbers, values = read_numbers(place)
        found[values["lbx"]["run_id"]] = numbers
    assert found == numbers_of(results)


def test_published_predictions_are_read(published: Path, tmp_path: Path) -> None:
    folder = exported(published, "lm_eval", tmp_path / "out")
    check_numbers(published, folder)
    read = told_by(_READ, folder, tmp_path / "cache")
    assert len(read) == 4
    (v2,) = (told for name, told in read.items() if name.startswith("gpt"))
    assert v2["rows"] == {"lbx-longbench-v2-mcq": 312} and "|lbx-longbench-v2-mcq|" in v2["table"]
    (llama,) = (told for name, told in read.items() if name.startswith("llama3"))
    assert len(llama["rows"]) == 21 and llama["rows"]["lbx-longbench-repobench-p"] == 500


def test_odd_texts_failures_and_iterations_are_read(tmp_path: Path) -> None:
    results = odd_file(tmp_path / "odd.duckdb")
    folder = exported(results, "lm_eval", tmp_path / "out")
    check_numbers(results, folder)
    read = told_by(_READ, folder, tmp_path / "cache")
    assert [told["rows"] for told in read.values()] == 2 * [{"lbx-longbench-qasper": 20, "lbx-longbench-hotpotqa": 20}]
    _, values = read_numbers(folder / "org-one")
    name = "lbx-longbench-qasper"
    assert values["n-samples"][name] == {"original": 12, "effective": 10}
    counts = {fact: values["configs"][name]["metadata"][fact] for fact in ("asked", "answered", "failed", "truncated")}
    assert counts == {"asked": 24, "answered": 20, "failed": 4, "truncated": 6}
    assert values["lbx"]["tasks"][name]["f1"]["official"] == round(100 * values["results"][name]["f1,none"], 2)
    (path,) = (folder / "org-one").glob(f"samples_{name}_*.jsonl")
    rows = [json.loads(line) for line in path.read_text("ascii").splitlines()]
    assert [(row["doc_id"], row["lbx"]["iteration"]) for row in rows[:3]] == [(0, 0), (0, 1), (1, 0)]
    assert rows[2]["doc"]["question"] == ODD and rows[2]["doc"]["answers"] == ["reference 1"]
    assert rows[2]["resps"] == [rows[2]["filtered_resps"]] == [[f"{ODD} 1 of org/one"]]
    assert rows[2]["target"] == "['reference 1']" and rows[2]["f1"] == 1 / 12


def test_every_eval_ever_converts_them(tmp_path: Path) -> None:
    results = odd_file(tmp_path / "odd.duckdb", tasks=("trec", "qasper"), output="plain", question="plain")
    folder = exported(results, "lm_eval", tmp_path / "out")
    done = tool("every_eval_ever", "convert", "lm_eval", "--log_path", folder, "--output_dir", tmp_path / "data",
                "--include_samples", "--source_organization_name", "us")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    wholes = [json.loads(path.read_text("utf-8")) for path in (tmp_path / "data").rglob("*.json")]
    assert len(wholes) == 4
    for whole in wholes:
        assert whole["detailed_evaluation_results"]["total_rows"] == 20
        (result,) = whole["evaluation_results"]
        run = whole["model_info"]["id"]
        task = result["evaluation_name"].removeprefix("lbx-").replace("-", "/")
        ((score, se),) = numbers_of(results)[run][task].values()
        assert result["score_details"]["score"] == score
        assert result["score_details"]["uncertainty"]["standard_error"]["value"] == se
    validate(tmp_path)
