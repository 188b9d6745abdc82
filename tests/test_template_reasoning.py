"""What a chat template says about reasoning: marks and switches, found by rendering it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.backends.scripted import ByteTokenizer
from lbx.base.records import Prompt, SampleKey, Sampling, Truncation
from lbx.engine.chat_template import ChatTemplate
from lbx.engine.prompter import Prompter
from lbx.engine.reasoning import (
    THINK,
    ReasoningMarks,
    choose_marks,
    find_levels,
    find_marks,
    find_switch,
    split_reasoning,
)
from lbx.options.asking import EFFORTS

TURNS = "{% for m in messages %}<|{{ m.role }}|>{{ BODY }}<|end|>{% endfor %}{% if add_generation_prompt %}"


def template(body: str, end: str, head: str = "") -> str:
    """Jinja source of a template with this body of a message and this beginning of an answer."""
    return head + TURNS.replace("{{ BODY }}", body) + "<|assistant|>" + end + "{% endif %}"


def thought(field: str, opening: str, closing: str) -> str:
    return f"{{% if m.{field} %}}{opening}{{{{ m.{field} }}}}{closing}{{% endif %}}{{{{ m.content }}}}"


NAMED = template(
    thought("reasoning_content", "{{ mark }}", "{{ close }}\n"), "", "{% set mark, close = '<mm:' ~ 'x>', '</mm:x>' %}"
)
BLOCKS = template(
    "{% if m.content is string %}{{ m.content }}{% else %}{% for b in m.content.blocks %}"
    "{{ '<|inner|>' ~ b.text ~ '<|outer|>' if b.type == 'thoughts' else b.text }}{% endfor %}{% endif %}",
    "",
)
MESSAGES = template(
    "{% if m.reasoning %}<|deep|>{{ m.reasoning }}<|end|><|assistant|><|say|>{% elif m.role == 'assistant' %}<|say|>"
    "{% endif %}{{ m.content }}",
    "",
)
ONLY_WHEN_ON = template(
    "{% if thinking_shown and m.reasoning_content %}<pause>{{ m.reasoning_content }}</pause>{% endif %}{{ m.content }}",
    "",
)
EMPTY_BLOCK = template("{{ m.content }}", "{% if not enable_thinking %}<|a|><|b|>{% endif %}")
HEADERS = template("{% if m.reasoning %}{{ m.reasoning }}<|end|><|assistant|>{% endif %}{{ m.content }}", "")
NONE = template("{{ m.content }}", "")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (NAMED, ReasoningMarks("<mm:x>", "</mm:x>")),
        (BLOCKS, ReasoningMarks("<|inner|>", "<|outer|>")),
        (MESSAGES, ReasoningMarks("<|deep|>", "<|end|><|assistant|><|say|>")),
        (ONLY_WHEN_ON, ReasoningMarks("<pause>", "</pause>")),
        (EMPTY_BLOCK, ReasoningMarks("<|a|>", "<|b|>")),
        (HEADERS, None),
        (NONE, None),
        (template("{{ raise_exception('thinking') }}", ""), None),
        ("{% if thinking %}", None),
    ],
    ids=["fields", "blocks", "messages", "behind a switch", "empty block", "headers alone", "none", "fails", "invalid"],
)
def test_marks_are_those_that_the_template_puts_around_reasoning(source: str, expected: ReasoningMarks | None) -> None:
    assert find_marks(source) == expected
    assert choose_marks(source, lambda text: False) == (expected or THINK)
    assert choose_marks(source, lambda text: False, ("<a>", "<b>")) == ReasoningMarks("<a>", "<b>")
    if expected:
        text = f"{expected.open}three ships{expected.close}(B)"
        assert split_reasoning(text, marks=expected) == ("three ships", "(B)")


def test_the_marks_of_the_shared_case(shared: Callable[[str], Path]) -> None:
    source = shared("cases/templates/CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja").read_text("utf-8")
    marks = choose_marks(source, lambda text: False)
    assert marks == ReasoningMarks("<|START_THINKING|>", "<|END_THINKING|>")
    assert find_switch(ChatTemplate(source), marks, EFFORTS) == ({"enable_thinking": True}, {"enable_thinking": False})


@pytest.mark.parametrize("close", ["[BEGIN FINAL RESPONSE]", "\n[BEGIN FINAL RESPONSE]\n"])
def test_a_close_of_words_is_known(close: str) -> None:
    source = template("{{ m.content }}", "Here are my reasoning steps:\n", "Answer after [BEGIN FINAL RESPONSE].")
    marks = choose_marks(source, lambda text: False)
    assert split_reasoning(f"three ships{close}(B)", opened=True, marks=marks) == ("three ships", "(B)")
    asked = Prompt("", "abc", "", max_new_tokens=9, truncation=Truncation.REFUSE)
    made = Prompter(ByteTokenizer(source), context_window=999, template=ChatTemplate(source))
    request = made.request(SampleKey("b", "t", "s"), asked, Sampling())
    assert request.opens_reasoning
    assert request.stop == ("[END FINAL RESPONSE]",)


END = "{% if SWITCH %}<think>{% else %}<think></think>{% endif %}"
HY3 = "{% if effort is not defined %}{% set effort = 'no_think' %}{% elif effort not in ['high', 'low', 'no_think'] %}"
HY3 = HY3.replace("effort", "reasoning_effort") + "{{ raise_exception('no such effort') }}{% endif %}"
MODES = (
    "{% if thinking_mode == 'disabled' %}</think>{% elif thinking_mode == 'adaptive' %}"
    "{% elif thinking_mode == 'enabled' %}<think>{% endif %}"
)


@pytest.mark.parametrize(
    ("end", "head", "on", "off"),
    [
        (END.replace("SWITCH", "enable_thinking"), "", {"enable_thinking": True}, {"enable_thinking": False}),
        (END.replace("SWITCH", "reasoning"), "", {"reasoning": True}, {"reasoning": False}),
        (END.replace("SWITCH", "not no_thoughts"), "", {"no_thoughts": False}, {"no_thoughts": True}),
        (END.replace("SWITCH", "not thinking_budget == 0"), "", {}, {"thinking_budget": 0}),
        (MODES, "", {"thinking_mode": "enabled"}, {"thinking_mode": "disabled"}),
        (
            END.replace("SWITCH", "reasoning_effort != 'no_think'"), HY3, {"reasoning_effort": "high"},
            {"reasoning_effort": "no_think"},
        ),
        (
            "{% if reasoning_effort in ['low', 'minimal'] %}<think></think>{% endif %}", "", {},
            {"reasoning_effort": "low"},
        ),
        ("", "{% if enable_thinking %}Deliberate.{% endif %}", {"enable_thinking": True}, {"enable_thinking": False}),
        ("", "{% set s = 'on' if thinking else 'off' %}{{ s }}", {"thinking": True}, {"thinking": False}),
        ("", "{% if skip_thinking %}Be brief.{% endif %}", None, None),
        ("<think>\n", "", {}, None),
        ("", "{% if keep_thinking and messages[1] %}x{% endif %}", None, None),
        ("", "Effort: {{ reasoning_effort | default('medium') }}.", None, None),
        ("", "", None, None),
    ],
    ids=[
        "boolean", "of another name", "inverted", "number", "modes", "levels", "level for none", "instruction", "word",
        "negative name", "always", "no effect", "level alone", "none",
    ],
)  # fmt: skip
def test_the_switch_is_what_changes_the_prompt(end: str, head: str, on: object, off: object) -> None:
    source = template("{{ m.content }}", end, head)
    assert find_switch(ChatTemplate(source), THINK, EFFORTS) == (on, off)


@pytest.mark.parametrize(
    ("head", "levels"),
    [
        ("Effort: {{ reasoning_effort | default('medium') }}.", {"reasoning_effort": EFFORTS}),
        ("{% set s = reasoning_strength or 'high' %}Strength: {{ s }}.", {"reasoning_strength": EFFORTS}),
        ("{{ 'low' if enable_thinking else 'high' }}", {}),
        (HY3 + "{{ reasoning_effort }}", {"reasoning_effort": ("low", "high")}),
        ("{% if thinking_option == 'on' %}{{ thinking_option }}{% endif %}", {}),
        ("{{ reasoning_effort is defined }}", {"reasoning_effort": ()}),
    ],
)  # fmt: skip
def test_levels_are_those_that_change_the_prompt(head: str, levels: object) -> None:
    assert find_levels(ChatTemplate(template("{{ m.content }}", "", head)), EFFORTS) == levels
