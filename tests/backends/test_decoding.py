"""The decode loop's parts, with the byte tokenizer: one byte, one token."""

from __future__ import annotations

import pytest

from lbx.backends.scripted import EOS, ByteTokenizer
from lbx.base.errors import PromptError
from lbx.base.records import Request, SampleKey, replace_surrogates
from lbx.engine.decoding import Decoding
from lbx.engine.stopping import StopSearch, stop_token_ids
from lbx.engine.token_budget import check_fits
from tests.backends.pieces import PieceTokenizer

BYTES = ByteTokenizer()


def run(text: str, **changes):
    """Feed a text's bytes and an end of sequence, until the answer ends."""
    request = Request(SampleKey("b", "t", "0"), (1,), **({"max_new_tokens": 100} | changes))
    decoding = Decoding(request, BYTES, {EOS})
    for token in [*text.encode(), EOS]:
        if not decoding.push(token):
            break
    found = decoding.completion()
    return found.text, found.output_tokens, found.finish_reason


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("yes", {}, ("yes", 3, "stop")),
        ("", {}, ("", 0, "stop")),
        ("yes", {"max_new_tokens": 2}, ("ye", 2, "length")),
        ("yes", {"max_new_tokens": 3}, ("yes", 3, "length")),
        ("line\nnext", {"stop": ("\n",)}, ("line", 4, "stop")),
        ("\nnext", {"stop": ("\n",)}, ("", 0, "stop")),
        ("one END two", {"stop": ("END", "two")}, ("one ", 6, "stop")),
        ("ab", {"stop": ("abc",)}, ("ab", 2, "stop")),
        ("a问题b", {"stop": ("问题",)}, ("a", 6, "stop")),
        ("x", {"stop": ("",)}, ("x", 1, "stop")),
        ("ab\n", {"stop": ("\n",), "max_new_tokens": 3}, ("ab", 2, "stop")),
        # min_new_tokens: what stands in the first tokens ends nothing
        ("\nab\nc", {"stop": ("\n",), "min_new_tokens": 1}, ("\nab", 3, "stop")),
        ("\n\nab", {"stop": ("\n",), "min_new_tokens": 1}, ("\n", 1, "stop")),
        ("END and END", {"stop": ("END",), "min_new_tokens": 3}, ("END and ", 10, "stop")),
    ],
)
def test_how_answers_end(text, changes, expected):
    assert run(text, **changes) == expected


def test_a_stop_string_is_found_in_a_long_answer_with_control_tokens_inside():
    finder = StopSearch(("stop",), BYTES, 0)
    ids: list[int] = []
    found = None
    for token in [*b"long " * 500, *b"st", *[256] * 40, *b"op"]:
        ids.append(token)
        found = finder.find(ids)
    assert found == "long " * 500


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        # As Llama 3 cuts them: the line break's token ends samsum's answer, a longer one that holds it does not.
        (["\n\n", "She", " came", "\n", "Bob"], "\n\nShe came"),
        (["She", "\n\n", "came", ".\n", "Bob", "\n", "x"], "She\n\ncame.\nBob"),
        (["\n\n", "\n\n", "She"], "\n\n\n\nShe"),
        (["\n\n", "\n", "She"], "\n\n"),  # as there, it may be the second token
    ],
)
def test_a_stop_token_ends_an_answer_where_its_text_in_others_does_not(pieces, expected):
    tokenizer = PieceTokenizer(list(dict.fromkeys(["\n", *pieces, "<end>"])))
    request = Request(SampleKey("b", "t", "0"), (1,), 50, stop_tokens=("\n",), min_new_tokens=1)
    (end,) = tokenizer.tokens("<end>")
    decoding = Decoding(request, tokenizer, {end})
    assert decoding._forbidden() == {end, *tokenizer.tokens("\n")}
    for token in [*tokenizer.tokens(*pieces), end]:
        if not decoding.push(token):
            break
    assert decoding.completion().text == expected


def test_stop_ids_are_whole_stop_strings_only():
    assert stop_token_ids(("\n", "", "ab"), BYTES) == {10}


def test_what_does_not_fit_is_refused_with_numbers():
    request = Request(SampleKey("b", "t", "0"), (1,) * 90, 11)
    with pytest.raises(PromptError, match=r"90 tokens .* 11: together 101, but the context window is 100"):
        check_fits(request, 100)
    check_fits(request, 101)
    with pytest.raises(PromptError, match="0 tokens"):
        check_fits(Request(SampleKey("b", "t", "0"), (), 5), 100)


def test_encodable_keeps_everything_that_utf8_can_hold():
    assert replace_surrogates("a\u00e9\U0001f6f6\x00") == "a\u00e9\U0001f6f6\x00"
    assert replace_surrogates("\ud83d\udef6") == "\U0001f6f6"
    assert replace_surrogates("x\ud83dy\udef6") == "x\ufffdy\ufffd"
