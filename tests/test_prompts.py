"""Prompts to tokens: cuts by each benchmark's rule, one BOS, documents that stay text."""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.backends.scripted import BOS, EOS, ByteTokenizer
from lbx.base.errors import BackendError, PromptError
from lbx.base.records import Prompt, SampleKey, Sampling, Truncation, sha256_text
from lbx.engine.chat_template import ChatTemplate, template_variables
from lbx.engine.prompter import Prompter
from lbx.engine.wrapping import Wrapper

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


def test_prompts_share_the_numbers_of_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise 500 questions on one document of 128,000 tokens hold 2.5 GB."""
    encode = ByteTokenizer.encode
    far = lambda self, text, *, special: [one + 10_000 for one in encode(self, text, special=special)]  # noqa: E731
    monkeypatch.setattr(ByteTokenizer, "encode", far)
    one, other = (prompter().request(KEY, prompt(text), Sampling()).token_ids for text in ("abc", "abd"))
    assert one != other
    assert len({id(token) for token in (*one, *other)}) == len({*one, *other})


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


@pytest.mark.parametrize(("rule", "kept"), [(Truncation.DOCUMENT_END, "abcde"), (Truncation.DOCUMENT_MIDDLE, "abxyz")])
def test_document_cuts_never_touch_the_question(rule: Truncation, kept: str) -> None:
    asked = prompt("abcdefghijklmnopqrstuvwxyz", rule)
    whole = len("Read: " + kept + " Question?") + 1
    request = prompter(max_prompt_tokens=whole).request(KEY, asked, Sampling())
    assert read(request.token_ids) == f"«s»Read: {kept} Question?"


def test_a_cut_that_counts_the_chat_template() -> None:
    """As many tokens as the wrapped prompt has too many, and none of a character that the cut would split."""
    asked = prompt("abcdefghijklmnopqrstuvwxyz", Truncation.DOCUMENT_END_ONCE, limits={400: 40})
    wrapped = prompter(window=400, template="<u>{{ messages[0]['content'] }}</u><a>").request(KEY, asked, Sampling())
    assert read(wrapped.token_ids).removeprefix("«s»") == "<u>Read: abcdefghijklm Question?</u><a>"
    assert (wrapped.original_tokens, wrapped.tokens_cut) == (53, 13)
    split = prompt("ab€€", Truncation.DOCUMENT_END_ONCE, limits={400: len("Read: ab Question?") + 3})
    assert read(prompter(window=400).request(KEY, split, Sampling()).token_ids) == "«s»Read: ab Question?"


class NormalisingTokenizer(ByteTokenizer):
    """Normalises texts before it encodes them, as tokenizers of Qwen do."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        return super().encode(unicodedata.normalize("NFC", text), special=special)


def test_a_cut_at_the_end_keeps_the_beginning_of_a_normalised_document() -> None:
    document = "Cafe\u0301 " + "x" * 100
    asked = prompt(document, Truncation.DOCUMENT_END_ONCE, limits={400: 80})
    short = Prompter(NormalisingTokenizer(None), context_window=400, template=None).request(KEY, asked, Sampling())
    kept = read(short.token_ids).removeprefix("«s»Read: ").removesuffix(" Question?")
    assert kept == "Café " + "x" * (80 - len("Read:  Question?") - 1 - len("Café ".encode()))


class PairingTokenizer(NormalisingTokenizer):
    """Has a token for "xyz", of whose beginnings a cut text would have more tokens."""

    token = 1000

    def encode(self, text: str, *, special: bool) -> list[int]:
        first, *others = text.split("xyz")
        ids = super().encode(first, special=special)
        for part in others:
            ids += [self.token, *super().encode(part, special=special)]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(b"xyz" if one == self.token else bytes([one]) for one in ids).decode("utf-8", "replace")


@pytest.mark.parametrize("words", range(5, 9))
def test_a_cut_of_a_normalised_document_splits_no_token(words: int) -> None:
    document = "Cafe\u0301 " + "xyz" * 50
    fixed = len("Read:  Question?") + 1 + len("Café ".encode())
    asked = prompt(document, Truncation.DOCUMENT_END_ONCE, limits={400: fixed + words})
    short = Prompter(PairingTokenizer(None), context_window=400, template=None).read(KEY, asked, Sampling())
    assert short.text == "Read: Cafe\u0301 " + "xyz" * words + " Question?"


@pytest.mark.parametrize(
    ("tokens", "kept"), [(3, "Caf"), (4, "Caf"), (5, "Cafe\u0301"), (8, "Cafe\u0301\ufffd"), (9, "Cafe\u0301\ufffd")]
)
def test_a_cut_beside_a_normalised_character(tokens: int, kept: str) -> None:
    asked = prompt(
        "Cafe\u0301\ufffd€", Truncation.DOCUMENT_END_ONCE, limits={400: len("Read:  Question?") + 1 + tokens}
    )
    short = Prompter(NormalisingTokenizer(None), context_window=400, template=None).read(KEY, asked, Sampling())
    assert short.text == f"Read: {kept} Question?"


@pytest.mark.parametrize("limit", [20, 21])
def test_middle_even_keeps_as_much_of_each_end(limit: int) -> None:
    text = "Read: " + "0123456789" * 20 + " Question?"
    asked = prompt("0123456789" * 20, Truncation.MIDDLE_EVEN)
    request = prompter(max_prompt_tokens=limit).request(KEY, asked, Sampling())
    assert read(request.token_ids) == "«s»" + text[: limit // 2 - 1] + text[-(limit // 2) :]


def test_question_alone_too_long_is_refused() -> None:
    with pytest.raises(PromptError, match="never truncates the question"):
        prompter(max_prompt_tokens=10).request(KEY, prompt("abc" * 50, Truncation.DOCUMENT_END), Sampling())


def test_refusing_benchmark_refuses_with_numbers() -> None:
    with pytest.raises(PromptError, match=r"117 tokens.*window is 50 tokens, including 10"):
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


@pytest.mark.parametrize(
    ("end", "document", "expected"),
    [
        ("A:<think>\n", "abc", True),
        ("A:<think>\n\n</think>\n\n", "abc", False),
        ("A:</think>", "abc", False),
        ("A:", "abc <think>", False),
        ("A:[THINK]", "abc", True),
    ],
)
def test_prompt_that_opens_the_reasoning_is_marked(end: str, document: str, expected: bool) -> None:
    asked = prompt(document, after="")
    request = prompter(template="U:{{ messages[0].content }} " + end).request(KEY, asked, Sampling())
    assert request.opens_reasoning is expected


def test_the_cards_marks_open_the_reasoning() -> None:
    source = "U:{{ messages[0].content }} A:<plan>"
    tokenizer = ByteTokenizer(source, ("<plan>", "</plan>"))
    made = Prompter(tokenizer, context_window=1000, template=ChatTemplate(source))
    assert made.request(KEY, prompt("abc"), Sampling()).opens_reasoning


def test_reasoning_gets_room_of_its_own() -> None:
    chatting = prompter(window=400, template=TEMPLATE, thinking_tokens=200)
    request = chatting.request(KEY, prompt("a" * 500), Sampling())
    assert 185 < len(request.token_ids) <= 190
    assert (request.thinking_tokens, request.max_new_tokens) == (200, 10)
    bare = chatting.request(KEY, prompt("a" * 500, chat=False), Sampling())
    assert (len(bare.token_ids), bare.thinking_tokens, bare.max_new_tokens) == (390, 0, 10)
    with pytest.raises(PromptError, match="400 tokens, including 10 for the answer and 200 for its reasoning"):
        chatting.request(KEY, prompt("a" * 500, Truncation.REFUSE), Sampling())
    with pytest.raises(PromptError, match="would remove the whole prompt"):
        prompter(window=400, thinking_tokens=390).request(KEY, prompt("a" * 500), Sampling())


@pytest.mark.parametrize(
    ("rule", "limit", "lost", "kept"),
    [
        (Truncation.MIDDLE, 21, 217 - 20, "Read: 012" + " Question?"),  # BOS is one of the ten in front
        (Truncation.MIDDLE_FLOOR, 21, 217 - 21, "Read: 012" + "9 Question?"),
        (Truncation.DOCUMENT_END, 21, 217 - 21, "Read: 0123 Question?"),
        (Truncation.DOCUMENT_MIDDLE, 21, 217 - 21, "Read: 0189 Question?"),
        (Truncation.MIDDLE, 217, 0, ""),
    ],
)
@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_what_was_cut_is_counted_and_kept(
    rule: Truncation, limit: int, lost: int, kept: str, template: str | None
) -> None:
    asked = prompt("0123456789" * 20, rule)
    request = prompter(template=template, max_prompt_tokens=limit).request(KEY, asked, Sampling())
    assert (request.original_tokens, request.tokens_cut, request.kept) == (217, lost, kept)
    assert request.truncated is (lost > 0)
    if kept:
        assert f"«s»{'user: ' if template else ''}{kept}" in read(request.token_ids)


@pytest.mark.parametrize(
    ("rule", "limit", "text"),
    [
        (Truncation.MIDDLE, 1, "abcdef"),  # int(1/2) tokens of each end
        (Truncation.MIDDLE, 2, "abcdef\n"),  # BOS and a line break
        (Truncation.MIDDLE_FLOOR, 3, "abcdef \n"),
    ],
)
@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_a_prompt_of_which_no_word_is_left_is_refused(
    rule: Truncation, limit: int, text: str, template: str | None
) -> None:
    asked = prompt(text, rule, before="", after="")
    with pytest.raises(PromptError, match=rf"b/t/s is empty after truncation: {limit} of its .* may remain") as caught:
        prompter(template=template, max_prompt_tokens=limit).request(KEY, asked, Sampling())
    assert f"--max-prompt-tokens is {limit}. Raise --max-prompt-tokens" in str(caught.value)
    assert "context window" not in str(caught.value)


LIMITED: dict[str, tuple[dict[str, int], dict[str, object], tuple[str, ...]]] = {
    "the option": ({"max_prompt_tokens": 12}, {}, ("--max-prompt-tokens is 12", "Raise --max-prompt-tokens, or")),
    "the window": ({"window": 24}, {}, ("the context window is 24 tokens", "Use a larger context window")),
    "the authors": (
        {"window": 400}, {"limits": {400: 3}},
        ("the benchmark's limit for a context window of 400 tokens is 3", "or set --max-prompt-tokens"),
    ),
    "the option and the window": (
        {"window": 24, "max_prompt_tokens": 12}, {},
        ("--max-prompt-tokens is 12, and the context window is 24", "leave it out. Use a larger context window"),
    ),
    "an option larger than the window": (
        {"window": 24, "max_prompt_tokens": 500}, {},
        ("the context window is 24 tokens", "Use a larger context window"),
    ),
}  # fmt: skip
RULES = [
    Truncation.REFUSE, Truncation.DOCUMENT_END, Truncation.DOCUMENT_MIDDLE, Truncation.WORDS_END,
    Truncation.WORDS_START,
]  # fmt: skip


@pytest.mark.parametrize("case", LIMITED)
@pytest.mark.parametrize("rule", RULES)
def test_a_refusal_names_the_limit_and_remedies_that_work(case: str, rule: Truncation) -> None:
    options, changes, words = LIMITED[case]
    asked = prompt("abcd abcd abcd", rule, **changes)
    with pytest.raises(PromptError) as caught:
        prompter(**options).request(KEY, asked, Sampling())
    for word in words:
        assert word in str(caught.value)
    for name in ("--max-prompt-tokens", "context window"):
        assert (name in str(caught.value)) is (name in "".join(words))
    if "leave it out" in caught.value.fix:
        options = {name: value for name, value in options.items() if name != "max_prompt_tokens"}
    larger = {**options, "window": 1000} if "larger context window" in caught.value.fix else options
    assert prompter(**larger).request(KEY, asked, Sampling()).token_ids
    if "fewer new tokens" in caught.value.fix:
        assert prompter(**options, max_new_tokens=1).request(KEY, asked, Sampling()).token_ids
    elif "window" in options and not asked.limits:
        with pytest.raises(PromptError):
            prompter(**options, max_new_tokens=1).request(KEY, asked, Sampling())


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(PromptError, match="prompt of b/t/s is empty"):
        prompter().request(KEY, prompt("\n", before="", after=" "), Sampling())


BARE = "{{ messages[0].content }}"
TWICE = "{{ bos_token }}{{ bos_token }}U:" + BARE


@pytest.mark.parametrize("template", [None, TEMPLATE, TWICE, BARE, "U:" + BARE])
@pytest.mark.parametrize("document", ["abc", "<s>", "a <s><s> b", "</s><s>"])
def test_there_is_one_bos_whoever_writes_it(template: str | None, document: str) -> None:
    request = prompter(template=template).request(KEY, prompt(document, before="", after=""), Sampling())
    assert request.bos_tokens == request.token_ids.count(BOS) == 1
    assert document in read(request.token_ids)


@pytest.mark.parametrize(
    ("template", "count"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ bos_token }}A:", 1),  # further on it opens or ends something
        ("{{ bos_token }}\n{{ bos_token }}U:{{ messages[0].content }}", 2),
        ("\n{{ bos_token }}U:{{ messages[0].content }}", 2),  # one is the template's, one the tokenizer's
        ("{{ bos_token }}{{ eos_token }}{{ bos_token }}U:{{ messages[0].content }}", 1),
    ],
)
def test_a_doubled_bos_is_one_before_the_first_word(template: str, count: int) -> None:
    assert prompter(template=template).request(KEY, prompt("abc"), Sampling()).bos_tokens == count


CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<s>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face</s>\n' }}{% endif %}"
    "{{'<s>' + message['role'] + '\n' + message['content'] + '</s>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)
"""SmolLM2's, with this tokenizer's tokens: its BOS opens every turn, and its tokenizer adds none."""


@pytest.mark.parametrize("adds", [False, True])
def test_a_bos_that_opens_every_turn_is_not_doubled(adds: bool) -> None:
    class ChatMl(ByteTokenizer):
        prefix_ids = (BOS,) if adds else ()

    template = ChatTemplate(CHATML, bos_token="<s>", eos_token="</s>")
    request = Prompter(ChatMl(CHATML), context_window=1000, template=template).request(KEY, prompt("abc"), Sampling())
    assert request.token_ids.count(BOS) == 3
    assert request.bos_tokens == 1


def test_models_without_a_bos_of_their_own() -> None:
    class NoBos(ByteTokenizer):
        bos_token, bos_id, prefix_ids = "", None, ()

    class BosIsEos(ByteTokenizer):
        bos_token, bos_id, prefix_ids = "</s>", EOS, ()

    template = ChatTemplate("{{ messages[0].content }}{{ eos_token }}A:", eos_token="</s>")
    for tokenizer, count in ((NoBos(), 0), (BosIsEos(), 0)):
        made = Prompter(tokenizer, context_window=1000, template=template)
        request = made.request(KEY, prompt("abc"), Sampling())
        assert request.token_ids.count(EOS) == 1
        assert request.bos_tokens == count


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% if enable_thinking is defined and enable_thinking is false %}x{% endif %}", True),
        ("{% if not enable_thinking is defined %}{% set enable_thinking = true %}{% endif %}", True),
        ("{% set enable_thinking = enable_thinking | default(false) %}{{ enable_thinking }}", True),
        ("{% for m in messages %}{% if enable_thinking %}{% break %}{% endif %}{% endfor %}", True),
        ("{% set enable_thinking = true %}{{ enable_thinking }}", False),
        ("enable_thinking {# {{ enable_thinking }} #}", False),
        ("{{ messages[0].enable_thinking }}{{ raise_exception('x') }}{{ messages | tojson }}", False),
        (TEMPLATE, False),
    ],
)
def test_which_switches_a_template_knows(source: str, expected: bool) -> None:
    assert ("enable_thinking" in template_variables(source)) is expected


def test_a_switch_changes_the_prompt() -> None:
    source = "{{ messages[0].content }} A:{% if not enable_thinking %}<think></think>{% else %}<think>{% endif %}"
    for thinking in (True, False):
        template = ChatTemplate(source, kwargs={"enable_thinking": thinking})
        made = Prompter(ByteTokenizer(source), context_window=1000, template=template)
        assert made.request(KEY, prompt("abc"), Sampling()).opens_reasoning is thinking


@pytest.mark.parametrize("source", ["{% if %}", "{{ x | no_such_filter }}"])
def test_a_broken_template_has_no_switches(source: str) -> None:
    with pytest.raises(BackendError, match="not valid Jinja"):
        template_variables(source)


@given(
    document=st.text(max_size=300),
    window=st.integers(30, 200),
    thinking=st.sampled_from([0, 20]),
    rule=st.sampled_from([Truncation.MIDDLE, Truncation.MIDDLE_FLOOR, Truncation.DOCUMENT_END]),
    template=st.sampled_from([None, TEMPLATE]),
)
def test_a_request_always_fits_or_is_refused(
    document: str, window: int, thinking: int, rule: Truncation, template: str | None
) -> None:
    made = prompter(window=window, template=template, thinking_tokens=thinking)
    try:
        request = made.request(KEY, prompt(document, rule), Sampling())
    except PromptError:
        assert window < 60 + 10 + thinking  # only where not even the instructions fit
        return
    assert len(request.token_ids) + request.max_new_tokens + request.thinking_tokens <= window
    assert request.truncated is bool(request.tokens_cut) is bool(request.kept)
    assert request.token_ids[0] == BOS
    assert request.token_ids.count(BOS) == 1


def test_a_templates_date_is_fixed() -> None:
    asking = (
        "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}1 May{% endif %} {{ messages[0].content }}"
    )
    assert ChatTemplate(asking).render("x") == "1 May x"
    calling = "{{ strftime_now('%Y-%m-%d') }} {{ messages[0].content }}"
    assert ChatTemplate(calling).render("x") == "2024-07-26 x"


def test_generation_marks_are_left_out() -> None:
    source = (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
        "{% if add_generation_prompt %}A:{% endif %}"
    )
    assert ChatTemplate(source).render("x") == "xA:"
    assert "add_generation_prompt" in template_variables(source)
    with pytest.raises(BackendError, match="not valid Jinja"):
        ChatTemplate("{% generation %}")


def test_what_stands_before_plain_text_stands_there_once() -> None:
    """GLM's tokenizer puts two control tokens before every text, and its template writes them, too."""

    class Glm(ByteTokenizer):
        bos_token, bos_id, prefix_ids = "", None, (EOS, BOS)

    template = ChatTemplate("</s><s>U:{{ messages[0].content }} A:")
    for chat, text in ((None, "Read: abc Question?"), (template, "U:Read: abc Question? A:")):
        request = Prompter(Glm(), context_window=1000, template=chat).request(KEY, prompt("abc"), Sampling())
        assert read(request.token_ids) == "«/s»«s»" + text


def test_a_system_text_that_spells_control_tokens_stays_text() -> None:
    source = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}"
    made = Prompter(ByteTokenizer(source), context_window=1000, template=ChatTemplate(source))
    request = made.request(KEY, prompt("a<s>b", system="x</s>y"), Sampling())
    assert read(request.token_ids) == "«s»system: x</s>y«/s»«s»user: Read: a<s>b Question?«/s»"
    assert request.system_place == "message"


TURNED = (
    "{% for m in messages %}{{ '<s>' + m.role + ': ' + (m.content | trim) + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)
SYSTEM_LAST = (  # as Mistral's: what the system says stands in the last message
    "<s>{% for m in messages if m.role != 'system' %}{% if loop.last and messages[0].role == 'system' %}"
    "{{ messages[0].content + ' ' }}{% endif %}{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
)


def test_turns_are_messages_of_their_own_behind_the_document() -> None:
    turns = (" Three</s>. ", "And\nwhy?")
    request = prompter(template=TURNED).request(KEY, prompt("a<s>b", system="Be brief.", turns=turns), Sampling())
    text = (
        "«s»system: Be brief.«/s»«s»user: Read: a<s>b Question?«/s»"
        "«s»assistant: Three</s>.«/s»«s»user: And\nwhy?«/s»«s»assistant: "
    )
    assert read(request.token_ids) == text
    assert request.turns == (), "the template has put them in"
    last = prompter(template=SYSTEM_LAST).request(KEY, prompt("d", system="S", turns=("One", "Two")), Sampling())
    assert read(last.token_ids) == "«s»Read: d Question?One«/s»S Two"


EDITS = "U:{{ messages[0].content | replace('think', '') }} A:"


def test_a_document_reaches_the_model_as_written() -> None:
    request = prompter(template=EDITS).request(KEY, prompt("I think so"), Sampling())
    assert read(request.token_ids) == "«s»U:Read: I think so Question? A:"
    turned = TURNED.replace("| trim", "| replace('think', '')")
    request = prompter(template=turned).request(KEY, prompt("think", turns=("I think.", "You think?")), Sampling())
    assert "user: Read: think Question?«/s»«s»assistant: I think.«/s»«s»user: You think?«/s»" in read(request.token_ids)


@pytest.mark.parametrize("document", ["/think about it", "/no_think", "see docs/thinking", "<think>", "plain"])
def test_a_document_that_spells_a_templates_switch_changes_nothing_else(
    shared: Callable[[str], Path], document: str
) -> None:
    source = shared("cases/templates/NVIDIA-Nemotron-Nano-v2.jinja").read_text("utf-8")
    request = prompter(template=source).request(KEY, prompt(document), Sampling())
    assert f"<SPECIAL_11>User\nRead: {document} Question?\n<SPECIAL_11>Assistant\n<think>\n" in read(request.token_ids)
    assert request.opens_reasoning


@pytest.mark.parametrize(
    ("template", "chat", "expected"),
    [
        (TEMPLATE, True, "«s»user: Read: a</s> Question?«/s»answer: It is"),
        (TEMPLATE, False, "«s»Read: a</s> Question? It is"),
        (None, True, "«s»Read: a</s> Question? It is"),
    ],
)
def test_an_answers_prefix_follows_the_template(template: str | None, chat: bool, expected: str) -> None:
    made = prompter(template=template)
    sent = made.read(KEY, prompt("a</s>", chat=chat, answer_prefix=" It is"), Sampling())
    assert read(sent.request.token_ids) == expected
    assert sent.request.prompt_sha256 == sha256_text(sent.text) and sent.text.endswith(" It is")
    assert sent.request.token_ids.count(BOS) == sent.request.bos_tokens == 1
    assert sent.request.prompt_sha256 != made.read(KEY, prompt("a</s>", chat=chat), Sampling()).request.prompt_sha256


@pytest.mark.parametrize("rule", [Truncation.MIDDLE, Truncation.DOCUMENT_END, Truncation.WORDS_END])
def test_an_answers_prefix_takes_its_room_and_is_never_cut(rule: Truncation) -> None:
    for chat in (True, False):
        cut = prompt("words " * 100, rule, chat=chat, answer_prefix=" It is </s>")
        sent = prompter(window=120, template=TEMPLATE).read(KEY, cut, Sampling())
        assert sent.request.truncated and len(sent.request.token_ids) + cut.max_new_tokens <= 120
        assert read(sent.request.token_ids).endswith("answer: It is </s>" if chat else " Question? It is </s>")


def test_an_answers_prefix_ends_the_last_message_for_a_server() -> None:
    served = Prompter(ByteTokenizer(), context_window=1000, sends_turns=True)
    request = served.request(KEY, prompt("a", turns=("b", "c"), answer_prefix=" It is"), Sampling())
    assert request.turns == ("b", "c It is")
    request = served.request(KEY, prompt("a", answer_prefix=" It is"), Sampling())
    assert read(request.token_ids).endswith("Question? It is")


def test_an_answers_prefix_does_not_close_the_reasoning() -> None:
    opening = TEMPLATE + "<think>\n"
    assert prompter(template=opening).request(KEY, prompt("a", answer_prefix="It is"), Sampling()).opens_reasoning
    assert not prompter(template=TEMPLATE).request(KEY, prompt("a", answer_prefix="It is"), Sampling()).opens_reasoning


def test_a_template_in_the_text_has_control_tokens() -> None:
    text = prompt("a", Truncation.REFUSE, before="<s>user: ", after="</s>answer:", chat=False, answer_prefix=" It is")
    as_text, as_tokens = (
        prompter().request(KEY, dataclasses.replace(text, reads_control_tokens=reads), Sampling()).token_ids
        for reads in (False, True)
    )
    assert read(as_text) == "«s»<s>user: a</s>answer: It is"
    assert read(as_tokens) == "«s»user: a«/s»answer: It is"


WHITE = st.text(st.sampled_from(" \n\t\u3000\x0b\x1c"), max_size=4)


@given(
    lead=WHITE,
    words=st.text(st.sampled_from("ab \n<s>"), min_size=1, max_size=8),
    trail=WHITE,
    kept=st.sampled_from(["", " | trim", ".strip()", ".strip('\n')", ".lstrip()", ".rstrip(' ')", "[:0] ~ m.content"]),
)
def test_white_space_around_a_message_is_the_templates_business(lead: str, words: str, trail: str, kept: str) -> None:
    template = ChatTemplate("{% for m in messages %}<s>U: {{ m.content" + kept + " }}</s>A:{% endfor %}")
    text = lead + words.strip() + trail
    wrapped = Wrapper(ByteTokenizer(), template).wrap(text, chat=True)
    assert wrapped.text == template.render(text)
    assert wrapped.text[wrapped.user_start :].startswith(wrapped.user_text + "</s>A:")


def test_a_message_whose_white_space_changes_the_frame_fails_alone() -> None:
    source = "{% if messages[0].content.startswith(' ') %}!{% endif %}U:{{ messages[0].content }} A:"
    made = prompter(template=source)
    assert read(made.request(KEY, prompt("abc"), Sampling()).token_ids) == "«s»U:Read: abc Question? A:"
    with pytest.raises(PromptError, match="white space around"):
        made.request(KEY, prompt("abc", before=" "), Sampling())


def test_a_template_that_repeats_the_message_is_an_error() -> None:
    with pytest.raises(BackendError, match="does not put the user's message"):
        prompter(template="{{ messages[0].content }} {{ messages[0].content }}").request(KEY, prompt("a"), Sampling())


@pytest.mark.parametrize(
    "template", [None, TEMPLATE, "{{ raise_exception('no system') if messages[1] }}U:{{ messages[0].content }}"]
)
@pytest.mark.parametrize("gap", ["", "\n\n"])
def test_a_system_message_in_the_text_stands_before_its_gap(template: str | None, gap: str) -> None:
    asked = prompt("abc", system="Be brief.", system_gap=gap, chat=template is not None)
    request = prompter(template=template).request(KEY, asked, Sampling())
    assert request.system_place == "text"
    assert f"Be brief.{gap}Read: abc" in read(request.token_ids)


def test_turns_stand_in_the_text_where_nobody_takes_messages() -> None:
    turned = prompt("d", turns=("One", "Two"))
    text = "«s»Read: d Question?\n\nOne\n\nTwo"
    assert read(prompter().request(KEY, turned, Sampling()).token_ids) == text
    bare = prompter(template=TURNED).request(KEY, dataclasses.replace(turned, chat=False), Sampling())
    assert read(bare.token_ids) == text


@pytest.mark.parametrize("template", [None, TURNED])
def test_only_the_document_of_a_conversation_is_cut(template: str | None) -> None:
    turned = prompt("d" * 400, Truncation.DOCUMENT_MIDDLE, turns=("One", "Two"))
    request = prompter(window=200, template=template).request(KEY, turned, Sampling())
    text = read(request.token_ids)
    assert "Read: d" in text and "d Question?" in text and "One" in text and "Two" in text
    assert len(request.token_ids) <= 190 and request.tokens_cut > 200


def test_a_template_that_drops_a_turn_is_an_error() -> None:
    first = "{{ messages[0].content }}"
    alone = prompter(template=first).request(KEY, prompt("d"), Sampling())
    assert read(alone.token_ids) == "«s»Read: d Question?"
    with pytest.raises(BackendError, match="the messages of a conversation"):
        prompter(template=first).request(KEY, prompt("d", turns=("One", "Two")), Sampling())


def test_the_place_of_a_cut_is_told() -> None:
    made = prompter(window=110, template=TEMPLATE)
    for rule in (Truncation.MIDDLE, Truncation.MIDDLE_FLOOR, Truncation.DOCUMENT_MIDDLE):
        found = made.read(KEY, prompt("a" * 500 + "b" * 500, rule), Sampling())
        assert found.cut_at is not None
        assert found.text[found.cut_at - 1 : found.cut_at + 1] == "ab"
    assert made.read(KEY, prompt("short"), Sampling()).cut_at is None
