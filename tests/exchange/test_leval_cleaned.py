"""L-Eval's own annotation tool: its files made of our edits, and its pages taken over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.exchange.annotation.dataset import ANSWERS, QUESTIONS, Dataset
from lbx.exchange.annotation.tool_pages import apply_pages, lost_content, official_files

FOLDER = Path(__file__).parent / "leval_pages/annotated"
"""Written by web_annotate_jsonl.py (cd34b05, --new_pairs_num 1) of three documents of our own words."""


def _official() -> dict[str, str]:
    files = [*FOLDER.glob("jsons/*_cleaned.json"), FOLDER / "notes.cleaned.jsonl"]
    return {str(file.relative_to(FOLDER)): file.read_text("utf-8") for file in files}


def test_the_same_edits_make_the_tools_files(tmp_path: Path) -> None:
    with Dataset(FOLDER / "notes.jsonl", tmp_path / "out.jsonl") as dataset:
        dataset.set(0, 1, QUESTIONS, "", 0)
        dataset.set(0, 0, ANSWERS, "In 1950,\nsays the document.", 0)
        dataset.add(0, "Who repaired it?", "Nobody knows.")
        dataset.add(1, "Why twice?", "")
        dataset.add(2, "When?", "In 1952.")
        assert official_files(dataset, new_pairs=1) == _official()
        assert lost_content(dataset) == [
            "L-Eval's format does not include evaluation, weight.",
            "L-Eval's format drops empty texts, so that pairs shift in lines 1, 2.",
        ]


def test_pages_are_taken_over_and_nothing_is_lost(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with Dataset(FOLDER / "notes.jsonl", out) as dataset:
        assert apply_pages(dataset, FOLDER / "jsons") == 3
        assert apply_pages(dataset, FOLDER / "jsons") == 0
        assert official_files(dataset, new_pairs=1) == _official()
        dataset.write()
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    before = [json.loads(line) for line in (FOLDER / "notes.jsonl").read_text("utf-8").splitlines()]
    assert [row["evaluation"] for row in rows] == ["f1"] * 3
    assert [row["weight"] for row in rows] == [1.0] * 3
    assert rows[0]["instructions"] == ["When was the harbour repaired?", "", "Who repaired it?"]
    assert rows[0]["outputs"] == ["In 1950,\nsays the document.", "Nothing is said.", "Nobody knows."]
    assert rows[1]["instructions"] == [*before[1]["instructions"], "Why twice?"]
    assert rows[1]["outputs"] == ["In 1951.", "", ""]
    assert rows[2]["instructions"] == ["When?"]
    assert "–" in out.read_text("utf-8")


def test_the_tools_jsonl_is_a_dataset(tmp_path: Path) -> None:
    with Dataset(FOLDER / "notes.cleaned.jsonl", tmp_path / "out.jsonl") as dataset:
        assert [entry.pairs for entry in dataset.entries] == [3, 3, 1]
        assert b"".join(dataset.pieces()) == (FOLDER / "notes.cleaned.jsonl").read_bytes()


def test_pages_of_other_documents_are_refused(tmp_path: Path) -> None:
    (tmp_path / "7_cleaned.json").write_text('{"input": "another"}')
    with Dataset(FOLDER / "notes.jsonl", tmp_path / "out.jsonl") as dataset:
        with pytest.raises(UsageError, match=r"7_cleaned\.json is a page of another document"):
            apply_pages(dataset, tmp_path)
        with pytest.raises(UsageError, match=r"contains no N_cleaned\.json"):
            apply_pages(dataset, FOLDER.parent)
        with pytest.raises(UsageError, match="does not exist"):
            apply_pages(dataset, tmp_path / "nowhere")
