"""Exports to Every Eval Ever, validated by its own package and by its schemas."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbx.exchange.tools.run_records import ascii_json
from lbx.results import Store
from tests.command_line import Lbx, fails
from tests.exchange.export_readers import told_by, tool
from tests.exchange.tool_export_parts import ODD, exported, numbers_of, odd_file
from tests.page_parts import results_file

_BREACHES = """
import json, sys
from pathlib import Path
from jsonschema import Draft7Validator
folder, schemas = map(Path, sys.argv[1:])
whole, row = (
    Draft7Validator(json.loads((schemas / name).read_text()))
    for name in ("eval.schema.json", "instance_level_eval.schema.json")
)
breaches = []
for path in folder.rglob("*.json*"):
    values = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for value in values[:: max(1, len(values) // 100)]:
        check = row if path.suffix == ".jsonl" else whole
        breaches += [f"{path.name}: {error.message}" for error in check.iter_errors(value)]
print(json.dumps(breaches))
"""


def validate(folder: Path) -> None:
    """The package finds no error and no warning."""
    files = sorted(path.relative_to(folder) for path in (folder / "data").rglob("*.json*"))
    done = tool("every_eval_ever", "validate", *files, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(files)} passed, 0 warning-only" in done.stdout


def evaluations(folder: Path) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each evaluation with its samples."""
    found = []
    for path in sorted(folder.rglob("*.json")):
        samples = path.with_name(f"{path.stem}_samples.jsonl")
        lines = samples.read_text("ascii").splitlines() if samples.exists() else []
        found.append((json.loads(path.read_text("ascii")), [json.loads(line) for line in lines]))
    return found


def check_numbers(results: Path, folder: Path) -> None:
    """The files have the results file's numbers of tasks, and every sample belongs to one of them."""
    numbers = numbers_of(results)
    read: dict[str, dict[str, dict[str, tuple[float, float | None]]]] = {}
    for whole, rows in evaluations(folder):
        run = read.setdefault(whole["eval_library"]["additional_details"]["run_id"], {})
        names = set()
        for result in whole["evaluation_results"]:
            source, metric = result["source_data"], result["metric_config"]
            details, error = result["score_details"], result["score_details"]["uncertainty"].get("standard_error", {})
            assert metric["metric_id"] == f"{source['dataset_name']}.{metric['metric_name']}"
            task = run.setdefault(f"{source['dataset_name']}/{source['additional_details']['task']}", {})
            task[metric["metric_name"]] = (details["score"], error.get("value"))
            names.add(result["evaluation_result_id"])
        assert {row["evaluation_result_id"] for row in rows} == names
        assert len({(row["evaluation_result_id"], row["sample_id"]) for row in rows}) == len(rows)
    assert read == numbers


def test_published_predictions_validate(shared: Callable[[str], Path], published: Path, tmp_path: Path) -> None:
    schemas = shared("data/schemas/every_eval_ever")
    folder = exported(published, "every_eval_ever", tmp_path)
    validate(folder)
    check_numbers(published, folder)
    assert told_by(_BREACHES, folder, schemas) == []
    assert {path.relative_to(folder).parts[1:4] for path in (folder / "data").rglob("*.json")} == {
        ("longbench", "meta-llama", "llama2-7b-chat-4k"),
        ("longbench", "meta-llama", "llama3-8b-instruct"),
        ("longbench_v2", "openai", "gpt-4o-mini"),
        ("leval", "meta-llama", "llama2-13b-chat-4k"),
    }


def test_odd_texts_failures_and_iterations_validate(shared: Callable[[str], Path], tmp_path: Path) -> None:
    results = odd_file(tmp_path / "odd.duckdb")
    folder = exported(results, "every_eval_ever", tmp_path / "out")
    validate(folder)
    assert told_by(_BREACHES, folder, shared("data/schemas/every_eval_ever")) == []


def test_json_is_ascii_without_nan_and_lone_surrogates() -> None:
    text = ascii_json({"a\ud800": ["\ud83d\ude00 \udc00\u2028", float("nan"), float("-inf"), 0.1, None, True]})
    assert text == r'{"a\ufffd": ["\ud83d\ude00 \ufffd\u2028", null, null, 0.1, null, true]}'


def test_files_state_counts_rules_and_official_numbers(tmp_path: Path) -> None:
    results = odd_file(tmp_path / "odd.duckdb")
    folder = exported(results, "every_eval_ever", tmp_path / "out")
    check_numbers(results, folder)
    one, two = evaluations(folder)
    assert one[0]["evaluation_id"] != two[0]["evaluation_id"]
    for whole, rows in (one, two):
        (result, _) = whole["evaluation_results"]
        details = result["score_details"]["details"]
        counts = {name: details[name] for name in ("asked", "answered", "failed", "samples_asked", "samples_in_data")}
        assert counts == {"asked": "24", "answered": "20", "failed": "4", "samples_asked": "12",
                          "samples_in_data": "unknown"}  # fmt: skip
        assert float(details["official"]) == round(100 * result["score_details"]["score"], 2)
        assert details["unit"] == "100.0" and details["truncated"] == "6" and details["method"] == "logit"
        file = whole["detailed_evaluation_results"]
        assert file["total_rows"] == len(rows) == 40
        assert file["checksum"] == hashlib.sha256((folder / file["file_path"]).read_bytes()).hexdigest()
        assert file["additional_details"]["is_correct"] == "score == 1"
        assert all(row["evaluation"]["is_correct"] == (row["evaluation"]["score"] == 1) for row in rows)
        assert {row["evaluation_id"] for row in rows} == {whole["evaluation_id"]}
        assert rows[2]["input"] == {"raw": ODD, "reference": ["reference 1"]}
        assert [row["sample_id"] for row in rows[:2]] == ["qasper/qasper-000", "qasper/qasper-000#1"]
        assert rows[0]["output"]["reasoning_trace"] == ["because"] and ODD in rows[0]["output"]["raw"][0]
        assert rows[0]["metadata"]["finish_reason"] == "length" and rows[0]["metadata"]["truncated"] == "true"
        assert rows[0]["sample_hash"] != rows[2]["sample_hash"]


def test_the_same_run_has_the_same_files_and_another_run_others(tmp_path: Path) -> None:
    results = odd_file(tmp_path / "odd.duckdb")
    first, again = (exported(results, "every_eval_ever", tmp_path / name) for name in ("first", "again"))
    files = [{path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")} for folder in (first, again)]
    assert files[0] == files[1]
    assert len(files[0]) == 5
    with Store(results) as store, store.transaction() as connection:
        connection.execute("UPDATE runs SET started_at = started_at + INTERVAL 1 MICROSECOND")
    later = exported(results, "every_eval_ever", tmp_path / "later")
    names = {path.name for folder in (first, later) for path in folder.rglob("*.json")}
    assert len(names) == 4


def test_a_model_needs_a_developer(lbx: Lbx, tmp_path: Path) -> None:
    results = odd_file(tmp_path / "odd.duckdb", runs=("plain",))
    command = ("export", "every_eval_ever", results, "-o", tmp_path / "out")
    done = lbx(*command)
    fails(done, 2, "'plain' does not begin with one", "developer=NAME")
    assert not (tmp_path / "out").exists()
    lbx.ok("runs", "note", results, "plain", "developer=unknown")
    fails(lbx(*command), 2, "does not begin with one")
    lbx.ok("runs", "note", results, "plain", "developer=Our Lab", "organization=Institute")
    lbx.ok(*command)
    ((whole, _),) = evaluations(tmp_path / "out")
    assert whole["model_info"]["id"] == "Our Lab/plain" and whole["model_info"]["developer"] == "Our Lab"
    assert whole["source_metadata"]["source_organization_name"] == "Institute"


def test_a_benchmark_may_have_a_reserved_name(lbx: Lbx, tmp_path: Path) -> None:
    results = results_file(tmp_path / "data.duckdb", ("org/one",), benchmark="data")
    lbx.ok("export", "every_eval_ever", results, "-o", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out" / "data").iterdir()] == ["_data"]
    validate(tmp_path / "out")


def test_numbers_that_are_no_numbers_are_left_out(lbx: Lbx, tmp_path: Path) -> None:
    results = odd_file(tmp_path / "odd.duckdb", runs=("org/one",))
    with Store(results) as store, store.transaction() as connection:
        connection.execute("UPDATE numbers SET se = 'nan', low = '-inf' WHERE task = 'qasper'")
        connection.execute("UPDATE numbers SET score = 'nan' WHERE task = 'hotpotqa'")
        connection.execute("UPDATE scores SET score = 'inf' WHERE sample_id = 'qasper-000'")
    lbx.ok("export", "every_eval_ever", results, "-o", tmp_path / "out")
    validate(tmp_path / "out")
    ((whole, rows),) = evaluations(tmp_path / "out")
    (result,) = whole["evaluation_results"]
    assert result["score_details"]["uncertainty"] == {"num_samples": 10} and len(rows) == 18
    for form in ("inspect", "lm_eval"):
        lbx.ok("export", form, results, "-o", tmp_path / form)


@pytest.mark.parametrize(
    "model",
    ["../../x", "org/..", "org/CON", "/abs", 'a<b|c:"d/\x1b[31m', "org/" + "n" * 300, "猫" * 90, "org/\u202ex"],
)
def test_hostile_names_stay_in_the_folder_and_validate(lbx: Lbx, tmp_path: Path, model: str) -> None:
    results = odd_file(tmp_path / "odd.duckdb", runs=(model,))
    lbx.ok("runs", "note", results, model, "developer=../org")
    lbx.ok("export", "every_eval_ever", results, "-o", tmp_path / "deep" / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"odd.duckdb", "deep"}
    assert len(list((tmp_path / "deep" / "out" / "data" / "longbench").rglob("*.json"))) == 1
    validate(tmp_path / "deep" / "out")


def test_a_run_of_an_own_benchmark_and_of_needles_validates(lbx: Lbx, tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "bundle" / "examples" / "handbook" / "benchmark.toml"
    bundle, results = lbx.unpacked(example, tmp_path), tmp_path / "results.duckdb"
    key = f"handbook/facts/{json.loads((example.parent / 'facts.jsonl').read_text('utf-8').splitlines()[0])['id']}"
    answers = {"*": "<think>hm\u2028</think>(B) 31 metres", key: {"error": "out of memory"}}
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    (tmp_path / "m.toml").write_text(
        'name = "our-lab/m"\nbackend = "scripted"\ncontext_window = 4000\n[weights]\npath = "answers.json"\n'
    )
    done = lbx("run", "--bundle", bundle, "--model", tmp_path / "m.toml", "--no-plan", "--tasks", "handbook,needle",
               "--limit", 3, "--iterations", 2, "-o", results)  # fmt: skip
    assert done.returncode in (0, 3), done.stderr
    folder = exported(results, "every_eval_ever", tmp_path / "out")
    validate(folder)
    check_numbers(results, folder)
    assert {path.relative_to(folder).parts[1:4] for path in (folder / "data").rglob("*.json")} == {
        ("handbook", "our-lab", "m"), ("needle", "our-lab", "m"),
    }  # fmt: skip
    results_of_tasks = [result for whole, _ in evaluations(folder) for result in whole["evaluation_results"]]
    details = [result["score_details"]["details"] for result in results_of_tasks]
    assert sum(int(one["failed"]) for one in details if one["headline"] == "true") == 1
    assert {one["samples_in_data"] for one in details} == {"3", "4", "5", "120"}
