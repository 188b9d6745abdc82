"""Where the reasoning stands in an answer that grows token by token."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from lbx.inference.text import HALF, Tail
from lbx.prompting.prompter import Tokenizer
from lbx.prompting.reasoning import Marks, begins_message, opening_end, without_headers


class Phase(Enum):
    """What the next token belongs to.

    OPENING: nothing but blanks so far, or a part of a mark: a block may begin.
    REASONING: inside the block.
    ANSWER: no block has opened, or it is closed.
    """

    OPENING = "opening"
    REASONING = "reasoning"
    ANSWER = "answer"


class Mark:
    """One mark, as this tokenizer would show it.

    A mark with a control token in it never appears in decoded text: it is looked for as a sequence of ids, and stands
    in ``MarkedText`` as a lone surrogate, which decoded text cannot hold.
    """

    def __init__(self, text: str, tokenizer: Tokenizer, stand_in: str) -> None:
        controls = any(control in text for control in tokenizer.control_tokens)
        self.ids = tokenizer.encode(text, special=True) if controls else []
        self.text = stand_in if self.ids else text
        self.plain = tokenizer.decode(self.ids)

    def ends(self, ids: Sequence[int]) -> bool:
        """Whether the ids end in the mark; False for a mark of text."""
        return bool(self.ids) and list(ids[-len(self.ids) :]) == self.ids

    def begun(self, ids: Sequence[int]) -> int:
        """How many of the last ids are the beginning of the mark, and not the whole of it; 0 for a mark of text."""
        for count in range(min(len(self.ids) - 1, len(ids)), 0, -1):
            if list(ids[-count:]) == self.ids[:count]:
                return count
        return 0


class MarkedText:
    """Decodes ids so that marks made of control tokens can be seen."""

    def __init__(self, tokenizer: Tokenizer, marks: Sequence[Mark]) -> None:
        self._tokenizer = tokenizer
        self._marks = [mark for mark in marks if mark.ids]

    def decode(self, ids: Sequence[int]) -> str:
        if not self._marks:
            return self._tokenizer.decode(ids)
        ids = list(ids)
        pieces: list[str] = []
        start = at = 0
        while at < len(ids):
            mark = next((m for m in self._marks if ids[at : at + len(m.ids)] == m.ids), None)
            if mark is None:
                at += 1
                continue
            pieces += [self._tokenizer.decode(ids[start:at]), mark.text]
            start = at = at + len(mark.ids)
        return "".join([*pieces, self._tokenizer.decode(ids[start:])])

    def plain(self, text: str) -> str:
        """A part of decoded text as it reads with control tokens left out."""
        for mark in self._marks:
            text = text.replace(mark.text, mark.plain)
        return text


class ReasoningBlock:
    """Finds the block of reasoning by the rule of ``lbx.prompting.reasoning``, looking at the tail of the output only.

    Call ``follow`` after every token. Positions in the text are safe to keep: once a mark is complete, no later token
    changes the text up to it.

    Args:
        opened: the prompt ended in the opening mark.

    Attributes:
        phase: what the next token belongs to.
        found: whether there is a block.
        closed: whether it is closed.
        end: how many tokens there were when it closed, its closing mark included.
        tokens: how many of those are the block's, marks included.
    """

    def __init__(self, tokenizer: Tokenizer, *, opened: bool) -> None:
        marks = tokenizer.reasoning_marks
        self._opening = Mark(marks.open, tokenizer, "\ud800")
        self._closing = Mark(marks.close, tokenizer, "\ud801")
        header = [Mark(text, tokenizer, chr(0xD802 + number)) for number, text in enumerate(marks.header)]
        self._text = MarkedText(tokenizer, (self._opening, self._closing, *header))
        self._marks = Marks(self._opening.text, self._closing.text, tuple(mark.text for mark in header))
        self._message_end = header[0] if header else None
        self._tail = Tail(() if self._closing.ids else (self._closing.text,), tokenizer)
        self._blank = 0  # so many leading tokens are known to be blank
        self._before = self._reasoning = ""
        self._answer_at = 0
        self.phase = Phase.REASONING if opened else Phase.OPENING
        self._opened_by_prompt = opened
        self.found = opened
        self.closed = False
        self.end = self.tokens = 0

    def follow(self, ids: Sequence[int]) -> None:
        """Take note of the last of these tokens."""
        if self.closed:
            return
        if self.phase is Phase.OPENING:
            self._look_for_opening(ids)
        self._tail.push(ids[-1])
        if self._closing.ends(ids) or self._tail.hit():
            self._close(ids)

    def ends_answer(self, ids: Sequence[int]) -> bool:
        """Whether the last of these tokens ends the message that is the answer; only where answers are messages."""
        return self.closed and self._message_end is not None and self._message_end.ends(ids)

    def split(self, ids: Sequence[int]) -> tuple[str, str]:
        """(reasoning, the text before the block); only where a block was found."""
        if self.closed:
            return self._words(self._reasoning), self._text.plain(self._before)
        text = self._text.decode(ids)
        return self._words(text[opening_end(text, self._opening.text) :]), ""

    def answer(self, ids: Sequence[int]) -> str:
        """The text behind the closing mark, blanks included; only where it is closed."""
        return self._text.plain(self._text.decode(ids)[self._answer_at :])

    def _words(self, reasoning: str) -> str:
        if header := self._marks.header:
            reasoning = without_headers(reasoning.replace(self._opening.text, "".join(header[-2:])), self._marks)
        return self._text.plain(reasoning)

    def _look_for_opening(self, ids: Sequence[int]) -> None:
        recent = ids[self._blank :]
        marks = (self._opening, self._closing)  # a closing mark alone makes a block, too
        begun = max(mark.begun(recent) for mark in marks)
        words = self._text.decode(recent[: len(recent) - begun]).lstrip()
        if words.startswith(self._opening.text) or begins_message(words, self._marks):
            self.phase, self.found = Phase.REASONING, True
        elif not words:
            self._blank = len(ids) - begun
        elif not any(mark.text.startswith(words.rstrip(HALF)) for mark in marks):
            self.phase = Phase.ANSWER

    def _close(self, ids: Sequence[int]) -> None:
        text, closing, opening = self._text.decode(ids), self._closing.text, self._opening.text
        start = opening_end(text, opening)
        at = text.find(closing, start)
        if at < 0:
            return  # the tail alone made it look like one, or it overlaps the opening mark
        first = 0
        alone = not self._opened_by_prompt and not start and not self._marks.header
        if alone and (found := text.find(opening, 0, at)) >= 0:
            self._before, start = text[:found], found + len(opening)
            first = self._tokens_before(ids, found)
        self._reasoning = text[start:at]
        self._answer_at = at + len(closing)
        self.phase, self.found, self.closed = Phase.ANSWER, True, True
        self.end, self.tokens = len(ids), len(ids) - first

    def _tokens_before(self, ids: Sequence[int], position: int) -> int:
        """How many tokens end at or before a place in the text."""
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if len(self._text.decode(ids[:middle])) <= position else (low, middle - 1)
        return low
