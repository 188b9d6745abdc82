"""Whatever is wrong with a prediction file is said with its name and line, before anything is written."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from import_parts import import_predictions

from lbx.base.errors import LbxError, StoreError, UsageError
from lbx.exchange.exporting import export
from lbx.store import Store

V1 = {"pred": "Paris", "answers": ["Paris"], "all_classes": None, "length": 3}
V2 = {"_id": "q1", "difficulty": "easy", "length": "short", "answer": "A", "pred": "A", "judge": True, "response": ""}
V2 |= {"response": "The correct answer is (A)"}
PRO = {
    "id": "p1", "language": "English", "token_length": "8k", "primary_task": "T3. Evidence-Grounded QA",
    "secondary_task": "T3.2 Single-Hop Fact QA", "contextual_requirement": "Full", "difficulty": "Easy",
    "answer": ["x"], "bon_idx": 1, "prediction": "[Answer]\nx", "thinking": None,
}  # fmt: skip
LV = {"pred": "a", "answers": ["a"], "gold_ans": None, "input": "?", "all_classes": None, "length": 3}
LE = {"query": "?", "gt": "a", "prompt": "", "m_pred": "a", "evaluation": "f1"}


def _line(row: dict, **changes: object) -> bytes:
    kept = {key: value for key, value in {**row, **changes}.items() if value is not ...}
    return json.dumps(kept).encode() + b"\n"


BAD = {
    "not JSON": ("longbench", "qasper.jsonl", _line(V1) + b"{'a': 1}\n", "qasper.jsonl, line 2: it is not valid JSON"),
    "no object": ("longbench", "qasper.jsonl", _line(V1) + b"3\n", "line 2: it contains the number 3"),
    "cut off": ("longbench", "qasper.jsonl", _line(V1) + _line(V1)[:-9], "line 2: it is not valid JSON"),
    "deep": ("longbench", "qasper.jsonl", b"[" * 3 + b'{"a":' + b"[" * 99999 + b"\n", "array"),
    "deep object": ("longbench", "qasper.jsonl", b'{"a":' * 99999 + b"\n", "line 1: cannot parse its JSON"),
    "long number": ("longbench", "qasper.jsonl", b'{"a":' + b"9" * 9999 + b"}\n", "line 1: cannot parse its JSON"),
    "not UTF-8": ("longbench", "qasper.jsonl", _line(V1) + b'{"pred": "\xff"}\n', "line 2: it is not UTF-8"),
    "empty": ("longbench", "qasper.jsonl", b"\n \n", "the file is empty"),
    "gzip": ("longbench", "qasper.jsonl.gz", gzip.compress(_line(V1)), "compressed with gzip.*gunzip"),
    "array": ("longbench_pro", "", json.dumps([PRO]).encode(), "one JSON array"),
    "v2 array cut off": ("longbench_v2", "", b"[" + _line(V2) + b",\n", "line 3: it is not valid JSON"),
    "v2 array without comma": ("longbench_v2", "", b"[" + _line(V2) * 2 + b"]", "line 2: it is not valid JSON"),
    "v2 array of numbers": ("longbench_v2", "", b"[3]", "line 1: it contains the number 3"),
    "v2 empty array": ("longbench_v2", "", b"[ ]", "the array is empty"),
    "unknown task": ("longbench", "qaspr.jsonl", _line(V1), "no task 'qaspr'. Did you mean qasper"),
    "no E task": ("longbench-e", "musique.jsonl", _line(V1), "no task 'musique_e'"),
    "two tasks": ("longbench", "qasper_hotpotqa.jsonl", _line(V1), "no task 'qasper_hotpotqa'"),
    "E without length": ("longbench-e", "qasper.jsonl", _line(V1, length="3"), "line 1: 'length' must be a number"),
    "no pred": ("longbench", "qasper.jsonl", _line(V1, pred=...), "line 1: the key 'pred' is missing"),
    "no answers": ("longbench", "qasper.jsonl", _line(V1) + _line(V1, answers=...), "line 2: the key 'answers'"),
    "v2 twice": (
        "longbench_v2",
        "",
        _line(V2) + _line(V2, difficulty="hard"),
        "line 2: it has the same _id as .* but differs in diff",
    ),
    "v2 right unknown": ("longbench_v2", "", _line(V2, pred=..., answer=..., response=None), "'answer' is missing"),
    "v2 judged wrongly": ("longbench_v2", "", _line(V2, judge=False), "line 1: 'judge' marks the answer A as wrong"),
    "v2 judged rightly": ("longbench_v2", "", _line(V2, answer="B"), "line 1: 'judge' marks the answer A as right"),
    "v2 right without letter": ("longbench_v2", "", _line(V2, pred=None, answer=None), "line 1: .* without a letter"),
    "v2 judge": ("longbench_v2", "", _line(V2, judge="no"), "line 1: 'judge' must be"),
    "v2 no difficulty": ("longbench_v2", "", _line(V2, difficulty=...), "line 1: the key 'difficulty'"),
    "pro twice": ("longbench_pro", "", _line(PRO) * 2, "line 2: 'id' and 'bon_idx' repeat"),
    "pro changes": (
        "longbench_pro",
        "",
        _line(PRO) + _line(PRO, bon_idx=2, answer=["y"]),
        "line 2: it has the same id as",
    ),
    "pro task": ("longbench_pro", "", _line(PRO, secondary_task="T0"), "line 1: there is no secondary task 'T0'"),
    "pro bon_idx": ("longbench_pro", "", _line(PRO, bon_idx=0), "line 1: 'bon_idx' must"),
    "pro bon_idx without end": ("longbench_pro", "", _line(PRO, bon_idx=2**31 - 1), "a whole number from 1 to 1000"),
    "lveval task": ("lveval", "cmrc_mixup.jsonl", _line(LV), "Did you mean cmrc_mixup_"),
    "leval no key": ("leval", "narrative_qa.pred.jsonl", _line(LE, m_pred=...), 'line 1: it has no key with "_pred"'),
    "leval other key": ("leval", "narrative_qa.pred.jsonl", _line(LE) + _line(LE, m_pred=...), "line 2: .*'m_pred'"),
    "leval marked": ("leval", "narrative_qa.pred.jsonl", _line(LE, evaluation="exam"), "line 1: .* scored by 'f1'"),
    "leval no gt": ("leval", "narrative_qa.pred.jsonl", _line(LE, gt=...), "line 1: the key 'gt' is missing"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file(case: str, tmp_path: Path, store: Store) -> None:
    form, name, content, message = BAD[case]
    place = tmp_path / "in"
    if name:
        place.mkdir()
    (place / name if name else place).write_bytes(content)
    e = form.endswith("-e")
    with pytest.raises(UsageError, match=f"(?s){message}"):
        import_predictions(store, form.removesuffix("-e"), place, model="m", e=e)
    assert store.query("SELECT count(*) FROM runs").rows == [(0,)]


def test_wrong_places(tmp_path: Path, store: Store, write_lines: Callable) -> None:
    file = write_lines("pred/m/qasper.jsonl", [V1])
    file.with_name("result.json").write_text("{}")
    for form, path, message in (
        ("longbench", tmp_path / "none", "none does not exist"),
        ("longbench", tmp_path / "pred/m/result.json", "longbench has no task 'result'"),
        ("longbench", tmp_path / "pred", "contains no file of a longbench task.*Give one of its folders: m"),
        ("longbench_v2", file.parent, "is a folder"),
        ("longbensch", file, "Did you mean longbench"),
    ):
        with pytest.raises(UsageError, match=message):
            import_predictions(store, form, path, model="m")
    write_lines("pred/m/qasper.v2.jsonl", [V1])
    with pytest.raises(UsageError, match="two files of the task qasper"):
        import_predictions(store, "longbench", file.parent, model="m")


def test_another_revision_of_the_data_is_refused(store: Store, write_lines: Callable) -> None:
    import_predictions(store, "longbench", write_lines("a/qasper.jsonl", [V1]).parent, model="a")
    other = write_lines("b/qasper.jsonl", [{**V1, "answers": ["Rome"]}])
    with pytest.raises(StoreError, match=r"line 1: .* longbench/qasper/0000, .* references.*-o FILE"):
        import_predictions(store, "longbench", other.parent, model="b")
    classes = {**V1, "all_classes": ["x", "Paris"]}
    import_predictions(store, "longbench", write_lines("c/trec.jsonl", [classes]).parent, model="c")
    fewer = write_lines("d/trec.jsonl", [{**V1, "all_classes": ["Paris"]}])
    with pytest.raises(StoreError, match="differs from it in all_classes"):
        import_predictions(store, "longbench", fewer.parent, model="d")
    assert store.query("SELECT count(*) FROM runs").rows == [(2,)]


def test_one_name_is_one_content(store: Store, write_lines: Callable) -> None:
    file = write_lines("a/qasper.jsonl", [V1])
    import_predictions(store, "longbench", file.parent, model="a", run_id="mine")
    write_lines("a/qasper.jsonl", [{**V1, "pred": "Rome"}])
    with pytest.raises(StoreError, match="imported from files with other content"):
        import_predictions(store, "longbench", file.parent, model="a", run_id="mine")


def test_export_refuses(store: Store, write_lines: Callable, tmp_path: Path) -> None:
    run = import_predictions(store, "longbench", write_lines("a/qasper.jsonl", [V1]).parent, model="org/a").run_id
    with pytest.raises(UsageError, match=f"Available runs: {run}"):
        export(store, "longbench", "none", tmp_path / "out")
    with pytest.raises(UsageError, match=r"no answers to leval\. It has answers to longbench"):
        export(store, "leval", run, tmp_path / "out")
    (file,) = export(store, "longbench", run, tmp_path / "out").files
    assert file == tmp_path / "out/pred/a/qasper.jsonl"
    file.write_text("precious")
    with pytest.raises(UsageError, match=r"already exists.*--force"):
        export(store, "longbench", run, tmp_path / "out")
    assert file.read_text() == "precious"
    export(store, "longbench", run, tmp_path / "out", force=True)
    assert json.loads(file.read_text()) == V1
    (tmp_path / "file").write_text("")
    with pytest.raises(LbxError, match="No files were exported"):
        export(store, "longbench", run, tmp_path / "file")


def test_a_full_disk_leaves_nothing_half_written(store: Store, write_lines: Callable, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    write_lines("a/lcc.jsonl", [V1])
    big = write_lines("a/qasper.jsonl", [{**V1, "pred": "x" * 200_000}])
    run = import_predictions(store, "longbench", big.parent, model="m").run_id
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(LbxError, match="cannot be written: File too large"):
            export(store, "longbench", run, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
