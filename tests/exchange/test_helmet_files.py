"""Result files of HELMET's eval.py: the golden outputs in and out, and damaged files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lbx.base.errors import UsageError
from lbx.benchmarks.registry import BENCHMARKS
from lbx.exchange.exporting import export
from lbx.results import Store
from lbx.results.scoring.scores import Rescoring, rescore
from tests.exchange.import_parts import import_predictions
from tests.golden.helmet_draws import FOLDER, read_lines

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
        (document([]), "the key 'data' with a list of objects is missing"),
        (document(["x"]), "the key 'data' with a list of objects is missing"),
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
