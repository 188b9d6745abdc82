"""Predictions that others published: scored as they were published, and given back byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.exchange.exporting import export
from lbx.results import Store
from tests.exchange.import_parts import import_predictions

Shared = Callable[[str], Path]


def _same_files(store: Store, benchmark: str, run_id: str, source: Path, to: Path) -> None:
    files = sorted(source.glob("*.jsonl")) if source.is_dir() else [source]
    exported = export(store, benchmark, run_id, to)
    assert sorted(path.name for path in exported.files) == [path.name for path in files]
    found = {path.name: path.read_bytes() for path in exported.files}
    assert all(found[path.name] == path.read_bytes() for path in files)
    assert not exported.left_out


@pytest.mark.parametrize("model", ["llama2-7b-chat-4k", "llama3-8b-instruct"])
def test_longbench(model: str, shared: Shared, store: Store, tmp_path: Path, scored: Callable) -> None:
    folder = shared(f"data/predictions/longbench/{model}")
    imported = import_predictions(store, "longbench", folder, model=model)
    assert imported.ignored == ("result.json",)
    assert sum(imported.counts.values()) == 4750 and not imported.failed and not imported.notes
    wanted = json.loads((folder / "result.json").read_text("utf-8"))
    numbers = scored(store, "longbench", imported.run_id)
    assert {task: next(iter(found.values())) for task, found in numbers.items()} == wanted
    _same_files(store, "longbench", imported.run_id, folder, tmp_path / "out")


def test_two_models_share_samples_and_the_same_again_changes_nothing(shared: Shared, store: Store) -> None:
    folder = shared("data/predictions/longbench")
    runs = [
        import_predictions(store, "longbench", folder / name, model=name)
        for name in ("llama2-7b-chat-4k", "llama3-8b-instruct", "llama2-7b-chat-4k")
    ]
    assert runs[0] == runs[2] != runs[1]
    assert store.query("SELECT count(*) FROM samples").rows == [(4750,)]
    assert store.query("SELECT count(*) FROM generations").rows == [(9500,)]
    assert store.query("SELECT DISTINCT status, backend FROM runs").rows == [("done", "import")]


def test_longbench_v2(shared: Shared, store: Store, tmp_path: Path, scored: Callable) -> None:
    file = shared("data/predictions/longbench_v2/oneshot.jsonl")
    imported = import_predictions(store, "longbench_v2", file, model="gpt-4o-mini")
    assert imported.counts == {"mcq": 503} and imported.failed == 191
    names, row = (line.split("\t") for line in file.with_name("result.txt").read_text("utf-8").splitlines()[:2])
    wanted = {name.lower(): float(value) for name, value in zip(names, row, strict=True) if value.count(".")}
    numbers = scored(store, "longbench_v2", imported.run_id)["mcq"]
    assert numbers["accuracy"] == wanted.pop("overall")
    assert {name: numbers[f"accuracy/{name}"] for name in wanted} == wanted
    assert len(wanted) == 4 and "accuracy/long" not in numbers
    _same_files(store, "longbench_v2", imported.run_id, file, tmp_path / "out")


def _leval_folders(shared: Shared) -> list[Path]:
    (upstream,) = shared("data/upstream/OpenLMLab/LEval").iterdir()
    places = [upstream / "Predictions/exam_eval", upstream / "Predictions/ngram_eval"]
    return [folder for place in [*places, shared("data/predictions/leval/ngram_eval")] for folder in place.iterdir()]


def test_leval(shared: Shared, tmp_path: Path, scored: Callable) -> None:
    golden = json.loads((shared("golden/open/leval_aggregate.json")).read_text("utf-8"))["results"]
    compared = 0
    for number, folder in enumerate(_leval_folders(shared)):
        with Store(tmp_path / f"{number}.duckdb") as store:
            imported = import_predictions(store, "leval", folder, model=folder.name)
            wanted = {
                record["task"]: record
                for record in golden
                if record["model"] == folder.name and record["task"] in imported.counts
            }
            places = {task: wanted[task]["indices"] if task in wanted else [] for task in imported.counts}
            numbers = scored(store, "leval", imported.run_id, places)
            for task, record in wanted.items():
                assert numbers[task] == _official(task, record), task
                compared += 1
            _same_files(store, "leval", imported.run_id, folder, tmp_path / f"out{number}")
    assert compared


def _official(task: str, record: dict) -> dict[str, float]:
    metrics = record["metrics"]
    if isinstance(metrics, list):
        names = [f"exact_match/{name}" for name in ("first", "second", "third")]
        assert task == "topic_retrieval_longchat"
        return {
            "exact_match": record["average"],
            **{name: found["exact_match"] for name, found in zip(names, metrics, strict=True)},
        }
    if "rouge/geometric_mean" in metrics:
        return {name: metrics[f"rouge/{name}"] for name in ("geometric_mean", "rouge1", "rouge2", "rougeL")}
    return {name: metrics[name] for name in ("exact_match", "f1") if name in metrics}


def test_leval_models_with_a_few_other_questions_fit_in_one_file(shared: Shared, store: Store) -> None:
    for folder in _leval_folders(shared):
        import_predictions(store, "leval", folder, model=folder.name)
    runs = store.query("SELECT count(DISTINCT run_id) FROM generations WHERE task = 'narrative_qa'").rows
    both = store.query(
        "SELECT count(*) FROM (SELECT sample_id FROM generations WHERE task = 'narrative_qa' GROUP BY ALL "
        "HAVING count(*) = 2)"
    ).rows
    assert runs == [(2,)] and both == [(176,)]
