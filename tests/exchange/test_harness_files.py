"""Answers from other harnesses: the published ones get the official scores, and each task has a verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbx.base.errors import BundleError, UsageError
from lbx.exchange.exporting import export
from lbx.report.query import ReportQuery
from lbx.report.reports import read_report
from lbx.results import Store
from lbx.results.whole.run_changes import score_with
from tests import profiles
from tests.exchange.harness_parts import (
    TIME,
    lm_eval_results,
    lm_eval_row,
    opencompass_entries,
    write_entries,
    write_lm_eval,
    write_opencompass,
)
from tests.exchange.import_parts import bundle_of, import_predictions, real_bundle

Row = dict[str, Any]
ROW: Row = {"pred": "Paris", "answers": ["Paris"], "all_classes": None, "length": 300}
CLASSES: Row = {**ROW, "all_classes": ["Paris", "Rome"]}


def imported(store: Store, form: str, path: Path, **how: Any) -> dict[str, Row]:
    """The rows of the report ``harness`` by task, of a path that was imported and scored."""
    run = import_predictions(store, form, path, model="m", **how).run_id
    score_with(store, None, run_ids=[run], processes=1)
    return {row["task"]: row for row in read_report(store, "harness", ReportQuery(runs=[run])).dicts()}


def official(store: Store) -> dict[str, float | None]:
    return dict(store.query("SELECT task, official FROM task_results WHERE headline").rows)


def published(shared: Callable, model: str) -> tuple[dict[str, list[Row]], dict[str, float]]:
    folder = shared("data/predictions/longbench") / model
    rows = {
        file.stem: [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        for file in sorted(folder.glob("*.jsonl"))
    }
    return rows, json.loads((folder / "result.json").read_text())


@pytest.mark.parametrize(
    ("form", "model"), profiles.crossed(["lm_eval", "opencompass"], ["llama2-7b-chat-4k", "llama3-8b-instruct"])
)
def test_published_answers_get_their_official_scores(
    form: str, model: str, shared: Callable, store: Store, tmp_path: Path
) -> None:
    tasks, scores = published(shared, model)
    path = write_lm_eval(tmp_path, tasks) if form == "lm_eval" else write_opencompass(tmp_path, tasks, scores, parts=3)
    rows = imported(store, form, path)
    assert {task: round(100 * row["score"], 2) for task, row in rows.items()} == scores
    if form == "opencompass":
        assert max(abs(row["difference"]) for row in rows.values()) < 1e-4
    unofficial = {task for task, row in rows.items() if row["verdict"] != "comparable"}
    assert {task for task, number in official(store).items() if number is None} == unofficial
    other = (
        {"samsum", "triviaqa", "lcc", "repobench-p", "passage_count", "passage_retrieval_en"}
        if form == "lm_eval"
        else {"qasper", "narrativeqa", "multi_news"}
    )
    assert unofficial == other
    averages = store.query("SELECT official FROM group_results WHERE \"grouping\" = 'overall'").rows
    assert averages == [(None,)]


LM_EVAL: dict[str, tuple[str, Row, str, str]] = {
    "as official": ("hotpotqa", {}, "comparable", "whether the model needs a chat template"),
    "prompts that fit": ("trec", {"max_length": 100}, "comparable", ""),
    "prompts that may be cut": ("trec", {"max_length": 50}, "comparable", "whether prompts were cut"),
    "another prompt": ("samsum", {}, "differs", "one line end instead of two"),
    "another prompt of E": ("samsum_e", {}, "differs", "one line end instead of two"),
    "a template": ("hotpotqa", {"chat_template": "{{x}}"}, "comparable", ""),
    "a template for few shots": ("trec", {"chat_template": "{{x}}"}, "differs", "a chat template"),
    "a system message": ("hotpotqa", {"system_instruction": "Be brief"}, "differs", "a system instruction"),
    "other settings": ("hotpotqa", {"config": {"gen_kwargs": {"temperature": 1}}}, "differs", "gen_kwargs"),
    "examples": ("hotpotqa", {"n-shot": {"longbench_hotpotqa": 2}}, "differs", "further examples"),
    "sampling": (
        "hotpotqa", {"configs": {"longbench_hotpotqa": {"generation_kwargs": {"do_sample": True}}}}, "differs",
        "sampled",
    ),
    "a limit": (
        "hotpotqa", {"n-samples": {"longbench_hotpotqa": {"original": 200, "effective": 2}}}, "differs",
        "only 2 of 200 samples",
    ),
    "a part of the data": (
        "hotpotqa", {"n-samples": {"longbench_hotpotqa": {"original": 2, "effective": 2}}}, "differs",
        "only 2 of 200 samples",
    ),
    "an old version": ("hotpotqa", {"versions": {"longbench_hotpotqa": 3}}, "not comparable", "task version 3"),
    "the first reference": ("hotpotqa", {"versions": {"longbench_hotpotqa": 2.0}}, "not comparable", "only the first"),
    "a new version": ("hotpotqa", {"versions": {"longbench_hotpotqa": 7}}, "unknown", "newer than this lbx"),
    "no version": ("hotpotqa", {"versions": {"longbench_hotpotqa": "5"}}, "unknown", "no results file has"),
}  # fmt: skip


@pytest.mark.parametrize("case", LM_EVAL)
def test_verdicts_on_lm_eval(case: str, store: Store, tmp_path: Path) -> None:
    task, changes, verdict, why = LM_EVAL[case]
    row = CLASSES if task == "trec" else ROW
    count = 2 if "n-samples" in changes else 200
    path = write_lm_eval(tmp_path, {task: [row] * count}, lm_eval_results({task: count}) | changes)
    (found,) = imported(store, "lm_eval", path).values()
    assert (found["verdict"], found["task"], found["harness_version"]) == (verdict, task, "0.4.13")
    told = [found["why"], found["unknown"]]
    assert why in " ".join(filter(None, told)) and (why != "" or told == [None, None])
    assert (found["harness_score"], found["n"]) == (0.25, count)
    assert (official(store)[task] is not None) == (verdict == "comparable")


OPENCOMPASS: dict[str, tuple[str, object, int, str, str]] = {
    "as official": ("hotpotqa", "p", 200, "comparable", "whether prompts were cut"),
    "a conversation": ("hotpotqa", [{"role": "HUMAN", "prompt": "p"}], 200, "comparable", ""),
    "a conversation of few shots": ("trec", [{"role": "HUMAN", "prompt": "p"}], 200, "differs", "a chat template"),
    "another prompt": ("narrativeqa", "p", 200, "differs", "as concisely"),
    "another task": ("qasper", "p", 200, "not comparable", "32 new tokens"),
    "a part": ("hotpotqa", "p", 199, "differs", "199 samples, and LongBench has 200"),
}


@pytest.mark.parametrize("case", OPENCOMPASS)
def test_verdicts_on_opencompass(case: str, store: Store, tmp_path: Path) -> None:
    task, prompt, count, verdict, why = OPENCOMPASS[case]
    row = CLASSES if task == "trec" else ROW
    path = write_entries(tmp_path / f"LongBench_{task}.json", opencompass_entries(task, [row] * count, prompt))
    (found,) = imported(store, "opencompass", path).values()
    assert (found["verdict"], found["harness_score"], found["n"]) == (verdict, None, count)
    assert why in (found["why"] or found["unknown"])
    assert (official(store)[task] is not None) == (verdict == "comparable")


def test_repetitions_are_iterations_and_empty_first_lines_are_told(store: Store, tmp_path: Path) -> None:
    folder = write_lm_eval(tmp_path, {"trec": [CLASSES, {**CLASSES, "pred": ""}, {**CLASSES, "pred": "Rome\nParis"}]})
    twice = lm_eval_row("trec", 0, CLASSES, resps=[["Paris", "Rome", "Oslo"]])
    file = folder / f"samples_longbench_trec_{TIME}.jsonl"
    file.write_text("\n".join([json.dumps(twice), *file.read_text().splitlines()[1:]]))
    (found,) = imported(store, "lm_eval", folder).values()
    assert found["verdict"] == "differs" and "1 empty answer" in found["why"]
    assert "counts the whole of 1 answer with several lines" in found["why"]
    answers = store.query("SELECT sample_id, iteration, output FROM generations ORDER BY ALL").rows
    assert answers == [("0000", 0, "Paris"), ("0000", 1, "Rome"), ("0000", 2, "Oslo"), ("0001", 0, ""),
                       ("0002", 0, "Rome\nParis")]  # fmt: skip


def test_neither_documents_nor_prompts_are_stored(store: Store, tmp_path: Path) -> None:
    imported(store, "lm_eval", write_lm_eval(tmp_path / "a", {"qasper": [ROW]}))
    imported(store, "opencompass", write_opencompass(tmp_path / "b", {"hotpotqa": [ROW]}))
    tables = [row[0] for row in store.query("SELECT table_name FROM duckdb_tables()").rows]
    texts = " ".join(str(store.query(f"FROM {table}").rows) for table in tables)
    assert "Paris" in texts
    for text in ("document 0", "A prompt", "secret"):
        assert text not in texts


def test_the_official_file_is_written_anew(store: Store, tmp_path: Path) -> None:
    path = write_lm_eval(tmp_path, {"trec": [CLASSES, {**CLASSES, "pred": "Rome"}]})
    run = import_predictions(store, "lm_eval", path, model="m").run_id
    score_with(store, None, run_ids=[run], processes=1)
    (file,) = export(store, "longbench", run, tmp_path / "out").files
    assert file == tmp_path / "out/pred/m/trec.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows == [CLASSES, {**CLASSES, "pred": "Rome"}]
    (file,) = export(store, "longbench", run, tmp_path / "numbers", results=True).files
    assert json.loads(file.read_text()) == {"trec": 50.0}


def test_end_tokens_are_removed_as_in_opencompass(store: Store, tmp_path: Path) -> None:
    texts = ["Paris<|im_end|>", "Paris</s>\n<|endoftext|>\n", "Paris</s> it is", "<|im_end|>"]
    path = write_opencompass(tmp_path, {"hotpotqa": [{**ROW, "pred": text} for text in texts]})
    done = import_predictions(store, "opencompass", path, model="m")
    outputs = store.query("SELECT output FROM generations ORDER BY sample_id").rows
    assert [text for (text,) in outputs] == ["Paris", "Paris", "Paris</s> it is", ""]
    assert "End tokens were removed from 3 answers" in done.notes[0]


def test_a_list_of_sequences_is_iterations(store: Store, tmp_path: Path) -> None:
    entries = opencompass_entries("hotpotqa", [{**ROW, "pred": ["Paris", "Rome"]}, ROW])
    imported(store, "opencompass", write_entries(tmp_path / "LongBench_hotpotqa.json", entries))
    rows = store.query("SELECT sample_id, iteration, output FROM generations ORDER BY ALL").rows
    assert rows == [("0000", 0, "Paris"), ("0000", 1, "Rome"), ("0001", 0, "Paris")]


@pytest.fixture
def rows_of_bundle(shared: Callable) -> Callable[[str], list[Row]]:
    def read(task: str) -> list[Row]:
        import zipfile

        with zipfile.ZipFile(shared("data/hub/datasets") / "THUDM/LongBench/data.zip") as archive:
            rows = [json.loads(line) for line in archive.read(f"data/{task}.jsonl").splitlines()]
        return [{**row, "pred": row["answers"][0]} for row in rows]

    return read


def test_lm_eval_matches_a_bundle_by_id_or_content(
    store: Store, tmp_path: Path, shared: Callable, rows_of_bundle: Callable
) -> None:
    bundle, rows = real_bundle(shared, tmp_path / "bundle"), rows_of_bundle("multifieldqa_zh")
    ids = [row["_id"] for row in rows]
    changed = {**rows[3], "answers": ["something else"]}
    mixed = [rows[1], rows[0], {key: value for key, value in rows[2].items() if key != "_id"}, changed]
    path = write_lm_eval(tmp_path, {"multifieldqa_zh": mixed})
    done = import_predictions(store, "lm_eval", path, model="m", bundle=bundle)
    assert done.unmatched == 1 and "differs from it in references" in done.notes[0]
    samples = [row[0] for row in store.query("SELECT sample_id FROM generations ORDER BY created_at").rows]
    assert samples[:3] == [ids[1], ids[0], ids[2]] and samples[3].startswith("unmatched-")


def test_opencompass_matches_a_bundle_by_position(
    store: Store, tmp_path: Path, shared: Callable, rows_of_bundle: Callable
) -> None:
    bundle, rows = real_bundle(shared, tmp_path / "bundle"), rows_of_bundle("multifieldqa_zh")
    rows[5]["answers"] = ["another"]
    path = write_opencompass(tmp_path, {"multifieldqa_zh": rows[:22]}, parts=11)
    done = import_predictions(store, "opencompass", path, model="m", bundle=bundle)
    samples = [row[0] for row in store.query("SELECT sample_id FROM generations ORDER BY created_at").rows]
    assert samples[:5] + samples[6:] == [row["_id"] for n, row in enumerate(rows[:22]) if n != 5]
    assert done.unmatched == 1 and "differs from it in references" in done.notes[0]


def test_a_comparison_names_the_tasks_that_were_asked_in_another_way(store: Store, tmp_path: Path) -> None:
    tasks = dict.fromkeys(("samsum", "hotpotqa"), [ROW, {**ROW, "pred": "no"}] * 100)
    imported(store, "lm_eval", write_lm_eval(tmp_path / "a", tasks), run_id="one")
    again = {task: [{**row, "pred": "Paris"} for row in rows] for task, rows in tasks.items()}
    imported(store, "lm_eval", write_lm_eval(tmp_path / "b", again), run_id="same")
    imported(store, "opencompass", write_opencompass(tmp_path / "c", again), run_id="other")
    old = lm_eval_results({"samsum": 200, "hotpotqa": 200}, version=3)
    imported(store, "lm_eval", write_lm_eval(tmp_path / "d", tasks, old), run_id="version 3")
    rows = read_report(store, "comparison", ReportQuery()).dicts()
    cautions = {(row["run_a"], row["run_b"]): row["caution"] for row in rows}
    assert "lm_eval" not in cautions["one", "same"]
    told = "one was asked by lm_eval 0.4.13, and not like officially in samsum"
    assert told in cautions["one", "other"] and told in cautions["one", "version 3"]
    assert "version 3 was asked by lm_eval 0.4.13, and not like officially in hotpotqa" in cautions["one", "version 3"]
    board = {row["run_id"]: row for row in read_report(store, "board_longbench").dicts()}
    assert "asked by lm_eval 0.4.13" in str(board["one"])


def refusal(store: Store, form: str, path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        import_predictions(store, form, path, model="m")
    assert not store.query("FROM runs").rows
    return f"{caught.value.cause} {caught.value.fix} {caught.value.command}"


LATER = "2026-11-27T09-00-00.000001"


def test_lm_eval_refuses_what_has_two_readings(store: Store, tmp_path: Path) -> None:
    folder = write_lm_eval(tmp_path, {"qasper": [ROW]})
    write_lm_eval(tmp_path, {"trec": [CLASSES]}, time=LATER)
    for path in (folder, tmp_path):
        text = refusal(store, "lm_eval", path)
        assert "contains 2 evaluations" in text and str(folder / f"results_{LATER}.json") in text
    assert imported(store, "lm_eval", folder / f"results_{LATER}.json").keys() == {"trec"}
    assert imported(store, "lm_eval", folder / f"samples_longbench_qasper_{TIME}.jsonl").keys() == {"qasper"}
    other = Store(tmp_path / "other.duckdb")
    folder.rename(tmp_path / "second")
    write_lm_eval(tmp_path, {"qasper": [ROW]})
    assert "output of several models" in refusal(other, "lm_eval", tmp_path)
    other.close()


def _lm_eval_with(tmp_path: Path, name: str, *rows: Row, **results: Any) -> Path:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / f"samples_{name}_{TIME}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if results:
        (folder / f"results_{TIME}.json").write_text(json.dumps(results))
    return folder


GOOD = lm_eval_row("qasper", 0, ROW)
BAD_LM_EVAL: dict[str, tuple[str, list[Row], Row, str]] = {
    "v2": ("longbench2_detective", [GOOD], {}, "by the likelihood of each choice"),
    "another task": ("gsm8k", [GOOD], {}, "contains no LongBench task, but gsm8k"),
    "lbx's own": ("lbx-longbench-qasper", [GOOD], {}, "was exported by lbx"),
    "a wrong count": ("longbench_qasper", [GOOD], lm_eval_results({"qasper": 2}), "but its results file counts 2"),
    "a question twice": ("longbench_qasper", [GOOD, GOOD], {}, "2 rows have the doc_id 0"),
    "no row": ("longbench_qasper", [], {}, "the file is empty"),
    "no document": ("longbench_qasper", [{**GOOD, "doc": None}], {}, "'doc' must be an object, not null"),
    "no references": ("longbench_qasper", [{**GOOD, "doc": {}}], {}, "'doc' has no 'answers'"),
    "a negative place": ("longbench_qasper", [{**GOOD, "doc_id": -1}], {}, "'doc_id' must be a whole number"),
    "a huge place": ("longbench_qasper", [{**GOOD, "doc_id": 10**30}], {}, "'doc_id' must be a whole number"),
    "no answer": ("longbench_qasper", [{**GOOD, "filtered_resps": []}], {}, "must be a list of one answer"),
    "a list in a list": ("longbench_qasper", [{**GOOD, "filtered_resps": [["a"]]}], {}, "must be a list of one"),
    "no repetition": ("longbench_qasper", [{**GOOD, "resps": [[]]}], {}, "'resps' must be a list with one list"),
    "a majority": (
        "longbench_qasper", [{**GOOD, "resps": [["a", "b"]], "filtered_resps": ["b"]}], {}, "combined several answers",
    ),
    "E without length": (
        "longbench_qasper_e", [{**GOOD, "doc": {"answers": ["a"]}}], {}, "the score of LongBench-E depends on it",
    ),
    "results that are no object": ("longbench_qasper", [GOOD], {"results": 1, "x": [float("nan")]}, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_LM_EVAL)
def test_lm_eval_refuses(case: str, store: Store, tmp_path: Path) -> None:
    name, rows, results, why = BAD_LM_EVAL[case]
    path = _lm_eval_with(tmp_path, name, *rows, **results)
    if why:
        assert why in refusal(store, "lm_eval", path)
    else:
        assert imported(store, "lm_eval", path)["qasper"]["verdict"] == "unknown"


def test_lm_eval_without_samples_is_told_what_was_left_out(store: Store, tmp_path: Path) -> None:
    (tmp_path / f"results_{TIME}.json").write_text(json.dumps(lm_eval_results({"qasper": 2})))
    assert "without --log_samples" in refusal(store, "lm_eval", tmp_path)
    (tmp_path / "output.jsonl").write_text(json.dumps(GOOD))
    assert "not named like a file of lm_eval" in refusal(store, "lm_eval", tmp_path / "output.jsonl")


def test_opencompass_refuses_what_has_two_readings(store: Store, tmp_path: Path) -> None:
    work = write_opencompass(tmp_path, {"hotpotqa": [ROW] * 4}, parts=2)
    predictions = work / "predictions/model"
    assert "is one of 2 parts" in refusal(store, "opencompass", predictions / "LongBench_hotpotqa_0.json")
    whole = write_entries(predictions / "LongBench_hotpotqa.json", opencompass_entries("hotpotqa", [ROW]))
    assert "different evaluations" in refusal(store, "opencompass", work)
    whole.unlink()
    (predictions / "LongBench_hotpotqa_0.json").rename(predictions / "LongBench_hotpotqa_2.json")
    assert "lacks part 0 of hotpotqa" in refusal(store, "opencompass", work)
    (predictions / "LongBench_hotpotqa_2.json").rename(predictions / "LongBench_hotpotqa_0.json")
    (predictions / "tmp_LongBench_trec.jsonl").write_text('{"idx": 0}')
    assert "is of an unfinished evaluation" in refusal(store, "opencompass", work)
    (predictions / "tmp_LongBench_trec.jsonl").unlink()
    write_entries(work / "predictions/other/LongBench_trec.json", opencompass_entries("trec", [CLASSES]))
    assert "predictions of several models" in refusal(store, "opencompass", work)
    write_entries(
        tmp_path / "20260820_101112/predictions/m/LongBench_trec.json", opencompass_entries("trec", [CLASSES])
    )
    assert "predictions of several evaluations" in refusal(store, "opencompass", tmp_path)


BAD_OPENCOMPASS: dict[str, tuple[str, str, str]] = {
    "v2": ("LongBenchv2.json", '{"0": {}}', "has a prompt of its own"),
    "an unknown task": ("LongBench_gsm8k.json", "{}", "LongBench_gsm8k.json is not such a file"),
    "a key twice": ("LongBench_qasper.json", '{"0": {"prediction": "a"}, "0": {"prediction": "b"}}', "occurs twice"),
    "a missing key": ("LongBench_qasper.json", '{"0": {"prediction": "a"}, "2": {}}', "1 is missing"),
    "no answers": ("LongBench_qasper.json", "{}", "contains no answers"),
    "a list": ("LongBench_qasper.json", "[]", "contains a list instead of an object"),
    "no object": ("LongBench_qasper.json", '{"0": 3}', "must be an object, not the number 3"),
    "no prediction": ("LongBench_qasper.json", '{"0": {"gold": []}}', "the key 'prediction' is missing"),
    "an object": ("LongBench_qasper.json", '{"0": {"prediction": {"a": 1}}}', "must be text or a list of texts"),
    "no sequence": ("LongBench_qasper.json", '{"0": {"prediction": []}}', "must be text or a list of texts"),
}


@pytest.mark.parametrize("case", BAD_OPENCOMPASS)
def test_opencompass_refuses(case: str, store: Store, tmp_path: Path) -> None:
    name, text, why = BAD_OPENCOMPASS[case]
    path = tmp_path / "p" / name
    path.parent.mkdir()
    path.write_text(text)
    assert why in refusal(store, "opencompass", path)
    assert why in refusal(store, "opencompass", path.parent) or case in ("an unknown task",)


def test_files_of_other_programs_are_refused(store: Store, tmp_path: Path, shared: Callable) -> None:
    lm_eval = write_lm_eval(tmp_path / "a", {"qasper": [ROW]})
    opencompass = write_opencompass(tmp_path / "b", {"hotpotqa": [ROW]})
    for path, form in {
        lm_eval: "lm_eval",
        tmp_path / "a": "lm_eval",
        next(lm_eval.glob("samples_*")): "lm_eval",
        next(lm_eval.glob("results_*")): "lm_eval",
        tmp_path / "b": "opencompass",
        opencompass: "opencompass",
        opencompass / "predictions/model": "opencompass",
        opencompass / "predictions/model/LongBench_hotpotqa.json": "opencompass",
    }.items():
        for other in {"longbench", "longbench_v2", "lm_eval", "opencompass"} - {form}:
            assert refusal(store, other, path)
    examples = shared("data/exchange_examples")
    record = next(examples.glob("every_eval_ever/**/*.json"))
    logs = (*examples.glob("inspect/*"), examples / "inspect")
    for path in (*logs, record, record.parent, next(record.parent.glob("*.jsonl"))):
        assert refusal(store, "longbench", path)
    for name, why in {
        "inspect": "There is no prediction format", "eee": "There is no prediction format",
        "openncompass": "Did you mean opencompass?", "foo": "lm_eval, opencompass",
    }.items():  # fmt: skip
        assert why in refusal(store, name, tmp_path / "missing")


def test_a_bundle_without_the_task_keeps_its_rows(store: Store, tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path / "bundle", {})
    path = write_opencompass(tmp_path, {"hotpotqa": [ROW]})
    with pytest.raises(BundleError):
        import_predictions(store, "opencompass", path, model="m", bundle=bundle)
