"""The gallery of pictures, and the terminal's screen that it draws."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyte import ByteStream

from tests.chromium import CHROMIUM
from tests.screen import Picture, Terminal
from tools import gallery


def picture_after(*data: bytes, columns: int = 20) -> Picture:
    terminal = Terminal(columns)
    stream = ByteStream(terminal)
    for part in data:
        stream.feed(part)
    return terminal.picture()


def test_lines_are_written_over_and_erased() -> None:
    assert picture_after(b"10 percent\r50", b" percent\x1b[K\n").text == "50 percent"
    assert picture_after(b"a bar\r\nits end\x1b[1A\r\x1b[2Kdone\r\n\x1b[2K").lines == ["done"]
    assert picture_after(b"\x1b[?25lone\r\ntwo\x1b[1A\r\x1b[J\x1b[?25h").lines == []


def test_lines_scroll_out_and_stay_there() -> None:
    numbers = [str(number) for number in range(1000)]
    assert picture_after("\r\n".join(numbers).encode()).lines == numbers
    assert picture_after("\r\n".join(numbers).encode(), b"\x1b[99A\r\x1b[Jtop").lines == [*numbers[:976], "top"]


def test_sequences_and_characters_may_come_in_parts() -> None:
    assert picture_after(b"\x1b", b"[3", b"1mred", b"\x1b[0m \xe6", b"\x96\x87").text == "red 文"


def test_long_lines_wrap_at_the_width_of_wide_characters() -> None:
    assert picture_after("长文本 abc".encode(), columns=6).lines == ["长文本", " abc"]
    assert picture_after("abcd长文".encode(), columns=5).lines == ["abcd", "长文"]


def test_text_goes_on_after_a_character_without_a_width() -> None:
    assert picture_after("a\u200bb\ufe0fe\u0301".encode()).text == "abé"


def test_styles_become_html() -> None:
    data = b"<\x1b[1;31mbb\x1b[22m\x1b[48;5;196mc\x1b[38;2;1;2;3md\x1b[0m\x1b[2m \x1b[0m\r\n\r\nlast"
    assert picture_after(data).html(2) == (
        '&lt;<span style="font-weight:bold;color:#ef7a7a">bb</span>'
        '<span style="color:#ef7a7a;background:#ff0000">c</span>'
        '<span style="color:#010203;background:#ff0000">d</span><span style="opacity:.65"> </span>'
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
