"""Reasoning, stop strings and stop tokens in an answer that grows token by token."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum

from lbx.prompting.control_tokens import ReasoningMarks
from lbx.prompting.prompter import Tokenizer
from lbx.prompting.reasoning import begins_message, opening_end, without_headers

INCOMPLETE_CHARACTER = "\ufffd"
"""Decoded form of a character with missing last bytes."""


class Tail:
    """Tail of the generated tokens, long enough to detect a string that was just completed.

    Args:
        strings: not empty.
    """

    def __init__(self, strings: Sequence[str], tokenizer: Tokenizer) -> None:
        self._strings = tuple(strings)
        self._tokenizer = tokenizer
        self._silent = frozenset(tokenizer.hidden_tokens.values())
        # A token that is no control token is at least one byte long, so this many tokens contain any of the strings;
        # a few more, because the first of them may begin inside a character or lose its leading space.
        self._length = max((len(s.encode("utf-8", "replace")) for s in self._strings), default=0) + 5
        self._recent: list[int] = []

    def push(self, *tokens: int) -> None:
        heard = [token for token in tokens if token not in self._silent]
        self._recent = [*self._recent, *heard][-self._length :]

    def hit(self) -> bool:
        """Whether the tail contains a string; only the whole text can confirm it."""
        if not self._strings:
            return False
        tail = self._tokenizer.decode(self._recent)
        return any(s in tail for s in self._strings)


class Stops:
    """Search for the first stop string or stop token of an answer.

    Args:
        stop: stop strings; empty ones are ignored.
        exempt: number of leading tokens that are not searched (``Request.min_new_tokens``).
        tokens: stop tokens.
        view: decodes all tokens to the text that is searched; default: the tokenizer's.
        skip_blank: ignore stops in leading blanks.
        prefix_ids: tokens before the first call of ``find``.
    """

    def __init__(
        self,
        stop: Sequence[str],
        tokenizer: Tokenizer,
        exempt: int,
        *,
        tokens: Collection[int] = (),
        view: Callable[[Sequence[int]], str] | None = None,
        skip_blank: bool = False,
        prefix_ids: Sequence[int] = (),
    ) -> None:
        self._stop = tuple(s for s in stop if s)
        self._exempt = exempt
        self._tokens = frozenset(tokens)
        self._view = view or tokenizer.decode
        self._skip_blank = skip_blank
        self._tail = Tail(self._stop, tokenizer)
        self._tail.push(*prefix_ids)

    def find(self, ids: Sequence[int]) -> str | None:
        """Text before the first stop, if there is one. Call it after every token."""
        if not self._stop and not self._tokens:
            return None
        self._tail.push(ids[-1])
        if len(ids) <= self._exempt:
            return None
        if ids[-1] in self._tokens and ((text := self._view(ids[:-1])).strip() or not self._skip_blank):
            return text
        if not self._tail.hit():
            return None
        text = self._view(ids)
        start = len(text) - len(text.lstrip()) if self._skip_blank else 0
        if self._exempt:
            start = max(start, len(self._view(ids[: self._exempt])))
        places = [at for s in self._stop if (at := text.find(s, start)) >= 0]
        return text[: min(places)] if places else None


def stop_ids(stop: Sequence[str], tokenizer: Tokenizer) -> frozenset[int]:
    """Tokens with exactly one of these texts: they stop an answer, and are forbidden before ``min_new_tokens``.

    An official task has the line break's token among the ends of sequence and forbids it as the first one this way
    (``min_length``). Longer tokens that merely begin with a line break are neither, as in that task.
    """
    ids = (tokenizer.encode(s, special=False)[-1:] for s in stop if s)
    return frozenset(i[0] for i, s in zip(ids, (s for s in stop if s), strict=True) if i and tokenizer.decode(i) == s)


class Phase(Enum):
    """Part of the output that the next token belongs to.

    OPENING: only blanks so far, or a part of a mark: a block may begin.
    REASONING: inside the block.
    ANSWER: no block has opened, or it is closed.
    """

    OPENING = "opening"
    REASONING = "reasoning"
    ANSWER = "answer"


class ReasoningTag:
    """Opening or closing mark of reasoning, as this tokenizer decodes it.

    A tag with a control token never appears in decoded text: it is found by its ids, and ``TaggedText`` represents it
    by a lone surrogate, which decoded text cannot contain.
    """

    def __init__(self, text: str, tokenizer: Tokenizer, stand_in: str) -> None:
        controls = any(control in text for control in tokenizer.hidden_tokens)
        self.ids = tokenizer.encode(text, special=True) if controls else []
        self.text = stand_in if self.ids else text
        self.plain = tokenizer.decode(self.ids)

    def ends(self, ids: Sequence[int]) -> bool:
        """Whether the ids end with the tag; False for a tag of text."""
        return bool(self.ids) and list(ids[-len(self.ids) :]) == self.ids

    def partial_length(self, ids: Sequence[int]) -> int:
        """Number of trailing ids that begin an incomplete tag; 0 for a tag of text."""
        for count in range(min(len(self.ids) - 1, len(ids)), 0, -1):
            if list(ids[-count:]) == self.ids[:count]:
                return count
        return 0


class TaggedText:
    """Decoder of ids that shows the control tokens of some tags."""

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
        """Remove the marks of control tokens from a part of decoded text."""
        for tag in self._tags:
            text = text.replace(tag.text, tag.plain)
        return text


class ReasoningBlock:
    """Search for the block of reasoning by the rule of ``lbx.prompting.reasoning``, in the tail of the output only.

    Call ``observe`` after every token. Positions in the text are safe to keep: once a mark is complete, no later token
    changes the text up to it.

    Args:
        opened: the prompt ended in the opening mark.

    Attributes:
        phase: part of the output that the next token belongs to.
        is_present: whether there is a block.
        end: number of tokens when it closed, including the closing mark.
        tokens: number of tokens in the block, including its marks.
    """

    def __init__(self, tokenizer: Tokenizer, *, opened: bool) -> None:
        marks = tokenizer.reasoning_marks
        self._opening = ReasoningTag(marks.open, tokenizer, "\ud800")
        self._closing = ReasoningTag(marks.close, tokenizer, "\ud801")
        header = [ReasoningTag(text, tokenizer, chr(0xD802 + number)) for number, text in enumerate(marks.header)]
        self._text = TaggedText(tokenizer, (self._opening, self._closing, *header))
        self._marks = ReasoningMarks(self._opening.text, self._closing.text, tuple(tag.text for tag in header))
        self._message_end = header[0] if header else None
        self._tail = Tail(() if self._closing.ids else (self._closing.text,), tokenizer)
        self._blank = 0  # number of leading tokens known to be blank
        self._leading_text = self._reasoning = ""
        self._answer_at = 0
        self.phase = Phase.REASONING if opened else Phase.OPENING
        self._opened_by_prompt = opened
        self.is_present = opened
        self.closed = False
        self.end = self.tokens = 0

    def observe(self, ids: Sequence[int]) -> None:
        """Update the state by the last token."""
        if self.closed:
            return
        if self.phase is Phase.OPENING:
            self._look_for_opening(ids)
        self._tail.push(ids[-1])
        if self._closing.ends(ids) or self._tail.hit():
            self._close(ids)

    def ends_answer(self, ids: Sequence[int]) -> bool:
        """Whether the last token ends the answer's message; False for answers that are no messages."""
        return self.closed and self._message_end is not None and self._message_end.ends(ids)

    def split(self, ids: Sequence[int]) -> tuple[str, str]:
        """(reasoning, text before the block); requires ``is_present``."""
        if self.closed:
            return self._words(self._reasoning), self._text.plain(self._leading_text)
        text = self._text.decode(ids)
        return self._words(text[opening_end(text, self._opening.text) :]), ""

    def answer(self, ids: Sequence[int]) -> str:
        """Text after the closing mark, including blanks; requires ``closed``."""
        return self._text.plain(self._text.decode(ids)[self._answer_at :])

    def _words(self, reasoning: str) -> str:
        if header := self._marks.header:
            reasoning = without_headers(reasoning.replace(self._opening.text, "".join(header[-2:])), self._marks)
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

    def _close(self, ids: Sequence[int]) -> None:
        text, closing, opening = self._text.decode(ids), self._closing.text, self._opening.text
        start = opening_end(text, opening)
        at = text.find(closing, start)
        if at < 0:
            return  # only the tail looked like a mark, or it overlaps the opening mark
        first = 0
        alone = not self._opened_by_prompt and not start and not self._marks.header
        if alone and (opening_at := text.find(opening, 0, at)) >= 0:
            self._leading_text, start = text[:opening_at], opening_at + len(opening)
            first = self._token_count_at(ids, opening_at)
        self._reasoning = text[start:at]
        self._answer_at = at + len(closing)
        self.phase, self.is_present, self.closed = Phase.ANSWER, True, True
        self.end, self.tokens = len(ids), len(ids) - first

    def _token_count_at(self, ids: Sequence[int], position: int) -> int:
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if len(self._text.decode(ids[:middle])) <= position else (low, middle - 1)
        return low
