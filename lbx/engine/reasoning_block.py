"""Reasoning block of an answer, found while the answer grows token by token."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from lbx.engine.prompter import Tokenizer
from lbx.engine.reasoning import ReasoningMarks, begins_message, opening_end, remove_headers
from lbx.engine.stopping import TokenTail

INCOMPLETE_CHARACTER = "\ufffd"
"""Character that an incomplete UTF-8 sequence decodes to."""


class Phase(Enum):
    """Phase of the output: whether the next token belongs to the reasoning or to the answer.

    OPENING: only blanks so far, or an incomplete mark: a block may begin.
    REASONING: inside the block.
    ANSWER: no block has opened, or it is closed.
    """

    OPENING = "opening"
    REASONING = "reasoning"
    ANSWER = "answer"


class ReasoningTag:
    """Opening or closing mark of reasoning, as a tokenizer encodes and decodes it.

    A tag with a control token never appears in decoded text: it is found by its ids, and ``TaggedText`` represents it
    by a lone surrogate, which decoded text cannot contain.
    """

    def __init__(self, text: str, tokenizer: Tokenizer, stand_in: str) -> None:
        controls = any(control in text for control in tokenizer.hidden_tokens)
        self.ids = tokenizer.encode(text, special=True) if controls else []
        self.text = stand_in if self.ids else text
        self.plain = tokenizer.decode(self.ids)

    def is_suffix_of(self, ids: Sequence[int]) -> bool:
        """Whether ``ids`` end with this tag. Always False for a tag without control tokens."""
        return bool(self.ids) and list(ids[-len(self.ids) :]) == self.ids

    def partial_length(self, ids: Sequence[int]) -> int:
        """Number of trailing ids that are the beginning of this tag. Always 0 for a tag without control tokens."""
        for count in range(min(len(self.ids) - 1, len(ids)), 0, -1):
            if list(ids[-count:]) == self.ids[:count]:
                return count
        return 0


class TaggedText:
    """Decoder that keeps the control tokens of reasoning tags in the text, as stand-in characters."""

    def __init__(self, tokenizer: Tokenizer, tags: Sequence[ReasoningTag]) -> None:
        self._tokenizer = tokenizer
        self._tags = [tag for tag in tags if tag.ids]

    def decode(self, ids: Sequence[int]) -> str:
        if not self._tags:
            return self._tokenizer.decode(ids)
        ids = list(ids)
        pieces: list[str] = []
        start = at = 0
        while at < len(ids):
            tag = next((m for m in self._tags if ids[at : at + len(m.ids)] == m.ids), None)
            if tag is None:
                at += 1
                continue
            pieces += [self._tokenizer.decode(ids[start:at]), tag.text]
            start = at = at + len(tag.ids)
        return "".join([*pieces, self._tokenizer.decode(ids[start:])])

    def plain(self, text: str) -> str:
        """Replace the stand-ins of tags in decoded text by the text that the tokenizer decodes the tags to."""
        for tag in self._tags:
            text = text.replace(tag.text, tag.plain)
        return text


class ReasoningBlock:
    """Incremental search for the reasoning block of an answer, as ``lbx.engine.reasoning`` defines it.

    Call ``observe`` after every token. Positions in the text are safe to keep: once a mark is complete, no later token
    changes the text up to it.

    Args:
        opened: the prompt ended in the opening mark.

    Attributes:
        phase: phase that the next token belongs to.
        is_present: whether there is a block.
        end: number of tokens up to the end of the closing mark.
        tokens: number of tokens in the block, including the marks.
    """

    def __init__(self, tokenizer: Tokenizer, *, opened: bool) -> None:
        marks = tokenizer.reasoning_marks
        self._opening = ReasoningTag(marks.open, tokenizer, "\ud800")
        self._closing = ReasoningTag(marks.close, tokenizer, "\ud801")
        header = [ReasoningTag(text, tokenizer, chr(0xD802 + number)) for number, text in enumerate(marks.header)]
        self._text = TaggedText(tokenizer, (self._opening, self._closing, *header))
        self._marks = ReasoningMarks(self._opening.text, self._closing.text, tuple(tag.text for tag in header))
        self._message_end = header[0] if header else None
        self._tail = TokenTail(() if self._closing.ids else (self._closing.text,), tokenizer)
        self._blank = 0  # number of leading tokens known to be blank
        self._leading_text = self._reasoning = ""
        self._answer_at = 0
        self.phase = Phase.REASONING if opened else Phase.OPENING
        self._opened_by_prompt = opened
        self.is_present = opened
        self.closed = False
        self.end = self.tokens = 0

    def observe(self, ids: Sequence[int]) -> None:
        """Advance the search for the end of the reasoning by the newest token, ``ids[-1]``."""
        if self.closed:
            return
        if self.phase is Phase.OPENING:
            self._look_for_opening(ids)
        self._tail.push(ids[-1])
        if self._closing.is_suffix_of(ids) or self._tail.may_contain_string():
            text, closing, opening = self._text.decode(ids), self._closing.text, self._opening.text
            start = opening_end(text, opening)
            at = text.find(closing, start)
            # only the tail looked like a mark, or it overlaps the opening mark
            if not at < 0:
                first = 0
                alone = not self._opened_by_prompt and not start and not self._marks.header
                if alone and (opening_at := text.find(opening, 0, at)) >= 0:
                    self._leading_text, start = text[:opening_at], opening_at + len(opening)
                    first = self._token_count_at(ids, opening_at)
                self._reasoning = text[start:at]
                self._answer_at = at + len(closing)
                self.phase, self.is_present, self.closed = Phase.ANSWER, True, True
                self.end, self.tokens = len(ids), len(ids) - first

    def ends_answer(self, ids: Sequence[int]) -> bool:
        """Whether the last token ends the answer's message. Always False for models that write no messages."""
        return self.closed and self._message_end is not None and self._message_end.is_suffix_of(ids)

    def split(self, ids: Sequence[int]) -> tuple[str, str]:
        """Return (reasoning, text before the block). Requires ``is_present``."""
        if self.closed:
            return self._words(self._reasoning), self._text.plain(self._leading_text)
        text = self._text.decode(ids)
        return self._words(text[opening_end(text, self._opening.text) :]), ""

    def answer(self, ids: Sequence[int]) -> str:
        """Text after the closing mark, including blanks. Requires ``closed``."""
        return self._text.plain(self._text.decode(ids)[self._answer_at :])

    def _words(self, reasoning: str) -> str:
        if header := self._marks.header:
            reasoning = remove_headers(reasoning.replace(self._opening.text, "".join(header[-2:])), self._marks)
        return self._text.plain(reasoning)

    def _look_for_opening(self, ids: Sequence[int]) -> None:
        recent = ids[self._blank :]
        tags = (self._opening, self._closing)  # a closing mark without an opening mark is a block, too
        n_partial = max(tag.partial_length(recent) for tag in tags)
        words = self._text.decode(recent[: len(recent) - n_partial]).lstrip()
        if words.startswith(self._opening.text) or begins_message(words, self._marks):
            self.phase, self.is_present = Phase.REASONING, True
        elif not words:
            self._blank = len(ids) - n_partial
        elif not any(tag.text.startswith(words.rstrip(INCOMPLETE_CHARACTER)) for tag in tags):
            self.phase = Phase.ANSWER

    def _token_count_at(self, ids: Sequence[int], position: int) -> int:
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if len(self._text.decode(ids[:middle])) <= position else (low, middle - 1)
        return low
