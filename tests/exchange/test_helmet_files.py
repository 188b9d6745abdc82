"""Result files of HELMET's eval.py: the golden outputs in and out, and damaged files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lbx.base.errors import StoreError, UsageError
from lbx.base.records import Sample
from lbx.benchmarks.base.prediction_lines import split_document_rows
from lbx.benchmarks.base.predictions import ScoredRun
from lbx.benchmarks.helmet.predictions import write_averages
from lbx.benchmarks.helmet.tasks import TASKS, official_name
from lbx.benchmarks.registry import BENCHMARKS
from lbx.exchange.exporting import export
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from lbx.results.scoring.scores import Rescoring, rescore, score_rows
from tests.exchange.import_parts import import_predictions
from tests.golden.helmet_draws import FOLDER, SOURCE, read_lines

NAME = "json_kv_v1_test_k105_dep6_in8192_size100_shots2_sampFalsemax100min0t0.0p1.0_chatFalse_42.json"
ROW = {"question": "k", "answer": "v", "depth": 0.2, "output": "Corresponding value: v"}


def document(rows: object, **more: object) -> str:
    """Text of a result file, as eval.py writes it."""
    return json.dumps({"args": {"tag": "v1", "list": [{"data": [{}]}]}, "data": rows, **more}, indent=4)


@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the golden data in ../shared")
def test_the_authors_files_in_and_out(store: Store, tmp_path: Path) -> None:
    outputs: dict[int, list[dict[str, Any]]] = {}
    for record in read_lines("scores"):
        row = {**record["row"], "output": record["scored_output"], "parsed_output": record["parsed_output"]}
        outputs.setdefault(record["run"], []).append(row)
    imported = []
    for run in read_lines("score_runs"):
        folder = tmp_path / str(run["run"])
        folder.mkdir()
        file = folder / run["file"]
        file.write_text(document(outputs[run["run"]], averaged_metrics=run["averaged_metrics"], throughput=1.5))
        (folder / f"{run['file']}.score").write_text("{}")
        (folder / run["file"].replace(".json", "-gpt4eval_o.json")).write_text("{}")
        try:
            summary = import_predictions(store, "helmet", folder, model="m", run_id=folder.name)
        except UsageError as error:
            assert "no result file of eval.py" in str(error) and run["dataset"].startswith(("ruler", "icl", "alce"))
            continue
        assert len(summary.ignored) == 2 and not summary.failed
        imported.append((run, file))
    rescore(store, Rescoring(BENCHMARKS))
    for run, file in imported:
        name = file.parent.name
        exported = export(store, "helmet", name, tmp_path / f"out{name}")
        assert [path.read_bytes() for path in exported.files] == [file.read_bytes()]
        (score,) = export(store, "helmet", name, tmp_path / f"score{name}", results=True).files
        official = {**run["averaged_metrics"], **run.get("alce_score", {})}
        for metric, value in json.loads(score.read_text()).items():
            assert value == pytest.approx(official[metric], abs=1e-8)
        assert score.name == f"{file.name}.score"
    assert len({run["dataset"] for run, _ in imported}) > 9


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (document([ROW])[:-20], "it is not valid JSON"),
        (document([ROW])[: document([ROW]).index("depth")], "it is not valid JSON"),
        ("[]", "it contains a list instead of an object"),
        ("{}", "the key 'data' with a list of objects is missing"),
        (document([]), "the array is empty"),
        (document(["x"]), "it contains text instead of an object"),
        (document({"0": ROW}), "the key 'data' with a list of objects is missing"),
        (document([{**ROW, "output": 3}]), ""),
        (document([{"question": "k", "answer": "v"}]), "the key 'output' is missing"),
        (document([ROW, {**ROW, "question": None}]), "'question' must be text, not null"),
        (document([{**ROW, "answer": []}]), "the answers must be text or a list of texts"),
        (document([{**ROW, "answer": [["v"]]}]), "the answers must be text or a list of texts"),
    ],
)
def test_damaged_files(text: str, what: str, store: Store, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(text)
    if not what:
        summary = import_predictions(store, "helmet", tmp_path / NAME, model="m", run_id="r")
        assert "the answer is not text" in summary.notes[0]
        return
    with pytest.raises(UsageError) as caught:
        import_predictions(store, "helmet", tmp_path / NAME, model="m", run_id="r")
    assert what in str(caught.value) and NAME in str(caught.value)


OTHER_FILES = {
    "alce_asqa_165": {"question": "q", "qa_pairs": [{"short_answers": [["x"]]}], "output": "x"},
    "msmarco_rerank_psg": {"question": "q", "qid": "1", "answer": "1 > 2", "output": "1", "depth": 0},
    "infbench_choice_eng_7982": {"question": "q", "answer": ["B"], "output": "zzz"},
    "json_kv": {**ROW, "depth": "0.2"},
}


@pytest.mark.parametrize(
    ("dataset", "changes"),
    [
        ("alce_asqa_165", {}),
        *(("msmarco_rerank_psg", {"qrel": [["1", label]]}) for label in (1e999, "1" * 400, 10**400, -1, "a", None)),
        *(("msmarco_rerank_psg", {"qrel": [pair]}) for pair in ("a1", [1, 1], ["1"], 3)),
        ("infbench_choice_eng_7982", {}),
        ("infbench_choice_eng_7982", {"answer": ["E", "E. x"]}),
        ("infbench_choice_eng_7982", {"answer": ["A", ""]}),
        *(("json_kv", {"depth": depth}) for depth in ("0.2", True, {"a": 1}, float("nan"), 10**400)),
    ],
)
def test_rows_that_cannot_be_scored_are_refused(
    dataset: str, changes: dict[str, Any], store: Store, tmp_path: Path
) -> None:
    names = {task: official_name(task) for task in TASKS if task.endswith("_8k")}
    (task,) = (task for task, name in names.items() if name.startswith(dataset.rstrip("0123456789_")))
    helmet = BENCHMARKS["helmet"].predictions
    assert helmet is not None
    name = helmet.file_name("m", task).partition("/")[2]
    (tmp_path / name).write_text(document([{**OTHER_FILES[dataset], **changes}]))
    with pytest.raises(UsageError, match=re.escape(name)):
        import_predictions(store, "helmet", tmp_path / name, model="m", run_id="r")


def test_the_list_of_rows_is_found_among_other_keys(tmp_path: Path) -> None:
    text = json.dumps({"args": {"data": [{"a": 1}, 2]}, "x": '"data":[{', "data": [ROW], "data2": [{}]}, indent=1)
    assert [row.values for row in split_document_rows(tmp_path / "x", text.encode(), "data").lines] == [ROW]


def test_whole_depths_are_those_of_the_bundle(store: Store, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(document([{**ROW, "depth": depth} for depth in (0, 0.2, 1.0)]))
    import_predictions(store, "helmet", tmp_path / NAME, model="m", run_id="r")
    sql = "SELECT sample_id, meta->>'evidence_depth' FROM samples ORDER BY ALL"
    found = store.query(sql).rows
    assert [(name.rpartition("-")[2], float(depth)) for name, depth in found] == [("0", 0), ("0.2", 0.2), ("1", 1)]


def test_other_files(store: Store, tmp_path: Path) -> None:
    (tmp_path / "ruler_vt_v1_validation_8192_in8192_size1_chatFalse_42.json").write_text("{}")
    with pytest.raises(UsageError, match=r"contains no result file of eval\.py"):
        import_predictions(store, "helmet", tmp_path, model="m")
    for tag in ("v1", "eval"):
        (tmp_path / NAME.replace("v1", tag)).write_text(document([ROW]))
    with pytest.raises(UsageError, match="contains two files of the task json_kv_8k"):
        import_predictions(store, "helmet", tmp_path, model="m")


def test_names_state_the_task_and_the_template(tmp_path: Path) -> None:
    helmet = BENCHMARKS["helmet"].predictions
    assert helmet is not None
    for chat in (True, False):
        label = helmet.label("org/m", {"chat": chat})
        names = [helmet.file_name(label, task).removeprefix("m/") for task in helmet.known_tasks]
        assert names[0] == NAME and helmet.settings_of(names) == ({} if chat else {"chat": False})
        for name in names:
            (tmp_path / name).touch()
        files = helmet.find_files(tmp_path)
        assert files is not None and tuple(files.files) == helmet.known_tasks
        assert [path.name for (path,) in files.files.values()] == names
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()


def name_of(task: str, **settings: Any) -> str:
    """Name of the file of a run with these settings."""
    helmet = BENCHMARKS["helmet"].predictions
    assert helmet is not None
    return helmet.file_name(helmet.label("org/m", settings), task).removeprefix("m/")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("size100", "size10", "size 10 instead of 100"),
        ("shots2", "shots5", "shots 5 instead of 2"),
        ("max100min0", "max50min3", "max 50 instead of 100, min 3 instead of 0"),
        ("in8192", "in16384", "length 16384 instead of 8192"),
        ("t0.0p1.0", "t0.6p0.95", "temperature 0.6 instead of 0.0, top_p 0.95 instead of 1.0"),
        ("sampFalse", "sampTrue", "sampling True instead of False"),
        ("chatFalse_42", "chatTrue_7", "seed 7 instead of 42"),
        ("_test_k105_dep6", "_mine", "other test file than test_k105_dep6"),
        ("chatFalse", "chatTrue", ""),
        ("_v1_", "_think_", ""),
        ("t0.0p1.0", "t0p1", ""),
    ],
)
def test_files_of_other_settings_get_no_official_number(
    old: str, new: str, reason: str, store: Store, tmp_path: Path
) -> None:
    name = NAME.replace(old, new)
    (tmp_path / name).write_text(document([ROW]))
    (tmp_path / name_of("kilt_nq_8k")).write_text(document([{"question": "q", "answer": ["x"], "output": "x"}]))
    notes = import_predictions(store, "helmet", tmp_path, model="m", run_id="r").notes
    rescore(store, Rescoring(BENCHMARKS))
    sql = "SELECT task, official IS NULL FROM task_scores WHERE headline ORDER BY task"
    assert store.query(sql).rows == [("json_kv_8k", bool(reason)), ("kilt_nq_8k", False)]
    assert [f"(json_kv_8k: {reason})" in note for note in notes] == [True] * bool(reason)
    (entry,) = REPORTS["board_helmet"].read(store, ReportQuery()).dicts()[:1]
    assert (f"json_kv_8k ({reason})" in (entry["note"] or "")) == bool(reason)
    assert {path.name for path in export(store, "helmet", "r", tmp_path / "out").files} >= {name}


def test_shots_that_no_prompt_has_and_models_without_a_template_are_official() -> None:
    helmet = BENCHMARKS["helmet"].predictions
    assert helmet is not None
    needle = name_of("ruler_niah_mv_8k").replace("shots2", "shots0")
    assert helmet.settings_of([needle, name_of("alce_asqa_8k", chat=False)]) == {"chat": False}


@pytest.mark.parametrize(
    ("task", "settings", "part"),
    [
        ("json_kv_8k", {"context_window": 4000}, "_in4000_size100_"),
        ("json_kv_8k", {"max_prompt_tokens": 500, "context_window": 9**9}, "_in600_size100_"),
        ("json_kv_8k", {"max_new_tokens": 7, "context_window": 9**9}, "_in8099_size100_shots2_sampFalsemax7min0"),
        ("json_kv_8k", {"asked": {"json_kv_8k": [12, 9], "kilt_nq_8k": [1, 1]}}, "_size12_"),
        ("kilt_nq_8k", {"asked": {"kilt_nq_8k": [12, 2]}}, "_size2_"),
        ("icl_nlu_8k", {}, "_in8192_size500_shots0_"),
        ("alce_asqa_8k", {"thinking_tokens": 1000, "context_window": 9000}, "_in8000_"),
        ("alce_asqa_8k", {"thinking_tokens": 1000, "context_window": 9**9}, "_in8192_"),
        (
            "json_kv_8k",
            {"sampling": "model", "model_sampling": {"temperature": 0.6, "top_p": 0.9}, "seed": 3},
            "_sampTruemax100min0t0.6p0.9_chatFalse_3.json",
        ),
        (
            "json_kv_8k",
            {"sampling": "official", "model_sampling": {"temperature": 0.6}, "seed": 3},
            "p1.0_chatFalse_42",
        ),
        ("alce_asqa_8k", {"chat": True}, "_chatTrue_"),
        ("alce_asqa_8k", {"chat": False}, "_chatFalse_"),
        ("alce_asqa_8k", {"backend.chat": {"template_sha256": None}}, "_chatFalse_"),
        ("alce_asqa_8k", {"backend.chat": {"template_sha256": None}, "backend.api": "completions"}, "_chatFalse_"),
        ("alce_asqa_8k", {"backend.chat": {"template_sha256": None}, "backend.api": "chat"}, "_chatTrue_"),
        ("kilt_nq_8k", {"backend.chat": {"template_sha256": None}, "backend.api": "chat"}, "_chatTrue_"),
        ("json_kv_8k", {"thinking_tokens": 1000, "context_window": 9000, "backend.api": "chat"}, "_in8000_"),
        ("json_kv_16k", {"max_prompt_tokens": 16000, "context_window": 8192}, "_in8192_"),
        ("json_kv_8k", {"max_new_tokens": 7, "max_prompt_tokens": 8000, "context_window": 8005}, "_in8005_"),
        ("json_kv_8k", {"sampling": "model", "model_sampling": {"temperature": 0.5}}, "t0.5p1.0_"),
    ],
)
def test_names_state_the_settings_of_a_run(task: str, settings: dict[str, Any], part: str) -> None:
    assert part in name_of(task, **settings)


def test_an_api_models_answers_are_scored_as_in_its_file(store: Store, tmp_path: Path) -> None:
    """run_api.sh asks in the chat template in every category, and eval.py then puts nothing before the answer."""
    name = name_of("icl_trec_coarse_8k", **{"backend.api": "chat"})
    row = {"question": "q", "answer": "5", "output": "Based on the examples, the label: 5"}
    (tmp_path / name).write_text(document([row]))
    import_predictions(store, "helmet", tmp_path, model="gpt-4o-2024-08-06", run_id="r")
    rescore(store, Rescoring(BENCHMARKS))
    assert "_chatTrue_" in name
    assert store.query("SELECT official FROM task_scores WHERE headline").rows == [(100.0,)]
    (entry, *_) = REPORTS["board_helmet"].read(store, ReportQuery()).dicts()
    assert "chat template in every category" in entry["note"]


@pytest.mark.parametrize(
    "settings",
    [
        *({name: value} for name in ("max_new_tokens", "context_window", "thinking_tokens") for value in ("8", True)),
        {"max_prompt_tokens": [1]},
        {"max_prompt_tokens": -1},
        {"chat": "x"},
        {"backend.chat": "x"},
        {"sampling": "model", "model_sampling": "x"},
        {"sampling": "model", "model_sampling": {"temperature": 0.5, "top_p": "1/../../x"}},
        {"sampling": "model", "model_sampling": {"temperature": float("inf")}},
        {"sampling": "model", "model_sampling": {"temperature": 0.5}, "seed": "../x"},
    ],
)
def test_settings_that_no_run_has_are_named(settings: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match="setting") as caught:
        name_of("alce_asqa_8k", **settings)
    assert "results file" in str(caught.value.fix)


def test_a_list_of_files_in_a_run_of_lbx_is_not_read() -> None:
    run = ScoredRun("r", "m", {"files": 5}, {}, True, "", datetime(2025, 1, 1), [], {"json_kv_8k": {}}, [])
    assert list(write_averages(run)) == [f"m/{NAME}.score"]


_EVAL_ALCE = """
import importlib.util, sys, types
sys.path.insert(0, sys.argv[1])
if not importlib.util.find_spec("pytrec_eval"):  # only rankings need it
    sys.modules["pytrec_eval"] = types.ModuleType("pytrec_eval")
import eval_alce
for path in sys.argv[2:]:
    eval_alce.main(["--f", path, "--no_rouge"])
"""


@pytest.mark.skipif(not (FOLDER.is_dir() and SOURCE.is_file()), reason="needs the authors' code in ../shared")
def test_the_authors_script_reads_exported_answers_with_citations(store: Store, tmp_path: Path) -> None:
    """eval_alce.py, unmodified, without ROUGE and citations, gives the numbers of lbx."""
    family, run = BENCHMARKS["helmet"], RunRow("r", "m", "hf", "1", {"helmet": 1}, "", {"chat": False}, {}, "1")
    store.begin_run(run)
    for number, record in enumerate(read_lines("scores")):
        task = f"{re.sub('_[0-9]+$', '', record['dataset'])}_8k"
        if task not in ("alce_asqa_8k", "alce_qampari_8k"):
            continue
        row = record["row"]
        golds = [pair["short_answers"] for pair in row["qa_pairs"]] if row.get("qa_pairs") else row["answers"]
        references = tuple(gold for group in golds for gold in group)
        sample = Sample("helmet", task, f"{number}", "", row["question"], references, meta={"golds": golds})
        output = record["scored_output"]
        store.write(
            samples=[SampleRow(sample, number)],
            generations=[GenerationRow("r", *sample.key, output=output)],
            scores=score_rows("r", sample.key, family, family.score(sample, output)),
        )
    store.finish_run("r", "done")
    files = export(store, "helmet", "r", tmp_path / "out").files
    scores = export(store, "helmet", "r", tmp_path / "scores", results=True).files
    command = [sys.executable, "-c", _EVAL_ALCE, SOURCE.parent, *files]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compared = {}
    for file, score in zip(files, scores, strict=True):
        official = json.loads(file.with_name(f"{file.name}.score").read_text())
        assert score.name == f"{file.name}.score"
        for metric, value in json.loads(score.read_text()).items():
            assert official[metric] == pytest.approx(value, abs=1e-8)
            compared[metric] = value
    assert set(compared) == {"str_em", "qampari_rec_top5"} and all(0 < value < 100 for value in compared.values())
