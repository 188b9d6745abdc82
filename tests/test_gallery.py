"""The gallery of pictures, and the terminal's screen that it draws."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from chromium import CHROMIUM

from tests import gallery
from tests.terminal_screen import Screen


def text_after(*data: bytes, columns: int = 20) -> str:
    screen = Screen(columns)
    for part in data:
        screen.feed(part)
    return screen.text


def test_lines_are_written_over_and_erased() -> None:
    assert text_after(b"10 percent\r50", b" percent\x1b[K\n") == "50 percent\n"
    assert text_after(b"a bar\r\nits end\x1b[1A\r\x1b[2Kdone\r\n\x1b[2K") == "done\n"
    assert text_after(b"one\r\ntwo\x1b[1A\r\x1b[J") == "\n"


def test_sequences_and_characters_may_come_in_parts() -> None:
    assert text_after(b"\x1b", b"[3", b"1mred", b"\x1b[0m \xe6", b"\x96\x87") == "red 文\n"


def test_long_lines_wrap_at_the_width_of_wide_characters() -> None:
    assert text_after("长文本 abc".encode(), columns=6) == "长文本\n abc\n"


def test_styles_become_html() -> None:
    screen = Screen(20)
    screen.feed(b"<\x1b[1;31mb\x1b[22m\x1b[48;5;196mc\x1b[38;2;1;2;3md")
    assert screen.html_lines(9) == (
        '&lt;<span style="font-weight:bold;color:#ef7a7a">b</span>'
        '<span style="color:#ef7a7a;background:rgb(255,0,0)">c</span>'
        '<span style="color:rgb(1,2,3);background:rgb(255,0,0)">d</span>'
    )


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; .ci/browser-tools.sh installs it")
def test_it_makes_the_wanted_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("playwright.sync_api", reason="no playwright here; it is in lbx[dev]")
    for scheme in ("light", "dark"):
        monkeypatch.setattr(sys, "argv", ["gallery", str(tmp_path), "--only", f"rate-pair-first-{scheme}"])
        assert gallery.main() == 0
    names = [f"rate-pair-first-{scheme}.png" for scheme in ("dark", "light")]
    assert [path.name for path in sorted(tmp_path.glob("*.png"))] == names
    assert [line.partition(":")[0] for line in (tmp_path / "README.txt").read_text().splitlines()[1:]] == names
