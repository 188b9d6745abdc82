"""RULER's prediction files, in and out, and the files of evaluate.py, byte for byte."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.benchmarks.registry import BENCHMARKS
from lbx.exchange.exporting import export
from lbx.results import Store
from lbx.results.scoring.scores import Rescoring, rescore
from tests.exchange.import_parts import bundle_of, import_predictions

Shared = Callable[[str], Path]
WriteLines = Callable[..., Path]
REFUSED = {
    "special_empty_list_cwe": r"4096/pred/cwe\.jsonl, line 1: 'outputs' must be a list of texts; evaluate\.py stops",
    "special_empty_list_qa_1": r"qa_1\.jsonl, line 1: 'outputs' must be a list of texts; evaluate\.py stops",
    "special_no_others_qa_1": r"qa_1\.jsonl, line 1: the key 'others' is missing",
    "special_pred_null_qa_1": r"qa_1\.jsonl, line 1: 'pred' must be text, not null",
}
"""Folders at which evaluate.py stops before it writes a file."""
UNWRITTEN = {"special_lone_surrogate": r"submission\.csv cannot have row 1 of cwe_4096: .* lone surrogate"}
"""Folders at which evaluate.py stops while it writes submission.csv."""
FOLDERS = (  # noqa: SIM905
    "all_null all_right chunks chunks_before mixed_1 mixed_2 odd_counts one_task_vt special_empty_list_cwe "
    "special_empty_list_qa_1 special_empty_reference_cwe special_empty_reference_qa_1 special_lone_surrogate "
    "special_neither_qa_1 special_no_others_qa_1 special_no_outputs_but_output_qa_1 special_null_reference "
    "special_outputs_string_cwe special_outputs_string_qa_1 special_pred_null_qa_1"
).split()


def _score(store: Store) -> None:
    rescore(store, Rescoring(BENCHMARKS, processes=1))


def _pred(source: Path, target: Path, length: int = 4096) -> Path:
    """A copy of the prediction files of a folder, in the authors' layout."""
    folder = target / f"synthetic/{length}/pred"
    folder.mkdir(parents=True)
    for file in source.glob("*.jsonl"):
        shutil.copyfile(file, folder / file.name)
    return folder


def _texts(folder: Path, pattern: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob(pattern)}


def test_all_golden_folders_are_listed(shared: Shared) -> None:
    assert sorted(FOLDERS) == sorted(folder.name for folder in shared("golden/open/ruler_scores").iterdir())


@pytest.mark.parametrize("name", FOLDERS)
def test_as_evaluate_writes_them(name: str, shared: Shared, store: Store, tmp_path: Path) -> None:
    golden = shared(f"golden/open/ruler_scores/{name}")
    pred = _pred(golden, tmp_path / "in")
    if why := REFUSED.get(name):
        assert "Traceback" in (golden / "evaluate.log").read_text("utf-8")
        with pytest.raises(UsageError, match=why):
            import_predictions(store, "ruler", pred, model="m")
        return
    done = import_predictions(store, "ruler", pred, model="m")
    _score(store)
    written = golden.with_name("chunks") if name == "chunks_before" else golden
    (summary,) = written.glob("summary*.csv")
    tasks, scores, _ = list(csv.reader(summary.read_text("utf-8").splitlines()))[1:]
    numbers = store.query("SELECT task, official FROM task_scores WHERE run_id = ? AND headline", [done.run_id]).rows
    assert dict(numbers) == {f"{task}_4096": float(value) for task, value in zip(tasks[1:], scores[1:], strict=True)}
    if why := UNWRITTEN.get(name):
        with pytest.raises(UsageError, match=why):
            export(store, "ruler", done.run_id, tmp_path / "out", results=True)
    else:
        export(store, "ruler", done.run_id, tmp_path / "out", results=True)
        assert _texts(tmp_path / "out/m/synthetic/4096/pred", "*.csv") == _texts(written, "*.csv")
    export(store, "ruler", done.run_id, tmp_path / "again")
    assert _texts(tmp_path / "again/m/synthetic/4096/pred", "*.jsonl") == _texts(golden, "*.jsonl")
    null = "special_null_reference"
    assert sum("its first reference is null" in note for note in done.notes) == (2 if name == null else 0)


def test_a_run_of_lbx_has_the_same_files(shared: Shared, store: Store, tmp_path: Path) -> None:
    golden = shared("golden/open/ruler_scores/mixed_1")
    run = import_predictions(store, "ruler", _pred(golden, tmp_path / "in"), model="org/m").run_id
    with store.transaction() as connection:
        connection.execute("UPDATE runs SET backend = 'scripted', settings = '{}' WHERE run_id = ?", [run])
        connection.execute("UPDATE generations SET source_row = NULL")
    _score(store)
    made = export(store, "ruler", run, tmp_path / "out", results=True)
    assert {file.relative_to(tmp_path / "out").parent.as_posix() for file in made.files} == {"m/synthetic/4096/pred"}
    folder = tmp_path / "out/m/synthetic/4096/pred"
    assert (folder / "summary.csv").read_bytes() == (golden / "summary.csv").read_bytes()
    with (folder / "submission.csv").open(encoding="utf-8", newline="") as file:
        ids = [row["ID"] for row in csv.DictReader(file)]
    export(store, "ruler", run, tmp_path / "again")
    rows = _rows(tmp_path / "again/m/synthetic/4096/pred/niah_single_1.jsonl")
    assert ids[: len(rows)] == [str(row["index"]) for row in rows]
    keys = ("index", "pred", "input", "outputs", "truncation", "length")
    old = _rows(golden / "niah_single_1.jsonl")
    assert [[row[key] for key in keys] for row in rows] == [[row[key] for key in keys] for row in old]
    assert [*rows[0]] == ["index", "pred", "input", "outputs", "others", "truncation", "length"]


def _rows(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text("utf-8").rstrip("\n").split("\n")]


def _row(number: int = 0, **values: object) -> dict[str, object]:
    plain = {"index": number, "pred": "abc", "input": "", "outputs": ["b"], "others": {}, "length": 4000}
    return {key: value for key, value in {**plain, **values}.items() if value != "missing"}


def test_all_lengths_of_a_model_are_one_run(store: Store, write_lines: WriteLines, tmp_path: Path) -> None:
    for length in (8192, 4096, 3000):
        for task in ("vt", "cwe"):
            write_lines(f"m/synthetic/{length}/pred/{task}.jsonl", [_row(at) for at in range(2)])
    write_lines("m/synthetic/4096/pred/notes.jsonl", [{}])
    done = import_predictions(store, "ruler", tmp_path / "m", model="m")
    tasks = ["vt_3000", "cwe_3000", "vt_4096", "cwe_4096", "vt_8192", "cwe_8192"]
    assert (list(done.counts), done.ignored) == (tasks, ("notes.jsonl",))
    _score(store)
    files = export(store, "ruler", done.run_id, tmp_path / "out").files
    assert len(files) == 6
    results = export(store, "ruler", done.run_id, tmp_path / "results", results=True).files
    assert sorted(file.relative_to(tmp_path / "results").as_posix() for file in results) == [
        f"m/synthetic/{length}/pred/{name}.csv" for length in (3000, 4096, 8192) for name in ("submission", "summary")
    ]


def test_a_name_can_have_the_length(store: Store, write_lines: WriteLines, tmp_path: Path) -> None:
    file = write_lines("m/qa_1_4096.jsonl", [_row()])
    assert list(import_predictions(store, "ruler", file, model="m").counts) == ["qa_1_4096"]
    (exported,) = export(store, "ruler", "m-ruler-" + _hash_of(store), tmp_path / "out").files
    assert exported.relative_to(tmp_path / "out").as_posix() == "m/synthetic/4096/pred/qa_1.jsonl"


def _hash_of(store: Store) -> str:
    ((run,),) = store.query("SELECT run_id FROM runs").rows
    return str(run).rpartition("-")[2]


@pytest.mark.parametrize(
    ("names", "path", "why"),
    [
        (["m/vt.jsonl"], "m", "the length of its samples is unknown"),
        (["2024/vt.jsonl"], "2024", "the length of its samples is unknown"),
        (["8192/pred/vt_4096.jsonl"], "8192/pred", "the file's name has the length 4096, its folder 8192"),
        (["4096/pred/vt.jsonl", "4096/pred/vt-0.jsonl"], "4096", "are both files of the task vt_4096"),
        (["4096/pred/vt.jsonl", "4096/pred/vt_4096.jsonl"], "4096", "are both files of the task vt_4096"),
        (["m/other.jsonl"], "m", "has no prediction file of a ruler task"),
        (["m/vtt_4096.jsonl"], "m/vtt_4096.jsonl", "has no prediction file of a ruler task"),
    ],
)
def test_a_length_or_task_that_is_not_certain_is_refused(
    names: list[str], path: str, why: str, store: Store, write_lines: WriteLines, tmp_path: Path
) -> None:
    for name in names:
        write_lines(name, [_row()])
    with pytest.raises(UsageError, match=why):
        import_predictions(store, "ruler", tmp_path / path, model="m")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"outputs": None}, "'outputs' must be a list of texts"),
        ({"outputs": ""}, "'outputs' must be a list of texts"),
        ({"outputs": {"a": 1}}, "'outputs' must be a list of texts"),
        ({"outputs": ["a", 1]}, "'outputs' has a value that is no text"),
        ({"outputs": ["a", None]}, "'outputs' has a value that is no text"),
        ({"outputs": "missing", "output": ["a"]}, "'outputs' has a value that is no text"),
        ({"others": None}, "'others' must be an object"),
        ({"index": "missing"}, "the key 'index' is missing"),
        ({"input": "missing"}, "the key 'input' is missing"),
        ({"pred": "missing"}, "the key 'pred' is missing"),
        ({"pred": 5}, "'pred' must be text, not the number 5"),
    ],
)
def test_a_row_at_which_evaluate_stops_is_refused(
    row: dict[str, object], why: str, store: Store, write_lines: WriteLines
) -> None:
    file = write_lines("4096/pred/vt.jsonl", [_row(), _row(1, **row)])
    with pytest.raises(UsageError, match=rf"vt\.jsonl, line 2: {why}"):
        import_predictions(store, "ruler", file, model="m")


def test_ids_that_pandas_would_change_are_not_exported(store: Store, write_lines: WriteLines, tmp_path: Path) -> None:
    file = write_lines("4096/pred/vt.jsonl", [_row(), _row(1, others={"id": None})])
    run = import_predictions(store, "ruler", file, model="m").run_id
    _score(store)
    with pytest.raises(UsageError, match="row 2 of vt_4096: its id is None"):
        export(store, "ruler", run, tmp_path / "out", results=True)


def test_the_answer_that_was_scored_is_exported(store: Store, write_lines: WriteLines, tmp_path: Path) -> None:
    file = write_lines("4096/pred/vt.jsonl", [_row(pred="<think>b</think>a")])
    run = import_predictions(store, "ruler", file, model="m", strip_reasoning=True).run_id
    _score(store)
    export(store, "ruler", run, tmp_path, results=True)
    folder = tmp_path / "m/synthetic/4096/pred"
    assert (folder / "summary-vt.csv").read_text("utf-8") == "0,1\nTasks,vt\nScore,0.0\nNulls,0/1\n"
    assert (folder / "submission.csv").read_text("utf-8") == "Task,ID,Prediction\nvt,0,a\n"


def test_models_with_other_samples_share_a_results_file(store: Store, write_lines: WriteLines) -> None:
    first = write_lines("a/4096/pred/vt.jsonl", [_row(), _row(1)])
    same = write_lines("b/4096/pred/vt.jsonl", [_row(pred="b"), _row(1, pred="c")])
    other = write_lines("c/4096/pred/vt.jsonl", [_row(outputs=["x"]), _row(1)])
    for model, file in (("a", first), ("b", same), ("c", other)):
        import_predictions(store, "ruler", file, model=model)
    shared = "SELECT count(DISTINCT sample_id) FROM generations WHERE run_id LIKE 'a-%' OR run_id LIKE 'b-%'"
    assert store.query(shared).rows == [(2,)]
    assert store.query("SELECT count(DISTINCT sample_id) FROM generations").rows == [(4,)]


def test_no_bundle_has_their_samples(store: Store, write_lines: WriteLines, tmp_path: Path) -> None:
    file = write_lines("4096/pred/vt.jsonl", [_row()])
    done = import_predictions(store, "ruler", file, model="m", bundle=bundle_of(tmp_path / "bundle", {}))
    assert (done.counts, done.unmatched) == ({"vt_4096": 1}, 0)
