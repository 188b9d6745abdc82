"""Documents in blocks, and what is found in them."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from lbx.base.visible import visible
from lbx.web.documents import BLOCK, MOST_HITS, SearchableDocument


def found(document: SearchableDocument, wanted: str) -> list[str]:
    """The texts of the hits, read as a browser would: UTF-16 units of blocks."""
    units = [block.encode("utf-16-le") for block in document.blocks]
    texts = []
    for first, start, last, end in document.find(wanted).places:
        if first == last:
            raw = units[first][2 * start : 2 * end]
        else:
            raw = units[first][2 * start :] + b"".join(units[first + 1 : last]) + units[last][: 2 * end]
        texts.append(raw.decode("utf-16-le"))
    return texts


def folded(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def test_blocks_are_the_text() -> None:
    text = "".join(f"line {i} of a text\n" for i in range(3000)) + "x" * 9_999 + " y" * 3_000
    document = SearchableDocument("d", text)
    assert "".join(document.blocks) == text
    assert all(BLOCK // 2 <= len(block) <= BLOCK for block in document.blocks[:-1])
    assert document.blocks[0].endswith("\n")
    assert SearchableDocument("e", "").blocks == [""]


def test_case_and_forms_do_not_matter() -> None:
    text = "Straße STRASSE ＡＢＣ abc ﬁne FINE Zu\u0308rich ZÜRICH 𝐀 x²"
    document = SearchableDocument("d", text)
    assert found(document, "strasse") == ["Straße", "STRASSE"]
    assert found(document, "abc") == ["ＡＢＣ", "abc"]
    assert found(document, "fine") == ["ﬁne", "FINE"]
    assert found(document, "zürich") == found(document, "ZU\u0308RICH") == ["Zu\u0308rich", "ZÜRICH"]
    assert found(SearchableDocument("d", "𝐀 a"), "A") == ["𝐀", "a"]
    assert found(document, "x2") == ["x²"]


def test_a_letter_is_not_in_another() -> None:
    assert found(SearchableDocument("d", "é e\u0301 e ﬁ ß"), "e") == ["e"]
    assert found(SearchableDocument("d", "ﬁ ß"), "i") == []
    assert found(SearchableDocument("d", "ﬁ ß s"), "s") == ["s"]


def test_everything_is_literal() -> None:
    document = SearchableDocument("d", "a.c abc [x] \\d 5 %_ a\x1b[31mb")
    assert found(document, "a.c") == ["a.c"]
    assert found(document, "[x]") == ["[x]"]
    assert found(document, "\\d") == ["\\d"]
    assert found(document, "\x1b[31m") == ["\\x1b[31m"]
    assert found(SearchableDocument("d", "a\r\nb"), "A\r\n") == ["a\n"]
    assert found(document, "") == found(document, "  ") == []


def test_hits_over_blocks_and_astral_letters() -> None:
    text = "𝔘" * (BLOCK - 3) + "needle in the text 𝔘 needle"
    document = SearchableDocument("d", text)
    assert found(document, "NEEDLE") == ["needle", "needle"]
    assert found(document, "𝔘 ") == ["𝔘 "]
    hits = document.find("needle").places
    assert hits[0][0] == 0
    assert hits[0][2] == 1


def test_all_hits_are_counted_and_the_first_are_placed() -> None:
    hits = SearchableDocument("d", "a " * 20_000).find("A")
    assert hits.total == 20_000
    assert len(hits.places) == MOST_HITS


LETTERS = st.text("aAbB eéEßẞﬁ\u0301İıΣσς한하ＡÅ\n.x²", max_size=40)


@given(LETTERS, st.text("aAeéEßsﬁfiİıσ한Ａ x²2", min_size=1, max_size=4))
def test_what_is_found_is_what_was_wanted(text: str, wanted: str) -> None:
    texts = found(SearchableDocument("d", text), wanted)
    assert all(folded(one) == folded(wanted) for one in texts)
    if wanted.strip() and wanted.isascii() and text.isascii():
        assert len(texts) == text.lower().count(wanted.lower())


@given(st.text(max_size=300))
def test_a_text_finds_itself(text: str) -> None:
    shown = visible(text.replace("\r\n", "\n"))
    hits = found(SearchableDocument("d", text), text)
    assert hits == ([shown] if shown.strip() else [])
