"""Odd but sound files, files matched with a bundle, and runs that lbx made itself."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.base.records import Sample, sha256_text
from lbx.benchmarks.base.prediction_lines import split_rows
from lbx.benchmarks.registry import BENCHMARKS
from lbx.exchange.exporting import export
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from lbx.results.scoring.scores import Rescoring, rescore
from tests.exchange.import_parts import bundle_of, import_predictions, real_bundle

ROW = {"pred": "Paris", "answers": ["Paris"], "all_classes": None, "length": 3}

FILES = {
    "crlf": b'{"pred": "a", "answers": ["a"], "all_classes": null, "length": 1}\r\n' * 2,
    "byte order mark": b'\xef\xbb\xbf{"pred": "a", "answers": ["a"], "all_classes": null, "length": 1}\n',
    "no last line feed": b'{"pred": "a", "answers": ["a"], "all_classes": null}\n{"pred": "b", "answers": ["b"], '
    b'"all_classes": null}',
    "blank lines": b'\n{"pred": "a", "answers": ["a"], "all_classes": null}\n\n \n{"pred": "b", "answers": ["b"], '
    b'"all_classes": null}\n\n',
    "spaces": b'  {"pred":   "a", "answers": ["a"], "all_classes": null, "more": 1.50 } \n',
    "lone surrogates": b'{"pred": "a \\ud83d b", "answers": ["a \\ud83d"], "all_classes": null}\n',
    "line separators": '{"pred": "a\u2028b\u0085c", "answers": ["a"], "all_classes": null}\n'.encode(),
    "null character": b'{"pred": "a\\u0000b", "answers": ["a"], "all_classes": null}\n',
    "numbers": b'{"pred": "a", "answers": ["a"], "all_classes": null, "length": 1e999}\n'
    b'{"pred": "a", "answers": ["a"], "all_classes": null, "length": NaN}\n',
}


@pytest.mark.parametrize("case", FILES)
def test_odd_files_come_back_byte_for_byte(case: str, store: Store, tmp_path: Path) -> None:
    source = tmp_path / "in/qasper.jsonl"
    source.parent.mkdir()
    source.write_bytes(FILES[case])
    run = import_predictions(store, "longbench", source.parent, model="m").run_id
    (file,) = export(store, "longbench", run, tmp_path / "out").files
    assert file.read_bytes() == FILES[case]


@pytest.mark.parametrize("value", [None, 3, ["a"], {"a": 1}, True])
def test_an_answer_that_is_no_text_is_marked(
    value: object, store: Store, write_lines: Callable, scored: Callable
) -> None:
    folder = write_lines("in/qasper.jsonl", [ROW, {**ROW, "pred": value, "length": 4}]).parent
    imported = import_predictions(store, "longbench", folder, model="m")
    assert len(imported.notes) == 1 and "line 2: the answer is not text" in imported.notes[0]
    rows = store.query("SELECT output, finish_reason, error, source_row FROM generations ORDER BY created_at").rows
    assert rows[1][:3] == ("", "not_text", None) and json.loads(rows[1][3])["pred"] == value
    assert scored(store, "longbench", imported.run_id)["qasper"]["f1"] == 50.0


def test_e_is_known_by_its_folder_or_told(store: Store, write_lines: Callable, scored: Callable) -> None:
    rows = [ROW, {**ROW, "length": 5000, "pred": "no"}, {**ROW, "length": 9000}]
    by_folder = write_lines("pred_e/m/qasper.jsonl", rows).parent
    told = write_lines("other/qasper.jsonl", rows).parent
    first = import_predictions(store, "longbench", by_folder, model="m")
    second = import_predictions(store, "longbench", told, model="n", e=True)
    for run in (first, second):
        numbers = scored(store, "longbench", run.run_id)["qasper_e"]
        assert (numbers["f1/0-4k"], numbers["f1/4-8k"], numbers["f1/8k+"]) == (100.0, 0.0, 100.0)


def test_v2_rows_of_white_space_stay_in_the_denominator(store: Store, write_lines: Callable, scored: Callable) -> None:
    row = {"difficulty": "easy", "length": "short", "answer": "A"}
    file = write_lines(
        "m.jsonl",
        [
            {**row, "_id": "1", "response": "The correct answer is (A)", "pred": "A", "judge": True},
            {**row, "_id": "2", "response": "", "pred": None, "judge": False},
            {**row, "_id": "3", "response": "said otherwise", "pred": "A", "judge": True, "response_cot": "thus"},
            {**row, "_id": "4", "pred": "B", "judge": False, "answer": None},
        ],
    )
    run = import_predictions(store, "longbench_v2", file, model="m").run_id
    numbers = scored(store, "longbench_v2", run)["mcq"]
    assert numbers["accuracy"] == 50.0 and numbers["compensated"] == 56.2
    steps = store.query("SELECT steps FROM generations WHERE sample_id = '3'").rows[0][0]
    assert json.loads(steps) == [{"output": "thus"}]


def test_longbench_rows_find_the_bundles_samples(
    shared: Callable, store: Store, tmp_path: Path, scored: Callable
) -> None:
    bundle = real_bundle(shared, tmp_path / "bundle")
    published = shared("data/predictions/longbench/llama3-8b-instruct")
    source = tmp_path / "in"
    source.mkdir()
    for task in ("multi_news", "passage_retrieval_zh"):
        (source / f"{task}.jsonl").write_bytes((published / f"{task}.jsonl").read_bytes())
    # Rows out of order, as several processes write them, still find theirs, and come back as they stood.
    lines = (published / "multifieldqa_zh.jsonl").read_bytes().splitlines(keepends=True)
    (source / "multifieldqa_zh.jsonl").write_bytes(b"".join(lines[::-1]))
    run = import_predictions(store, "longbench", source, model="m", bundle=bundle).run_id
    wanted = json.loads((published / "result.json").read_text())
    for task, numbers in scored(store, "longbench", run).items():
        assert next(iter(numbers.values())) == wanted[task]
        samples = list(BENCHMARKS["longbench"].samples(bundle, task))
        stored = store.query("SELECT sample_id FROM samples WHERE task = ? ORDER BY position", [task]).rows
        assert stored == [(sample.sample_id,) for sample in samples]
        outputs = dict(store.query("SELECT sample_id, output FROM generations WHERE task = ?", [task]).rows)
        rows = [json.loads(line) for line in (published / f"{task}.jsonl").read_bytes().splitlines()]
        # Two samples with the same answers and length are told apart by their order alone.
        different = sum(outputs[sample.sample_id] != row["pred"] for sample, row in zip(samples, rows, strict=True))
        assert different <= 2
    for file in export(store, "longbench", run, tmp_path / "out").files:
        assert file.read_bytes() == (source / file.name).read_bytes()


def test_what_a_row_leaves_out_is_the_bundles(
    shared: Callable, store: Store, tmp_path: Path, scored: Callable, write_lines: Callable
) -> None:
    """Rows without the length, which tells equal answers apart, are told by their places."""
    bundle = real_bundle(shared, tmp_path / "bundle")
    published = shared("data/predictions/longbench/llama3-8b-instruct")
    wanted = json.loads((published / "result.json").read_text())
    for task in ("multi_news", "multifieldqa_zh"):
        rows = [json.loads(line) for line in (published / f"{task}.jsonl").read_bytes().splitlines()]
        bare = [{"pred": row["pred"], "answers": row["answers"]} for row in rows]
        folder = write_lines(f"in/m-{task}.jsonl", bare).parent
    run = import_predictions(store, "longbench", folder, model="m", bundle=bundle).run_id
    for task, numbers in scored(store, "longbench", run).items():
        assert next(iter(numbers.values())) == wanted[task]
    # Not the whole file in the data's order: told by nothing.
    write_lines("in/m-multifieldqa_zh.jsonl", [*bare[1:], bare[0]])
    told = import_predictions(store, "longbench", folder, model="m", bundle=bundle)
    assert 0 < told.unmatched <= len(bare)


def test_classes_that_a_file_leaves_out_are_those_that_are_known(
    store: Store, write_lines: Callable, scored: Callable
) -> None:
    rows = [{"pred": "Date", "answers": ["Date"], "all_classes": ["Date", "Event"], "length": 3}]
    import_predictions(store, "longbench", write_lines("a/trec.jsonl", rows).parent, model="a")
    bare = write_lines("b/trec.jsonl", [{**row, "all_classes": None} for row in rows]).parent
    run = import_predictions(store, "longbench", bare, model="b").run_id
    assert scored(store, "longbench", run)["trec"]["classification"] == 100.0


def test_lveval_rows_without_the_question_are_told_by_their_places(write_lines: Callable) -> None:
    form = BENCHMARKS["lveval"].predictions
    known = Sample("lveval", "cmrc_mixup_16k", "0000", "", "?", ("a",), "zh", meta={"answer_keywords": "a"})
    row = {"pred": "a", "answers": ["a"], "gold_ans": "a"}
    for changes, fits in (
        ({}, True),
        ({"input": "!"}, False),
        ({"answers": ["b"]}, False),
        ({"gold_ans": None}, False),
    ):
        content = split_rows(Path("x"), json.dumps({**row, **changes}).encode())
        (prediction,) = form.read("cmrc_mixup_16k", content.lines)
        assert form.may_match_by_position(prediction, known) == fits


def test_leval_rows_find_the_bundles_samples(shared: Callable, store: Store, tmp_path: Path) -> None:
    bundle = real_bundle(shared, tmp_path / "bundle")
    (upstream,) = shared("data/upstream/OpenLMLab/LEval").iterdir()
    held = {task.name for task in BENCHMARKS["leval"].tasks(bundle)}
    source = tmp_path / "in"
    source.mkdir()
    for path in sorted((upstream / "Predictions").glob("*_eval/turbo-16k-0613/*.pred.jsonl")):
        if path.name.partition(".")[0] in held:
            (source / path.name).write_bytes(path.read_bytes())
    imported = import_predictions(store, "leval", source, model="m", bundle=bundle)
    # Its questions come with worked examples there, so they are matched by their places.
    assert all("gsm100" in note and "matched by position" in note for note in imported.notes)
    for task in imported.counts:
        known = {sample.sample_id: sample for sample in BENCHMARKS["leval"].samples(bundle, task)}
        rows = store.query("SELECT sample_id, source_row FROM generations WHERE task = ?", [task]).rows
        assert rows and all(known[name].references == (json.loads(row)["gt"],) for name, row in rows)
    for file in export(store, "leval", imported.run_id, tmp_path / "out").files:
        assert file.read_bytes() == (source / file.name).read_bytes()


def test_rows_that_answer_nothing_in_the_bundle_are_named_and_taken_as_they_stand(
    shared: Callable, store: Store, tmp_path: Path, scored: Callable
) -> None:
    bundle = real_bundle(shared, tmp_path / "bundle")
    file = shared("data/predictions/longbench_v2/oneshot.jsonl")
    held = {sample.sample_id for sample in BENCHMARKS["longbench_v2"].samples(bundle, "mcq")}
    rows = [json.loads(line) for line in file.read_bytes().splitlines()]
    foreign = sum(row["_id"] not in held for row in rows if "judge" in row)
    imported = import_predictions(store, "longbench_v2", file, model="m", bundle=bundle)
    named = [
        note
        for note in imported.notes
        if re.search(r"oneshot.jsonl, line \d+: .*no question of the bundle matches", note)
    ]
    assert 0 < imported.unmatched == len(named) == foreign < len(rows)
    plain = import_predictions(store, "longbench_v2", file, model="m", run_id="plain")
    assert scored(store, "longbench_v2", imported.run_id) == scored(store, "longbench_v2", plain.run_id)
    (again,) = export(store, "longbench_v2", imported.run_id, tmp_path / "out").files
    assert again.read_bytes() == file.read_bytes()


V1_ROW = {"pred": "Paris", "all_classes": None, "length": 7}


def v2_row(number: int) -> dict[str, str]:
    """One question of LongBench v2."""
    texts = {name: f"{name} {number}" for name in ("_id", "question", "context", *(f"choice_{a}" for a in "ABCD"))}
    kind = {"domain": "Single-Document QA", "sub_domain": "Legal", "difficulty": "easy", "length": "short"}
    return texts | kind | {"answer": "A"}


def _v1_bundle(root: Path, **answers: list[str]) -> Bundle:
    """LongBench tasks of a few samples, each with an answer."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as packed:
        for task, several in answers.items():
            rows = (
                {"input": "?", "context": f"{task} {answer}", "answers": [answer], "length": 7, "dataset": task,
                 "language": "en", "all_classes": None, "_id": f"{task}-{answer}"}
                for answer in several
            )  # fmt: skip
            packed.writestr(f"data/{task}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return bundle_of(root, {"THUDM/LongBench:data.zip": memory.getvalue()})


def test_a_folder_of_more_than_the_bundle_has(
    store: Store, tmp_path: Path, write_lines: Callable, scored: Callable
) -> None:
    bundle = _v1_bundle(tmp_path / "bundle", qasper=["Paris", "Rome"], hotpotqa=["Oslo"])
    twice = [{**V1_ROW, "answers": [answer]} for answer in ("Rome", "Bern", "Bern", "Paris")]
    write_lines("in/qasper.jsonl", twice)
    write_lines("in/lcc.jsonl", [{**V1_ROW, "answers": ["Paris"]}] * 3)
    folder = write_lines("in/claude-100k.pred.jsonl", [{"query": "?"}]).parent
    imported = import_predictions(store, "longbench", folder, model="m", bundle=bundle)
    assert imported.counts == {"qasper": 4, "lcc": 3} and imported.unmatched == 5
    assert imported.ignored == ("claude-100k.pred.jsonl",)
    told = [(re.sub(r".*/in/", "", note).split(":")[0], note.partition(": ")[2][:30]) for note in imported.notes]
    assert told == [
        ("qasper.jsonl, line 3", "1 row answers a question again"),
        ("lcc.jsonl, line 2", "2 rows answer a question again"),
        ("qasper.jsonl, line 2", "no question of the bundle matc"),
        ("qasper.jsonl, line 3", "no question of the bundle matc"),
        ("lcc.jsonl, line 1", "its task is not in the bundle "),
    ]
    names = store.query("SELECT sample_id FROM samples WHERE task = 'qasper' ORDER BY position").rows
    assert [name[:10] for (name,) in names] == ["qasper-Par", "qasper-Rom", "unmatched-"]
    numbers = scored(store, "longbench", imported.run_id)
    assert numbers["qasper"]["f1"] == 25.0 and next(iter(numbers["lcc"].values())) == 100.0
    for file in export(store, "longbench", imported.run_id, tmp_path / "out").files:
        assert file.read_bytes() == (folder / file.name).read_bytes()
    write_lines("other/qasper.jsonl", twice[1:2])
    second = write_lines("other/hotpotqa.jsonl", [{**V1_ROW, "answers": ["Oslo"]}]).parent
    other = import_predictions(store, "longbench", second, model="n", bundle=bundle)
    assert other.unmatched == 1
    shared_names = store.query(
        "SELECT count(DISTINCT sample_id) FROM generations a JOIN generations b USING (task, sample_id) "
        "WHERE a.run_id < b.run_id"
    ).rows
    assert shared_names == [(1,)], "equal rows of two files are answers to one question"


def test_a_second_answer_to_a_question_is_told_from_one_to_none(
    store: Store, tmp_path: Path, write_lines: Callable
) -> None:
    """LV-Eval's script writes its file anew, so that no row is a second answer of it."""
    task, row = "cmrc_mixup_16k", {"input": "?", "answers": ["Paris"], "answer_keywords": "Paris", "length": 7}
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as packed:
        packed.writestr(f"{task}.jsonl", json.dumps({**row, "context": "Paris."}) + "\n")
    bundle = bundle_of(tmp_path / "bundle", {"Infinigence/LVEval:cmrc_mixup.zip": memory.getvalue()})
    said = {"pred": "Paris", "gold_ans": "Paris", "all_classes": None, **row}
    folder = write_lines(f"in/{task}.jsonl", [said] * 2).parent
    (note,) = import_predictions(store, "lveval", folder, model="m", bundle=bundle).notes
    assert note.endswith(
        "line 2: an earlier row already answers the question that it matches; kept, and compared only with equal rows "
        "of other imports with --bundle."
    )


def test_a_file_without_one_row_of_the_bundle_is_refused(store: Store, tmp_path: Path, write_lines: Callable) -> None:
    bundle = _v1_bundle(tmp_path / "bundle", qasper=["Paris"])
    for task, kind, words in (
        (
            "qasper",
            UsageError,
            "line 1: no question of the bundle matches it; no other row matches a sample of the bundle at",
        ),
        ("lcc", BundleError, "does not contain THUDM/LongBench, lcc.*Without --bundle"),
    ):
        folder = write_lines(f"{task}/{task}.jsonl", [{**V1_ROW, "answers": ["Bern"]}] * 2).parent
        with pytest.raises(kind, match=words):
            import_predictions(store, "longbench", folder, model="m", bundle=bundle)
    assert store.query("SELECT count(*) FROM runs").rows == [(0,)]


SAMPLES = {
    "longbench": [
        Sample("longbench", "qasper", "a", "c", "?", ("Paris", "Rome"), length=10, meta={"category": "x"}),
        Sample("longbench", "trec", "b", "c", "?", ("y",), length=10, meta={"all_classes": ["x", "y", "y z"]}),
        Sample("longbench", "qasper_e", "c", "c", "?", ("Paris",), length=5000),
    ],
    "longbench_v2": [
        Sample(
            "longbench_v2", "mcq", name, "c", "?", ("A",), length=9, length_unit="characters",
            meta={"difficulty": "easy", "length": "short", "domain": "d", "sub_domain": "s",
                  "choices": {"A": "1", "B": "2", "C": "3", "D": "4"}},
        )
        for name in "ab"
    ],
    "longbench_pro": [
        Sample(
            "longbench_pro", task, "p", "c", "?", ("x",), length=8192, length_unit="tokens",
            meta={"secondary_task": title, "primary_task": "T3. Evidence-Grounded QA", "token_length": "8k",
                  "contextual_requirement": "Full", "difficulty": "Easy", "question_thinking": "!", "row": 0},
        )
        for task, title in (("t3.2", "T3.2 Single-Hop Fact QA"), ("t3.1", "T3.1 Multi-Doc Integration QA"))
    ],
    "lveval": [
        Sample("lveval", "cmrc_mixup_16k", "0000", "c", "?", ("巴黎",), "zh", 9, "characters",
               {"answer_keywords": "巴黎"}),
        Sample("lveval", "factrecall_en_32k", "0000", "c", "?", ("Paris",)),
    ],
    "babilong": [
        Sample("babilong", task, "0000", "c", "? ", (target,), length=length, length_unit="tokens")
        for task, target, length in (("qa1_0k", "garden", 0), ("qa6_4k", "no", 4000))
    ],
    "infinitebench": [
        Sample("infinitebench", task, f"0000-{digest}", "c", "?", references)
        for task, digest, references in (
            ("longbook_qa_eng", "0c5bd1a5", ("Paris",)), ("longbook_choice_eng", "7b7c3d0a", ("y", "A")),
        )
    ],
    "helmet": [
        Sample("helmet", "kilt_nq_8k", "q0-0.2", "c", "?", ("Paris",), meta={"question_id": "q0"}),
        Sample("helmet", "msmarco_rerank_8k", "7-0.0", "c", "?", ("3 > 2",),
               meta={"question_id": "7", "labels": {"3": 2}}),
        Sample("helmet", "alce_asqa_16k", "0001", "c", "?", ("Rome", "y"), meta={"golds": [["Rome"], ["y"]]}),
        Sample("helmet", "icl_nlu_8k", "0002", "c", "?", ("12",)),
    ],
    "leval": [
        Sample("leval", "narrative_qa", "000-00", "c", "?", ("Paris",), meta={"evaluation": "f1"}),
        Sample("leval", "topic_retrieval_longchat", "000-01", "c", "2nd?", ("Paris",),
               meta={"evaluation": "exam", "topic": 1}),
        Sample("leval", "topic_retrieval_longchat", "001-00", "c", "1st?", ("Rome",),
               meta={"evaluation": "exam", "topic": 0}),
    ],
}  # fmt: skip
OUTPUTS = ("Paris, 巴黎\n[Answer]\nx", "The correct answer is (A)", "y\nRome")


@pytest.mark.parametrize("name", SAMPLES)
def test_a_run_of_lbx_goes_out_and_comes_back_with_its_scores(
    name: str, store: Store, tmp_path: Path, scored: Callable
) -> None:
    family = BENCHMARKS[name]
    store.begin_run(RunRow("r", "org/m.x", "scripted", "1", {}, "", {}, {}, "0"))
    for place, sample in enumerate(SAMPLES[name]):
        for iteration in range(family.protocol.iterations):
            row = GenerationRow(
                "r", *sample.key._replace(iteration=iteration), output=OUTPUTS[(place + iteration) % 3], reasoning="hm"
            )
            store.write(samples=[SampleRow(sample, place)], generations=[row])
        failed = SampleRow(Sample(name, sample.task, "failed", "c", "?", ("z",)), 99)
        store.write(samples=[failed], generations=[GenerationRow("r", name, sample.task, "failed", 0, error="no")])
    exported = export(store, name, "r", tmp_path / "out")
    assert exported.left_out == {"failed": len({sample.task for sample in SAMPLES[name]})}
    store.begin_run(RunRow("f", "m", "scripted", "1", {}, "", {}, {}, "0"))
    store.write(generations=[GenerationRow("f", name, SAMPLES[name][0].task, "failed", 0, error="no")])
    with pytest.raises(UsageError, match=r"no answer .* that can be exported: all failed.*lbx report .* failures"):
        export(store, name, "f", tmp_path / "failed")
    with Store(tmp_path / "again.duckdb") as again:
        numbers = {}
        for place in sorted({path if name.startswith("longbench_") else path.parent for path in exported.files}):
            run = import_predictions(again, name, place, model="m", run_id=str(place)).run_id
            numbers |= scored(again, name, run)
            reasonings = again.query("SELECT DISTINCT reasoning FROM generations WHERE error IS NULL").rows
            assert reasonings == [("hm",)]
        assert numbers == scored(store, name, "r")


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({}, "m"),
        ({"cot": True}, "m_cot"),
        ({"no_context": True}, "m_no_context"),
        ({"rag": 4}, "m_rag_4"),
        ({"rag": 4, "cot": True}, "m_rag_4"),
    ],
)
def test_v2_files_are_named_after_the_way_to_ask(settings: dict[str, object], label: str) -> None:
    assert BENCHMARKS["longbench_v2"].predictions.label("m", settings) == label
    assert BENCHMARKS["longbench"].predictions.label("m", settings) == "m"


def test_an_unknown_document_has_no_hash_until_somebody_knows_it(
    store: Store, tmp_path: Path, write_lines: Callable
) -> None:
    """Nothing makes one document of all questions of an import; a later one with a bundle says which is whose."""
    rows = [v2_row(number) for number in range(4)]
    said = {"response": "(A)", "pred": "A", "judge": True}
    file = write_lines("m.jsonl", [{**said, **{key: row[key] for key in row if key != "context"}} for row in rows])
    run = import_predictions(store, "longbench_v2", file, model="m").run_id
    documents = "SELECT context_sha256 FROM samples ORDER BY sample_id"
    assert store.query(documents).rows == [(None,)] * 4
    clusters = "SELECT DISTINCT clusters, cluster_by FROM task_results WHERE run_id = ? AND headline"
    rescore(store, Rescoring(BENCHMARKS))
    assert store.query(clusters, [run]).rows == [(4, "sample")]
    bundle = bundle_of(tmp_path / "bundle", {"THUDM/LongBench-v2:data.json": json.dumps(rows).encode()})
    import_predictions(store, "longbench_v2", file, model="n", bundle=bundle)
    assert store.query(documents).rows == [(sha256_text(row["context"]),) for row in rows]
    rescore(store, Rescoring(BENCHMARKS))
    assert store.query(clusters, [run]).rows == [(4, "document")]
