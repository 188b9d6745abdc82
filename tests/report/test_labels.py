"""What runs are called: one rule in every report and format, and never the same for two runs of a table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lbx.base.records import Sample
from lbx.report.format import render
from lbx.report.format.labels import LABELS, labels
from lbx.report.format.table_cells import sheet
from lbx.report.format.terminal import lines
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report, write_parquet
from lbx.report.rows.paper import sheets
from lbx.results import Store
from tests.command_line import Lbx
from tests.report.made_runs import Answer, add_run

RUNS: Mapping[str, Mapping[str, Any]] = {
    "aaaa1111": {"temperature": 0.2},
    "bbbb2222": {"temperature": 0.7},
    "cccc3333": {"temperature": 0.7, "cot": True},
    "dddd4444": {"temperature": 0.7},
}
"""Four runs of the model M; the second and the fourth were asked alike."""
CALLED = {
    "aaaa1111": "M (temperature 0.2)",
    "bbbb2222": "M (bbbb2222)",
    "cccc3333": "M (cot)",
    "dddd4444": "M (dddd4444)",
    "eeee5555": "Other",
}


def answers(right: int) -> list[Answer]:
    asked = {
        "trec": ("longbench", {"all_classes": ["Abbreviation", "City"]}, "Abbreviation"),
        "lsht": ("longbench", {"all_classes": ["Abbreviation", "City"]}, "Abbreviation"),
        "trec_e": ("longbench", {"all_classes": ["Abbreviation", "City"]}, "Abbreviation"),
        "mcq": ("longbench_v2", {"difficulty": "easy", "length": "short", "domain": "Law"}, "A"),
    }
    found = []
    for task, (benchmark, meta, good) in asked.items():
        for place in range(60):
            length = (2_000, 6_000, 12_000)[place % 3]
            sample = Sample(benchmark, task, f"{place}", f"{task} {place}", "?", (good,), "en", length, meta=meta)
            said = f"The correct answer is ({good if place % 60 < right else 'B'})" if task == "mcq" else (
                good if place % 60 < right else "City")  # fmt: skip
            found.append((sample, None if place == 59 else said))
    return found


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("labels") / "r.duckdb"
    with Store(file) as store:
        for at, (run, settings) in enumerate(RUNS.items()):
            add_run(store, run, answers(30 + 7 * at), model="M", settings={**settings, "run_id": None})
        add_run(store, "eeee5555", answers(50), model="Other", settings={"run_id": None})
        with store.transaction() as connection:  # what nobody knows is in no table for people
            connection.execute("UPDATE generations SET truncated = false, prefill_s = 1, decode_s = 1")
    return file


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path, read_only=True) as opened:
        yield opened


def wanted(name: str) -> ReportQuery:
    return ReportQuery(
        baseline="aaaa1111" if name in ("comparison", "changes", "truncation_effect") else "",
        allow_different_settings=True,
        limit=5000,
    )


def of(name: str, store: Store) -> list[Any]:
    table = read_report(store, name, wanted(name))
    return sheets(table) if name == "paper" else [sheet(REPORTS[name], table)]


NAMED = ("leaderboard", "task_scores", "group_scores", "guards", "length_curve", "truncation", "truncation_effect",
         "failures", "cost", "effective_context", "board_longbench", "board_longbench_relative", "paper",
         "board_longbench_v2", "comparison", "changes")  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_every_report_calls_a_run_the_same(store: Store, name: str) -> None:
    table = read_report(store, name, wanted(name))
    runs = {"label": "run_id", **{label: column for column, label in LABELS.items() if label != "label"}}
    rows = [row | {"run_id": row.get("run_id") or row.get("reasoning_run_id")} for row in table.dicts()]
    pairs = {
        (row[column], row[label])
        for row in rows
        for label, column in runs.items()
        if label in table.columns and column in table.columns and row[column]
    }
    assert dict(pairs).keys() == CALLED.keys()
    assert all(label.split(" (nonthinking")[0] == CALLED[run] for run, label in pairs), pairs
    for one in of(name, store):
        heads = [column.name for column in one.columns]
        assert not {"mode", "differs_in"} & set(heads), "the label has it"
        cells = {row[at] for row in one.rows for at, head in enumerate(heads) if head in (*LABELS, "model", "run")}
        cells = {re.sub(r" \([\d,]+ of [\d,]+ samples\)", "", cell) for cell in cells if not cell.endswith("*")}
        assert cells - {"-"} <= set(CALLED.values()) and cells, (name, cells)
        assert not set(RUNS) & cells, "never a bare name"
        for text in ("\n".join(line.text for line in lines(one, 80)), render.markdown(one)):
            assert "temperature" in text and "bbbb2222" in text
        assert "M (temperature 0.2)" in "".join(render.latex_pieces([one])).replace("{", "").replace("}", "").replace(
            "\\", ""
        )


def test_a_judge_has_its_mode_beside_its_rubric() -> None:
    judges = ({"run_id": run, "model": run, "mode": mode, "rubric": "agrees"} for run, mode in MODES.items())
    assert list(labels(judges).values()) == ["a (judge: agrees)", "b (no chat template, judge: agrees)"]


MODES = {"a": "judge", "b": "no chat template judge"}


def test_where_one_run_is_shown_its_model_is_enough(store: Store) -> None:
    (row,) = read_report(store, "leaderboard", ReportQuery(runs=["bbbb2222"])).dicts()[:1]
    assert row["label"] == "M"
    pair = ReportQuery(runs=["bbbb2222", "cccc3333"])
    assert {row["label"] for row in read_report(store, "guards", pair).dicts()} == {"M", "M (cot)"}
    assert {row["run"].split(" (5")[0] for row in read_report(store, "paper", pair).dicts()} == {"M", "M (cot)"}


def test_other_formats_have_it(path: Path, store: Store, tmp_path: Path) -> None:
    done = Lbx()("report", path, "truncation", "-f", "json")
    assert {row["run_id"]: row["label"] for row in json.loads(done.stdout)} == CALLED
    out = tmp_path / "x.parquet"
    store.close()
    with Store(path, read_only=True, allowed_files=[out]) as opened:
        for name in ("truncation", "guards", "paper"):
            write_parquet(opened, name, ReportQuery(), out)
            assert dict(duckdb.sql(f"SELECT DISTINCT run_id, label FROM '{out}'").fetchall()) == CALLED, name


def test_the_page_and_the_first_screen_have_it(path: Path) -> None:
    page = Lbx()("report", path, "--format", "html", "--baseline", "aaaa1111", "--allow-different-settings").stdout
    for label in CALLED.values():
        assert f">{label}</" in page or f"</i>{label}<" in page
    cells = re.findall(r"<t[dh][^>]*>(?:<i [^>]*></i>)?([^<]*)<", page)
    bare = [cell for cell in cells if cell in CALLED]
    assert len(bare) == len(CALLED), "the section of the runs has their names, once each"
    screen = Lbx()("report", path).stdout
    assert "M (cot)" in screen and "M (dddd4444)" in screen


@pytest.mark.parametrize("rows", [
    [("r1", "m", None, "hf"), ("r2", "m", None, "llama")],
    [("r1", "m", None, "hf"), ("r2", "m", "hf", "hf"), ("r3", "m (hf)", None, "hf")],
    [("r1", "m", None, "hf"), ("r2", "m", None, "hf"), ("r3", "m (r1)", None, "hf"), ("r4", "m (r1)", None, "hf")],
    [("m", "m", None, "hf"), ("m (m)", "m", None, "hf"), ("x", "m (m)", None, "hf")],
])  # fmt: skip
def test_labels_differ_whatever_models_are_called(rows: list[tuple[str, str, str | None, str]]) -> None:
    held = [dict(zip(("run_id", "model", "mode", "backend"), row, strict=True)) for row in rows]
    made = labels(held)
    assert len(set(made.values())) == len(made) == len(rows)
    assert all(made[row["run_id"]].startswith(str(row["model"])) for row in held)


def made(*runs: dict[str, Any], model: str = "m", backend: str = "hf") -> dict[str, str]:
    """Labels of runs r0, r1 ... with these settings."""
    return labels(
        {"run_id": f"r{at}", "model": model, "mode": None, "backend": backend, "settings": json.dumps(one)}
        for at, one in enumerate(runs)
    )


@pytest.mark.parametrize(("runs", "shown"), [
    # Of many settings that differ, the fewest that tell all apart.
    ([{"seed": at, "max_prompt_tokens": at + 1, "backend.threads": at, "backend.weights": "x" * 64} for at in range(3)],
     ["m (max_prompt_tokens 1)", "m (max_prompt_tokens 2)", "m (max_prompt_tokens 3)"]),
    # What a run does not have is as by default; switches are words.
    ([{}, {"hashed": True}, {"hashed": False}], ["m", "m (hashed)", "m (no hashed)"]),
    # A grid needs both.
    ([{"a": x, "b": y, "c": x} for x in (1, 2) for y in (3, 4)],
     ["m (a 1, b 3)", "m (a 1, b 4)", "m (a 2, b 3)", "m (a 2, b 4)"]),
    # Alike, but for what is no word: by name.
    ([{"a": 1}, {"a": 2}, {"a": 2}], ["m (a 1)", "m (r1)", "m (r2)"]),
    ([{"a": "x" * 64}, {"a": "y" * 64}], ["m (r0)", "m (r1)"]),
])  # fmt: skip
def test_a_label_names_the_fewest_settings_that_tell_runs_apart(runs: list[dict[str, Any]], shown: list[str]) -> None:
    assert list(made(*runs).values()) == shown


def test_settings_of_runs_that_are_not_shown_stand_in_no_label(store: Store) -> None:
    pair = ReportQuery(runs=["aaaa1111", "bbbb2222"])
    assert {row["label"] for row in read_report(store, "guards", pair).dicts()} == {
        "M (temperature 0.2)",
        "M (temperature 0.7)",
    }
