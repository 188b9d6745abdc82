"""Judgements and answers for a judge from somebody else: names that steer, rows that lie, texts that cost time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lbx.base.errors import UsageError
from lbx.exchange.importing import parse_predictions
from lbx.opinions.judgement_files import read_judgements
from tests.attacks.attack_parts import refused
from tests.attacks.results_parts import lbx, tree

TITLE = "\x1b]0;owned\x07\x9b31m\u202e"
ANSWER = {"query": "q", "gt": "g", "a_pred": "x", "evaluation": "LLM"}
PAIR = {
    "g1_winner": "a", "g2_winner": "b", "judge": "gpt-4", "g1_user_prompt": "Q\nx\nA\nfoo\nB\nbar\nE",
    "g1_judgment": "[[A]]", "g2_user_prompt": "Q\nx\nA\nbar\nB\nfoo\nE", "g2_judgment": "[[A]]", "tstamp": 1.0,
}  # fmt: skip
ROWS: dict[str, dict[str, Any]] = {"leval": ANSWER, "leval_judge": PAIR}
OTHERS: tuple[Any, ...] = (None, 7, float("inf"), True, [], {}, "", TITLE, "\0", "\ud800", "a\nb", 2**70, "../" * 9)


def lines(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def taken_or_refused(form: str, content: bytes, folder: Path) -> bool:
    """Import a file: nothing is left of what is refused; what is taken comes back to the byte."""
    folder.mkdir()
    file = folder / ("m.pred.jsonl" if form == "leval" else "m.pred.judge.jsonl")
    file.write_bytes(content)
    said = lbx("import", form, file, "--model-name", "j", "--name", "run", "-o", folder / "r.duckdb")
    assert not any(sign in said.all for sign in "\x1b\x07\x9b\u202e\r")
    if said.code:
        refused(said)
        assert list(tree(folder)) == [file.name]
        return False
    out = lbx("export", form, folder / "r.duckdb", "--run", "run", "-o", folder / "out")
    assert out.code == 0, out.err
    assert (folder / "out" / file.name).read_bytes() == content
    return True


@pytest.mark.parametrize("form", ROWS)
def test_contents_that_cannot_be_taken(form: str, tmp_path: Path) -> None:
    row = ROWS[form]
    for number, content in enumerate(
        (
            b'{"query": ' + b"[" * 100_000,
            b'{"gt": ' + b"9" * 5000 + b"}",
            bytes(range(128, 256)),
            bytes(10_000),
            json.dumps({TITLE: 1}).encode(),
            lines(row, row)[:-20],
            lines(row) + b"hello\n",
            lines(row) + f"{TITLE}\n".encode(),
        )
    ):
        assert not taken_or_refused(form, content, tmp_path / str(number))


@pytest.mark.parametrize("form", ROWS)
def test_any_value_under_any_key(form: str, tmp_path: Path) -> None:
    row, file, refusals = ROWS[form], tmp_path / "m.pred.judge.jsonl", 0
    for key in row:
        gone = {name: held for name, held in row.items() if name != key}
        for other in (gone, *({**row, key: value} for value in OTHERS)):
            file.write_bytes(lines(row, other))
            try:
                parse_predictions(form, file, model="j") if form == "leval" else read_judgements(file)
            except UsageError as exc:
                assert "line 2" in exc.cause or "several judges" in exc.cause
                refusals += 1
    assert refusals > len(row)


@pytest.mark.parametrize("form", ROWS)
def test_odd_but_whole_files_come_back(form: str, tmp_path: Path) -> None:
    row = ROWS[form]
    free = ("query", "gt", "a_pred", "g1_user_prompt", "g2_user_prompt")
    odd = {key: f"{TITLE}\0\ud800 {value}" if key in free else value for key, value in row.items()}
    huge = {key: value * 500_000 if key in ("gt", "g1_user_prompt") else value for key, value in row.items()}
    for number, content in enumerate(
        (
            b"\xef\xbb\xbf" + lines(row, row)[:-1],
            b"\n \n" + lines(row, row).replace(b"\n", b"\r\n") + b"\n\n",
            lines(row, odd, huge),
        )
    ):
        assert taken_or_refused(form, content, tmp_path / str(number))


def test_lines_of_numbers_that_lie_and_prompts_of_many_lines(tmp_path: Path) -> None:
    same = "\n".join(["Q"] * 50_000)
    marked = "Q\n" + "A\nB\n" * 50_000 + "E"
    for number, content in enumerate(
        (
            lines(PAIR) + b"n_draws = 99999999999999999999999 n_error = 1\nwin rate of a = 1.0\n",
            b"n_draws = 0 n_error = 0\n" * 100 + lines(PAIR) + f"win rate of {TITLE} = 0.5\n".encode(),
            lines({**PAIR, "g1_winner": "../../x", "g2_winner": "../../y"}),
            lines(PAIR, {**PAIR, "g1_user_prompt": same, "g2_user_prompt": same}),
            lines(PAIR, {**PAIR, "g1_user_prompt": marked, "g2_user_prompt": marked}),
        )
    ):
        assert taken_or_refused("leval_judge", content, tmp_path / str(number))
