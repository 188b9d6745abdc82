"""Prompts to tokens: cuts by each benchmark's rule, one BOS, documents that stay text."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.backends.scripted import BOS, EOS, ByteTokenizer
from lbx.errors import BackendError, PromptError
from lbx.prompts import ChatTemplate, Prompter
from lbx.records import Prompt, SampleKey, Sampling, Truncation

KEY = SampleKey("b", "t", "s")
TEMPLATE = "{{ bos_token }}user: {% for m in messages %}{{ m.content | trim }}{% endfor %}{{ eos_token }}answer:"


def prompter(window: int = 1000, template: str | None = None, **kwargs: int) -> Prompter:
    chat = ChatTemplate(template, bos_token="<s>", eos_token="</s>") if template else None
    return Prompter(ByteTokenizer(template), context_window=window, template=chat, **kwargs)


def prompt(document: str, rule: Truncation = Truncation.MIDDLE, **changes: object) -> Prompt:
    plain = Prompt(before="Read: ", document=document, after=" Question?", max_new_tokens=10, truncation=rule)
    return dataclasses.replace(plain, **changes)


def read(ids: tuple[int, ...]) -> str:
    """The ids as text with control tokens shown as «s» and «/s», which no test document holds."""
    return b"".join({BOS: "«s»".encode(), EOS: "«/s»".encode()}.get(i, bytes([i % 256])) for i in ids).decode()


def test_plain_prompt_has_one_bos() -> None:
    request = prompter().request(KEY, prompt("abc"), Sampling())
    assert read(request.token_ids) == "«s»Read: abc Question?"
    assert (request.original_tokens, request.truncated) == (len(request.token_ids), False)


def test_template_that_writes_bos_does_not_double_it() -> None:
    request = prompter(template=TEMPLATE).request(KEY, prompt("abc"), Sampling())
    assert read(request.token_ids) == "«s»user: Read: abc Question?«/s»answer:"


def test_template_that_forgets_bos_gets_one() -> None:
    request = prompter(template="U:{{ messages[0].content }} A:").request(KEY, prompt("abc"), Sampling())
    assert read(request.token_ids) == "«s»U:Read: abc Question? A:"


@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_control_tokens_in_a_document_stay_text(template: str | None) -> None:
    request = prompter(template=template).request(KEY, prompt("x</s>y<s>z"), Sampling())
    assert "Read: x</s>y<s>z Question?" in read(request.token_ids)
    assert request.token_ids.count(BOS) == 1
    assert request.token_ids.count(EOS) == (1 if template else 0)


def test_few_shot_prompts_are_not_wrapped() -> None:
    request = prompter(template=TEMPLATE).request(KEY, prompt("abc", chat=False), Sampling())
    assert read(request.token_ids) == "«s»Read: abc Question?"


@pytest.mark.parametrize("limit", [20, 21, 40, 41])
def test_middle_keeps_half_of_each_end(limit: int) -> None:
    text = "Read: " + "0123456789" * 20 + " Question?"
    request = prompter(max_prompt_tokens=limit).request(KEY, prompt("0123456789" * 20), Sampling())
    half = limit // 2  # BOS is one of the first half's tokens, as where the official script counts it
    assert read(request.token_ids) == "«s»" + text[: half - 1] + text[-half:]
    assert request.truncated
    assert request.original_tokens == len(text) + 1


@pytest.mark.parametrize("limit", [20, 21])
def test_middle_floor_keeps_one_more_at_the_end(limit: int) -> None:
    text = "Read: " + "0123456789" * 20 + " Question?"
    asked = prompt("0123456789" * 20, Truncation.MIDDLE_FLOOR)
    request = prompter(max_prompt_tokens=limit).request(KEY, asked, Sampling())
    assert read(request.token_ids) == "«s»" + text[: limit // 2 - 1] + text[-(limit - limit // 2) :]


@pytest.mark.parametrize(("rule", "kept"), [(Truncation.DOCUMENT_END, "abcde"), (Truncation.DOCUMENT_START, "vwxyz")])
def test_document_cuts_never_touch_the_question(rule: Truncation, kept: str) -> None:
    asked = prompt("abcdefghijklmnopqrstuvwxyz", rule)
    whole = len("Read: " + kept + " Question?") + 1
    request = prompter(max_prompt_tokens=whole).request(KEY, asked, Sampling())
    assert read(request.token_ids) == f"«s»Read: {kept} Question?"


def test_question_alone_too_long_is_refused() -> None:
    with pytest.raises(PromptError, match="never cut"):
        prompter(max_prompt_tokens=10).request(KEY, prompt("abc" * 50, Truncation.DOCUMENT_END), Sampling())


def test_refusing_benchmark_refuses_with_numbers() -> None:
    with pytest.raises(PromptError, match=r"117 tokens.*window is 50 tokens, of which 10"):
        prompter(window=50).request(KEY, prompt("a" * 100, Truncation.REFUSE), Sampling())


def test_official_limit_holds_for_its_window_only() -> None:
    asked = prompt("a" * 500, limits={400: 60})
    assert len(prompter(window=400).request(KEY, asked, Sampling()).token_ids) == 60
    assert len(prompter(window=401).request(KEY, asked, Sampling()).token_ids) > 380


def test_template_that_swallows_the_message_is_an_error() -> None:
    with pytest.raises(BackendError, match="does not put the user's message"):
        prompter(template="hello").request(KEY, prompt("abc"), Sampling())


def test_broken_template_is_an_error() -> None:
    with pytest.raises(BackendError, match="not valid Jinja"):
        ChatTemplate("{% if %}")
    with pytest.raises(BackendError, match="system message wanted"):
        ChatTemplate("{{ raise_exception('system message wanted') }}").render("x")


def test_prompt_that_opens_the_reasoning_is_marked() -> None:
    request = prompter(template="U:{{ messages[0].content }} A:<think>\n").request(KEY, prompt("abc"), Sampling())
    assert request.opens_reasoning


@given(
    document=st.text(max_size=300),
    window=st.integers(30, 200),
    rule=st.sampled_from([Truncation.MIDDLE, Truncation.MIDDLE_FLOOR, Truncation.DOCUMENT_END]),
    template=st.sampled_from([None, TEMPLATE]),
)
def test_a_request_always_fits_or_is_refused(
    document: str, window: int, rule: Truncation, template: str | None
) -> None:
    try:
        request = prompter(window=window, template=template).request(KEY, prompt(document, rule), Sampling())
    except PromptError:
        assert window < 60 + 10  # only where not even the instructions fit
        return
    assert len(request.token_ids) + request.max_new_tokens <= window
    assert request.token_ids[0] == BOS
    assert request.token_ids.count(BOS) == 1
