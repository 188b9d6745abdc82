"""Whatever is wrong with a prediction file is said with its name and line, before anything is written."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lbx.base.errors import LbxError, StoreError, UsageError
from lbx.exchange.exporting import export
from lbx.results import Store
from tests import profiles
from tests.exchange.harness_parts import TIME, lm_eval_row
from tests.exchange.import_parts import import_predictions

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
    "E with a negative length": (
        "longbench-e",
        "qasper.jsonl",
        _line(V1, length=-1),
        "line 1: 'length' must be a number",
    ),
    "classes as text": (
        "longbench",
        "trec.jsonl",
        _line(V1, all_classes="Paris"),
        "line 1: 'all_classes' must be a list",
    ),
    "a class that is no text": (
        "longbench",
        "lsht.jsonl",
        _line(V1, all_classes=["a", 3]),
        "line 1: 'all_classes' must",
    ),
    "lveval keywords": ("lveval", "cmrc_mixup_16k.jsonl", _line(LV, gold_ans=["a"]), "line 1: 'gold_ans' must be text"),
    "v2 answer": ("longbench_v2", "", _line(V2, answer="E", judge=False), "line 1: 'answer' must be one of A, B, C, D"),
    "v2 half judged": ("longbench_v2", "", _line(V2, judge=0.5), "line 1: 'judge' must be"),
    "leval blank gt": (
        "leval",
        "quality.pred.jsonl",
        _line(LE, evaluation="exam", gt=" "),
        "line 1: 'gt' must be text",
    ),
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


Row = dict[str, object]
V2_ROW = {"_id": "q1", "difficulty": "easy", "length": "short", "answer": "A", "judge": True}
RULER = {"index": 0, "pred": "Paris", "input": "?", "outputs": ["Paris"], "others": {}, "length": 4000}
LM_EVAL = {"pred": "Paris", "answers": ["Paris"], "length": 3}


@dataclass(frozen=True)
class Importer:
    """A format's sound row: its file, and its keys of references and answer."""

    name: str
    path: str
    row: Row
    references: str
    answer: str
    refuses_answer: bool = False

    def content(self, *rows: Row) -> str:
        if self.name == "lm_eval":
            rows = tuple(_lm_eval_row(row, number) for number, row in enumerate(rows))
        if self.name == "opencompass":
            return json.dumps({str(number): row for number, row in enumerate(rows)})
        return "".join(json.dumps(row) + "\n" for row in rows)

    def write(self, folder: Path, content: str | bytes) -> Path:
        path = folder / self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


def _lm_eval_row(row: Row, number: int) -> Row:
    made = lm_eval_row("qasper", number, {"pred": row.get("pred"), "answers": row.get("answers")})
    document = {key: value for key, value in made["doc"].items() if key != "answers" or "answers" in row}
    return made | {"doc": document}


IMPORTERS = {
    "longbench": Importer("longbench", "m/qasper.jsonl", V1, "answers", "pred"),
    "longbench-e": Importer("longbench", "pred_e/m/qasper.jsonl", V1, "answers", "pred"),
    "lveval": Importer("lveval", "m/loogle_SD_mixup_16k.jsonl", LV, "answers", "pred"),
    "longbench_pro": Importer("longbench_pro", "m.jsonl", PRO, "answer", "prediction"),
    "longbench_v2": Importer("longbench_v2", "m.jsonl", V2_ROW | {"pred": "A"}, "answer", "pred", True),
    "leval": Importer("leval", "m/tpo.pred.jsonl", LE | {"evaluation": "exam", "gt": "A"}, "gt", "m_pred"),
    "ruler": Importer("ruler", "4096/pred/vt.jsonl", RULER, "outputs", "pred", True),
    "lm_eval": Importer("lm_eval", f"m/samples_longbench_qasper_{TIME}.jsonl", LM_EVAL, "answers", "pred"),
    "opencompass": Importer(
        "opencompass", "p/LongBench_hotpotqa.json", {"origin_prompt": "?", "prediction": "a", "gold": ["a"]}, "gold",
        "prediction", True,
    ),
}  # fmt: skip
NO_TEXTS: dict[str, object] = {
    "null": None, "number": 3, "infinity": math.inf, "truth": True, "object": {"a": "b"}, "empty list": [],
    "nested list": [["Paris"]], "list with null": ["Paris", None], "list with a number": [10**30], "missing": ...,
}  # fmt: skip


def _with(row: Row, key: str, value: object) -> Row:
    return {name: part for name, part in {**row, key: value}.items() if part is not ...}


@pytest.mark.parametrize(("name", "kind"), profiles.crossed(IMPORTERS, [*NO_TEXTS, "text"]))
def test_references_that_are_no_texts_are_refused_by_place(name: str, kind: str, store: Store, tmp_path: Path) -> None:
    importer = IMPORTERS[name]
    if (name, kind) in (("longbench_v2", "null"), ("longbench_v2", "missing"), ("leval", "text")):
        pytest.skip("judge reveals the answer; a text is this format's reference")
    bad = _with(importer.row, importer.references, "Paris" if kind == "text" else NO_TEXTS[kind])
    path = importer.write(tmp_path, importer.content(importer.row, bad))
    if name == "ruler" and kind in ("text", "missing"):  # golden folders have such rows
        (note,) = import_predictions(store, importer.name, path, model="m").notes
        assert re.search("line 2: ('outputs' is text and no list|a reference is empty), so that", note)
        return
    key = "(gold|answers)" if name == "opencompass" else importer.references
    with pytest.raises(UsageError, match=f"(line 2|entry 1): .*'{key}'"):
        import_predictions(store, importer.name, path, model="m")
    assert store.query("SELECT count(*) FROM runs").rows == [(0,)]


@pytest.mark.parametrize(("name", "kind"), profiles.crossed(IMPORTERS, NO_TEXTS))
def test_answers_that_are_no_text_are_named_by_place(name: str, kind: str, store: Store, tmp_path: Path) -> None:
    importer = IMPORTERS[name]
    if (name, kind) in (("longbench_v2", "null"), ("longbench_v2", "missing")):
        pytest.skip("a question without an answer")
    path = importer.write(tmp_path, importer.content(_with(importer.row, importer.answer, NO_TEXTS[kind])))
    try:
        notes = import_predictions(store, importer.name, path, model="m").notes
    except UsageError as error:
        notes = (str(error),)
        assert store.query("SELECT count(*) FROM runs").rows == [(0,)]
    else:
        assert not importer.refuses_answer
    assert len(notes) == 1
    assert re.search("line 1|entry 0", notes[0]), notes


@pytest.mark.parametrize("name", IMPORTERS)
def test_a_file_of_another_encoding_or_shape_is_refused(name: str, store: Store, tmp_path: Path) -> None:
    importer = IMPORTERS[name]
    text = importer.content(importer.row)
    key = f'"{importer.answer if name != "lm_eval" else "doc_id"}":'
    bad = {
        "UTF-16": text.encode("utf-16"),
        "Latin-1": text.replace('"?"', '"é"').encode("latin-1") if '"?"' in text else b'{"a": "\xe9"}',
        "a key twice": text.replace(key, f"{key} 1, {key}", 1),
        "a list on one line": json.dumps([importer.row]),
        "half of it": text[: len(text) // 2],
        "a number": "3\n",
    }
    for kind, content in bad.items():
        if kind == "a list on one line" and name == "longbench_v2":
            continue  # its scorer reads an array
        path = importer.write(tmp_path, content)
        with pytest.raises(UsageError) as refused:
            import_predictions(store, importer.name, path, model="m")
        assert path.name in str(refused.value) and refused.value.fix, kind
    assert store.query("SELECT count(*) FROM runs").rows == [(0,)]


@pytest.mark.parametrize("name", IMPORTERS)
def test_a_byte_order_mark_and_carriage_returns_change_nothing(
    name: str, store: Store, tmp_path: Path, scored: Callable
) -> None:
    importer = IMPORTERS[name]
    text = importer.content(importer.row)
    numbers = []
    for number, content in enumerate((text, "\ufeff" + text, text.replace("\n", "\r\n"))):
        path = importer.write(tmp_path / str(number), content)
        done = import_predictions(store, importer.name, path, model=f"m{number}")
        assert not done.notes
        numbers.append(scored(store, done.benchmark, done.run_id))
    assert numbers[0] == numbers[1] == numbers[2]


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
