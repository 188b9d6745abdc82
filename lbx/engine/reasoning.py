"""Reasoning of models: marks around the reasoning, its split from the answer, and switches in chat templates.

Whether a text is a control token, as most marks are, is decided here, too (``is_control_token``).

A reasoning block is opened by the prompt or by an opening mark at the beginning of the output, or is recognised by its
closing mark only: all text before that was reasoning. The text after the first closing mark is the answer, including
other marks. An opening mark in the middle of an answer counts only if a closing mark follows.

Harmony (gpt-oss) writes several messages, each after a header that names its channel: the message of the final channel
is the answer, and everything before it is reasoning. Headers belong to neither.

Marks and switches of a chat template are found by rendering it: templates call their switch ``enable_thinking``,
``thinking_mode``, ``reasoning`` or ``thinking_budget``. So each variable about reasoning is tried with the values that
the template compares it with, and the ends of the prompts are compared: a prompt that ends in an opening mark makes the
model reason, and one with an empty block makes it answer at once.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice, product
from typing import Any, NamedTuple, Protocol

from lbx.base.errors import BackendError
from lbx.engine.chat_template import ChatTemplate, TemplateLimitError, Variable, template_variables

_HTML = frozenset(
    """
    a abbr b big blockquote body br button caption center cite code col dd del div dl dt em footer form h1 h2 h3 h4
    h5 h6 head header hr html i iframe img input ins kbd label li link main meta nav ol option p pre q s samp script
    section select small span strike strong style sub summary sup svg table tbody td textarea tfoot th thead title
    tr tt u ul var
    """.split()  # noqa: SIM905
)
_CONTROL_TAG = re.compile(r"</?([a-z]+[1-6]?)/?>")
_WORDS = re.compile(r"[\w\s▁]*")
_BRACKETS = frozenset("<>[]|｜")


def is_control_token(text: str, chat_template: str | None) -> bool:
    """Whether an added token without the special flag steers the model, like the role tokens of DeepSeek and Command R.

    Other added tokens shorten texts: words, runs of blanks (Phi-2, Gemma), HTML tags (Gemma). They are used in the
    encoding of documents.

    Args:
        chat_template: Jinja source of the template in use, or None.
    """
    if _WORDS.fullmatch(text) or not any(map(str.isalnum, text)):
        return False
    if text in (chat_template or ""):
        return True
    tag = _CONTROL_TAG.fullmatch(text)
    if tag and tag[1] in _HTML:
        return False
    return not _BRACKETS.isdisjoint(text)


def is_control_name(text: str) -> bool:
    """Whether a token's text looks like a control token, such as <|end|>, in a vocabulary that does not flag them."""
    is_bracketed = text[:1] in _BRACKETS and text[-1:] in _BRACKETS
    return text in ("<s>", "</s>") or (is_bracketed and is_control_token(text, None))


class _Encoder(Protocol):
    def encode(self, text: str, *, special: bool) -> list[int]: ...


def encode_separately(tokenizer: _Encoder, pieces: Sequence[str | int]) -> list[int]:
    """Encode texts and ids of control tokens in order, so that control tokens do not affect the texts around them."""
    parts = ([piece] if isinstance(piece, int) else tokenizer.encode(piece, special=False) for piece in pieces)
    return [token for part in parts for token in part]


class ReasoningMarks(NamedTuple):
    """Marks that open and close reasoning, as texts, also for control tokens.

    Attributes:
        header: for answers in several messages: end of a message, alternative beginnings of a header, and last the end
            of the header. () for others.
        end: text that ends the answer after the reasoning, or "" if only the end of sequence ends answers.
    """

    open: str
    close: str
    header: tuple[str, ...] = ()
    end: str = ""


THINK = ReasoningMarks("<think>", "</think>")
KNOWN_MARKS = (
    THINK,
    ReasoningMarks("[THINK]", "[/THINK]"),  # Magistral
    ReasoningMarks("<seed:think>", "</seed:think>"),  # Seed-OSS
    ReasoningMarks("<|channel>thought", "<channel|>"),  # Gemma 4
    ReasoningMarks("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", end="[END FINAL RESPONSE]"),  # Apriel
    # Harmony: a model that skips the analysis goes to the final channel at once, so the close is short.
    ReasoningMarks(
        "<|channel|>analysis<|message|>",
        "<|channel|>final<|message|>",
        ("<|end|>", "<|start|>", "<|channel|>", "<|message|>"),
    ),
)


def choose_marks(
    template: str | None, is_token: Callable[[str], bool], card_marks: tuple[str, str] | None = None
) -> ReasoningMarks:
    """Choose a model's reasoning marks.

    In order of preference: the marks in the card, known marks in the template, marks that the template puts around
    reasoning, known marks that are tokens, and <think>.

    Args:
        template: Jinja source of the chat template, or None.
        is_token: whether exactly this text is a token of the tokenizer.
    """
    if card_marks is not None:
        return next((marks for marks in KNOWN_MARKS if marks[:2] == card_marks), ReasoningMarks(*card_marks))
    if template is not None:
        for marks in KNOWN_MARKS:
            if marks.open in template or marks.close in template:
                return marks
        if (found := find_marks(template)) is not None:
            return found
    return next((marks for marks in KNOWN_MARKS if is_token(marks.open) and is_token(marks.close)), THINK)


def opens_reasoning(prompt: str, marks: ReasoningMarks) -> bool:
    """Whether a prompt ends in an opening mark, ignoring trailing blanks."""
    return prompt.rstrip().endswith(marks.open)


def split_reasoning(text: str, *, opened: bool = False, marks: ReasoningMarks = THINK) -> tuple[str | None, str]:
    """Split generated text into (reasoning, answer).

    Args:
        opened: the prompt ended in the opening mark, so the text begins inside the reasoning.

    Returns:
        reasoning: reasoning without outer blanks, or None without reasoning. A block without a closing mark is all
            reasoning, with the answer "".
        answer: text after the first closing mark, without leading blanks; text before an opening mark is kept in
            front. Text without a block is returned unchanged. Of several messages, the first one after the mark is the
            answer.
    """
    start = opening_end(text, marks.open)
    inside = opened or start > 0 or begins_message(text, marks)
    at = text.find(marks.close, start)
    if at < 0:
        return (remove_headers(text[start:], marks), "") if inside else (None, text)
    before = ""
    if not inside and not marks.header:
        head, opening, _ = text[:at].partition(marks.open)
        if opening:
            before, start = head, len(head) + len(marks.open)
    return remove_headers(text[start:at], marks), before + text_after_mark(text, at, marks)


def text_after_mark(text: str, at: int, marks: ReasoningMarks) -> str:
    """Text of the answer after the closing mark at index ``at``, without leading blanks."""
    answer = text[at + len(marks.close) :].lstrip()
    return answer.partition(marks.header[0])[0] if marks.header else answer


def begins_message(text: str, marks: ReasoningMarks) -> bool:
    """Whether a text begins with the header of a message before the answer, i.e. not with the closing mark."""
    words = text.lstrip()
    return bool(marks.header) and words.startswith(marks.header[:-1]) and not words.startswith(marks.close)


def remove_headers(reasoning: str, marks: ReasoningMarks) -> str:
    """Remove the headers of messages, even a truncated header, from reasoning, and join messages by empty lines."""
    if not marks.header:
        return reasoning.strip()
    begins = "|".join(map(re.escape, marks.header[:-1]))
    header = f"(?:{begins}).*?(?:{re.escape(marks.header[-1])}|$)"
    messages = (message.strip() for message in re.split(header, reasoning, flags=re.DOTALL))
    return "\n\n".join(filter(None, messages))


def opening_end(text: str, mark: str) -> int:
    """Index of the end of the opening mark at the beginning of a text, ignoring blanks, or 0 without such a mark."""
    blank = len(text) - len(text.lstrip())
    return blank + len(mark) if text.startswith(mark, blank) else 0


_ABOUT_REASONING = re.compile("think|thought|reason", re.IGNORECASE)
_ABOUT_LEVELS = ("reasoning_effort", "thinking_effort")
_NEGATIVE = re.compile("^(no|skip|disable|hide|drop|strip|clear|truncate|without)_")
_USER, _THOUGHT, _ANSWER = "\ue006", "\ue007", "\ue008"
_TAG = re.compile(r"(?:<[^<>\s]{1,40}>|\[[^\[\]\s]{1,40}\])\w*$")
_FIRST_TAG = re.compile(r"<[^<>\s]{1,40}>|\[[^\[\]\s]{1,40}\]")
_EMPTY_BLOCK = re.compile(r"\s*(<[^<>\s]{1,40}>|\[[^\[\]\s]{1,40}\])\s*(<[^<>\s]{1,40}>|\[[^\[\]\s]{1,40}\])\s*")
_UNKNOWN_LEVEL = "\ue004"
_MOST = 16
"""Maximum number of variables that are tried, and of words of each: an unknown template must not take minutes."""

Values = Mapping[str, object]


@lru_cache(8)
def find_marks(source: str) -> ReasoningMarks | None:
    """Find the marks that a template puts around the reasoning of an answer."""
    if not _ABOUT_REASONING.search(source):
        return None
    try:
        template, variables = ChatTemplate(source), reasoning_variables(source)
        on = {
            name: True for name, variable in variables.items() if not variable.is_number and not _NEGATIVE.search(name)
        }
        for values, answer in product(({}, on), _answers()):
            if marks := _marks_around(template.with_variables(values), answer):
                return marks
        return _marks_of_empty_block(template, variables)
    except BackendError:  # reported when the template is used
        return None


def reasoning_variables(source: str) -> dict[str, Variable]:
    """Find the variables about reasoning that a template reads, at most ``_MOST``, with at most ``_MOST`` words each.

    Raises:
        BackendError: the template is not valid Jinja.
    """
    names = {name: variable for name, variable in template_variables(source).items() if _ABOUT_REASONING.search(name)}
    return {name: variable._replace(words=variable.words[:_MOST]) for name, variable in islice(names.items(), _MOST)}


class ReasoningSwitch(NamedTuple):
    """Reasoning switch of a template: values of variables that turn reasoning on and off, or None if no value does."""

    on_values: Values | None
    off_values: Values | None


def find_switch(template: ChatTemplate, marks: ReasoningMarks, levels: Sequence[str]) -> ReasoningSwitch:
    """Find the reasoning switch of a template. Its other variables are set already.

    Args:
        levels: levels of reasoning, the highest last; of several that turn reasoning on, the highest is chosen.

    Raises:
        BackendError: the template is not valid Jinja.
    """
    prompt = partial(_prompt, template)
    plain = prompt({})
    booleans: list[tuple[Values, Values]] = []
    switches: list[ReasoningSwitch] = []
    for name, variable in reasoning_variables(template.source).items():
        if not variable.is_number and (pair := _boolean_switch(prompt, name, variable, marks)) is not None:
            booleans.append(pair)
        else:
            words = sorted(variable.words, key=[*variable.words, *levels][::-1].index)
            prompts = {word: prompt({name: word}) for word in ((0,) if variable.is_number else words)}
            on = next(({name: word} for word, text in prompts.items() if _has_open_block(text, marks)), None)
            off = next(({name: word} for word, text in prompts.items() if _has_closed_block(text, marks)), None)
            switches.append(ReasoningSwitch(on, off))
    if booleans:
        return ReasoningSwitch(*(dict(ChainMap(*map(dict, side))) for side in zip(*booleans, strict=True)))
    found = next((pair for pair in switches if any(values is not None for values in pair)), ReasoningSwitch(None, None))
    unsaid = found.on_values is None and found.off_values is not None and not _has_closed_block(plain, marks)
    return found._replace(on_values={}) if unsaid or _has_open_block(plain, marks) else found


def find_levels(template: ChatTemplate, levels: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Find a template's variables for the level of reasoning, as {variable: levels that change the prompt}.

    Raises:
        BackendError: the template is not valid Jinja.
    """
    found = {}
    for name, variable in reasoning_variables(template.source).items():
        if name in _ABOUT_LEVELS or {*levels} & {*variable.words}:
            unknown = _prompt(template, {name: _UNKNOWN_LEVEL})
            found[name] = tuple(level for level in levels if _prompt(template, {name: level}) not in (None, unknown))
    return found


def _prompt(template: ChatTemplate, values: Values) -> str | None:
    """Render a prompt with values of variables, or return None if the template refuses the values."""
    try:
        return template.with_variables(values).render(_USER)
    except TemplateLimitError:
        raise
    except BackendError:
        return None


def _boolean_switch(
    prompt: Callable[[Values], str | None], name: str, variable: Variable, marks: ReasoningMarks
) -> tuple[Values, Values] | None:
    """Values (on, off) of a boolean template variable that switches reasoning, or None for another variable."""
    true, false = prompt({name: True}), prompt({name: False})
    if true is None or false is None or true == false:
        return None
    sides = {name: True}, {name: False}
    for test, expected in ((_has_open_block, True), (_has_closed_block, False)):
        if test(true, marks) != test(false, marks):
            return sides if test(true, marks) is expected else sides[::-1]
    return None if variable.words or _NEGATIVE.search(name) else sides


def _has_open_block(prompt: str | None, marks: ReasoningMarks) -> bool:
    return prompt is not None and prompt.rstrip().endswith(marks.open)


def _has_closed_block(prompt: str | None, marks: ReasoningMarks) -> bool:
    """Whether a prompt closes a reasoning block after the user's message: an empty block, or only a closing mark."""
    if prompt is None or _has_open_block(prompt, marks):
        return False
    tail = prompt.partition(_USER)[2]
    return marks.open in tail or tail.rstrip().endswith(marks.close)


def _answers() -> Iterator[dict[str, Any]]:
    """Yield an answer with reasoning in each message format that templates accept."""
    thought = {"reasoning_content": _THOUGHT, "reasoning": _THOUGHT, "thinking": _THOUGHT, "thought": _THOUGHT}
    parts = [{"type": "thinking", "thinking": _THOUGHT}, {"type": "text", "text": _ANSWER}]
    blocks = [{"type": "thoughts", "text": _THOUGHT}, {"type": "response", "text": _ANSWER}]
    for message in ({"content": _ANSWER, **thought}, {"content": parts}, {"content": {"blocks": blocks}}):
        yield {"role": "assistant", **message}


def _marks_around(template: ChatTemplate, answer: Mapping[str, Any]) -> ReasoningMarks | None:
    question = {"role": "user", "content": _USER}
    plain = {"role": "assistant", "content": _ANSWER}
    try:
        text = template.render_messages([question, answer], adds_prompt=False)
        past = template.render_messages([question, plain, question], adds_prompt=False)
    except TemplateLimitError:
        raise
    except BackendError:  # the template does not accept this message
        return None
    head, thought, rest = text.partition(_THOUGHT)
    between, answered, _ = rest.partition(_ANSWER)
    opening, close = _TAG.search(head.rstrip()), between.strip()
    # A tag that also precedes answers without reasoning is the header of the message.
    header = _TAG.search(past.partition(_ANSWER)[0].rstrip())
    if not (thought and answered and opening and close) or (header and header.group() == opening.group()):
        return None
    first = _FIRST_TAG.match(close)
    is_unique = first is not None and first.group() not in past  # otherwise it is the header of the answer
    return ReasoningMarks(opening.group(), first.group() if first and is_unique else close)


def _marks_of_empty_block(template: ChatTemplate, variables: Mapping[str, Variable]) -> ReasoningMarks | None:
    """Find the marks of the empty block that a value of a variable adds to the end of a prompt."""
    for name in variables:
        ends = [(_prompt(template, {name: value}) or "").partition(_USER)[2] for value in (True, False)]
        short, long = sorted(ends, key=len)
        block = _EMPTY_BLOCK.fullmatch(long[len(short) :]) if short and long.startswith(short) else None
        if block:
            return ReasoningMarks(block[1], block[2])
    return None
