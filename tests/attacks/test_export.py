"""Results files whose runs name files elsewhere, and folders that hold traps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.attack_parts import refused
from tests.attacks.results_parts import PRED, changed, lbx, results_file, tree


def with_files(path: Path, *files: Any, **more: Any) -> Path:
    """A results file whose imported run says that it came from these files."""
    return results_file(path, settings={"imported": "longbench", "content_sha256": "0", "files": list(files)}, **more)


def named(name: object, **more: object) -> dict[str, object]:
    return {"name": name, "task": "qasper", "rows": 1, "final_newline": True} | more


def exported(path: Path, folder: Path, *more: object) -> None:
    """Exporting is refused, and nothing is written anywhere."""
    before = tree(folder)
    said = lbx("export", "longbench", path, "--run", "r1", "-o", folder / "a" / "out", *more)
    refused(said)
    assert "\x1b" not in said.all
    assert tree(folder) == before


NAMES = [
    "../../../../evil.jsonl", "..", ".", "", "/tmp/evil.jsonl", "//evil.jsonl", "a/b.jsonl", "a/../../b.jsonl",
    "..\\evil.jsonl", "C:\\evil.jsonl", "a\x00b", "a\nb", "\x1b]0;title\x07.jsonl", "\u202elnosj.a", "a\u200bb",
    "CON", "nul.jsonl", "COM1", "x" * 256,
]  # fmt: skip


def test_no_name_leads_out(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    path = with_files(tmp_path / "got.duckdb", named("qasper.jsonl"))
    for number, name in enumerate(NAMES):
        settings = json.dumps({"imported": "longbench", "content_sha256": "0", "files": [named(name)]})
        changed(path, f"UPDATE runs SET settings = {_quoted(settings)}")
        exported(path, tmp_path, *["--force"][: number % 2])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


MODELS = ["..\\..\\evil", "a\x1b[31m", "x/a\nb", "CON", "a\u202eb", "x" * 300]


def test_no_model_s_name_leads_out(tmp_path: Path) -> None:
    for number, model in enumerate(MODELS):
        folder = tmp_path / str(number)
        folder.mkdir()
        exported(results_file(folder / "imported.duckdb", model=model), folder)
        made = results_file(folder / "made.duckdb", model=model, backend="scripted", settings={})
        exported(made, folder)
        changed(made, "UPDATE scores SET metric = 'f1'")
        exported(made, folder, "--results")


@pytest.mark.parametrize("model", ["../../..", "/", "..", "/etc/..", "a/../..", "///"])
def test_slashes_and_dots_of_a_model_stay_outside(tmp_path: Path, model: str) -> None:
    out = tmp_path / "a" / "out"
    path = results_file(tmp_path / "got.duckdb", model=model, backend="scripted", settings={})
    assert lbx("export", "longbench", path, "--run", "r1", "-o", out).code == 0
    assert sorted(tree(tmp_path)) == ["a/out/pred/model/qasper.jsonl", "got.duckdb"]


SETTINGS: list[Any] = [
    {"imported": "longbench_pro", "files": [named("thinking_context-9_x.jsonl")]},
    {"thinking": "no", "context_window": "../../../evil"},
    {"thinking": True, "max_prompt_tokens": "../../../../evil/"},
    {"context_window": [1], "rag": {"a": 1}},
]


@pytest.mark.parametrize("benchmark", ["longbench", "longbench_v2", "longbench_pro", "lveval", "leval"])
def test_results_of_made_up_scores_and_settings(tmp_path: Path, benchmark: str) -> None:
    task = {"longbench_v2": "mcq", "longbench_pro": "t3.2", "lveval": "factrecall_en_16k", "leval": "tpo"}
    for number, settings in enumerate(SETTINGS):
        folder = tmp_path / str(number)
        folder.mkdir()
        backend = "import" if "files" in settings else "scripted"
        path = results_file(folder / "got.duckdb", backend=backend, settings=settings)
        tables = ("samples", "generations", "scores")
        moved = f"SET benchmark = '{benchmark}', task = '{task.get(benchmark, 'qasper')}'"
        changed(path, *(f"UPDATE {table} {moved}" for table in tables), "UPDATE scores SET metric = 'made up'")
        before = tree(folder)
        refused(lbx("export", benchmark, path, "--run", "r1", "--results", "-o", folder / "a" / "out"))
        assert tree(folder) == before


BROKEN: dict[str, Any] = {
    "no list": 7,
    "no files": [],
    "no object": ["x"],
    "no name": [{"task": "qasper", "rows": 1, "final_newline": True}],
    "a number for a name": [named(7)],
    "more than one knows": [named("a.jsonl", mode="w")],
    "a separator that is none": [named("a.jsonl", separator=None)],
    "no rows": [named("a.jsonl", task="nothing", rows=0)],
    "one name twice": [named("a.jsonl"), named("a.jsonl")],
}


def test_what_an_import_remembers_may_be_made_up(tmp_path: Path) -> None:
    path = with_files(tmp_path / "got.duckdb", named("qasper.jsonl"))
    for files in BROKEN.values():
        settings = json.dumps({"imported": "longbench", "content_sha256": "0", "files": files})
        changed(path, f"UPDATE runs SET settings = {_quoted(settings)}")
        exported(path, tmp_path)


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    path = results_file(tmp_path / "got.duckdb")
    place = tmp_path / "out" / "pred" / "model"
    place.mkdir(parents=True)
    kept = tmp_path / "kept"
    kept.write_text("kept")
    (place / "qasper.jsonl").symlink_to(kept)
    refused(lbx("export", "longbench", path, "--run", "r1", "-o", tmp_path / "out"), "already exist")
    assert lbx("export", "longbench", path, "--run", "r1", "-o", tmp_path / "out", "--force").code == 0
    assert kept.read_text() == "kept"
    assert json.loads((place / "qasper.jsonl").read_text()) == PRED
