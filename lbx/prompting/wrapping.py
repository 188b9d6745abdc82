"""A model's chat template around a prompt, and the tokens of both: template marks as control tokens, texts as texts."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from lbx.base.errors import BackendError, PromptError
from lbx.prompting.chat_template import TEMPLATE_FIX, ChatTemplate
from lbx.prompting.control_tokens import Marks

_USER = "\ue000lbx\ue001"
"""Stands for the user's words while a template is taken apart; private-use characters, in nobody's template."""
_SYSTEM = "\ue002lbx\ue003"
_MARK = re.compile("\ue004([0-9]+)\ue005")
"""Stands for a message of several."""


class Tokenizer(Protocol):
    """What prompts need of a tokenizer. No method adds BOS or EOS; ``Wrapper`` does, once."""

    @property
    def bos_token(self) -> str:
        """The BOS token's text for chat templates, "" where the model has none."""
        ...

    @property
    def eos_token(self) -> str: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """What the model expects before plain text: a BOS, what GLM has in its place, or nothing."""
        ...

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Text -> id of the tokens that ``encode(special=True)`` recognises and ``special=False`` spells out."""
        ...

    @property
    def hidden_tokens(self) -> Mapping[str, int]:
        """Text -> id of the control tokens that ``decode`` leaves out."""
        ...

    @property
    def chat_template(self) -> str | None:
        """The model's Jinja chat template, or None for a base model."""
        ...

    @property
    def reasoning_marks(self) -> Marks:
        """What opens and what closes this model's reasoning."""
        ...

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of the text. special=True turns control tokens' texts into their ids; False keeps them text."""
        ...

    def encode_pieces(self, pieces: Sequence[str | int]) -> list[int]:
        """Token ids of texts and control tokens (by id) in one sequence. No text becomes a control token."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, hidden tokens left out, spaces untouched."""
        ...


class _Part(NamedTuple):
    """A stretch of a prompt, and whether the template wrote it."""

    text: str
    template: bool


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A prompt's text in parts.

    Attributes:
        user: index of the part with the user's words.
    """

    parts: tuple[_Part, ...]
    user: int = 0

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    @property
    def content(self) -> str:
        """The user's words as the template renders them."""
        return self.parts[self.user].text

    @property
    def begin(self) -> int:
        """Index of the user's words in the text."""
        return sum(len(part.text) for part in self.parts[: self.user])

    @property
    def after(self) -> str:
        """The text after the user's words."""
        return "".join(part.text for part in self.parts[self.user + 1 :])


class Wrapper:
    """Puts prompts into a chat template and encodes them.

    Args:
        template: None where prompts are plain text, or a server wraps them.
        sends_system: of a server that wraps prompts: whether it takes system messages; asked when there is one.
    """

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate | None, sends_system: Callable[[], bool] | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._sends_system = sends_system
        self._frames: dict[str, tuple[tuple[_Part, ...], str] | None] = {}
        self._controls = frozenset(tokenizer.control_tokens.values())
        self._controls_in: dict[str, list[int]] = {}

    def system_place(self, system: str, *, chat: bool) -> str | None:
        """Place of a system message: a "message" of its own, or the "text"; None for an empty one."""
        if not system:
            return None
        if not chat:
            return "text"
        if self._template is not None:
            own = self._frame(system) is not None
        else:
            own = self._sends_system is not None and self._sends_system()
        return "message" if own else "text"

    def wrap(self, text: str, system: str = "", turns: Sequence[str] = (), *, chat: bool) -> ChatPrompt:
        """The text as the model reads it.

        The template renders a short text in the place of each message, between the message's own white space: it
        may drop that, but never changes or reacts to the words.

        Args:
            system: a message that ``system_place`` has found a place for.
            turns: see ``Prompt.turns``.

        Raises:
            BackendError: the template fails, or leaves out or repeats what the user says.
            PromptError: the template wraps this text in another way because of the white space around it.
        """
        if not chat or self._template is None:
            return ChatPrompt(tuple(_Part(one, template=False) for one in (system, text, *turns)), user=1)
        if turns:
            return self._wrap_turns(text, system, turns)
        frame = self._frame(system)
        if frame is None:
            raise _changed("the user's message")
        edges, words = _edges(text)
        before, after = "".join(part.text for part in frame[0]), frame[1]
        rendered = self._template.render(edges.format(_USER), system).replace(_USER, words)
        if not rendered.startswith(before) or not rendered.endswith(after):
            raise PromptError(
                "The model's chat template wraps this prompt differently because of the white space around it.",
                fix=TEMPLATE_FIX,
            )
        content = _Part(rendered[len(before) : len(rendered) - len(after)], template=False)
        return ChatPrompt((*frame[0], content, _Part(after, template=True)), user=len(frame[0]))

    def _wrap_turns(self, text: str, system: str, turns: Sequence[str]) -> ChatPrompt:
        assert self._template is not None  # without one nothing is prompt
        edges, words = zip(*map(_edges, (system, text, *turns)), strict=True)
        marks = [one.format(f"\ue004{number}\ue005") for number, one in enumerate(edges)]
        first = marks[0] if system else ""
        pieces = _MARK.split(self._template.render(marks[1], first, marks[2:]))
        found = [int(number) for number in pieces[1::2]]
        if sorted(found) != list(range(0 if system else 1, len(marks))):
            raise _changed("the messages of a conversation")
        parts = [
            _Part(words[int(piece)], template=False) if place % 2 else _Part(piece, template=True)
            for place, piece in enumerate(pieces)
        ]
        return ChatPrompt(tuple(parts), user=2 * found.index(1) + 1)

    def _frame(self, system: str) -> tuple[tuple[_Part, ...], str] | None:
        """The parts before the user's words, and the text after them; None if the template omits a message."""
        if system not in self._frames:
            self._frames[system] = self._take_apart(system)
        return self._frames[system]

    def _take_apart(self, system: str) -> tuple[tuple[_Part, ...], str] | None:
        assert self._template is not None  # without one nothing is prompt
        if not system:
            pieces = self._template.render(_USER).split(_USER)
            return ((_Part(pieces[0], template=True),), pieces[1]) if len(pieces) == 2 else None
        try:
            start, user, rest = self._template.render(_USER, _SYSTEM).partition(_SYSTEM)
            before, _, after = self._template.render(_USER, system).partition(_USER)
        except BackendError:  # it refuses system messages, or ends on them
            return None
        end = rest.partition(_USER)[0]
        if not user or rest.count(_USER) != 1 or not before.startswith(start) or not before.endswith(end):
            return None
        if not end:  # no role apart from the user's
            return None
        head = before[len(start) : len(before) - len(end)]
        if head.strip() != system.strip():
            return None
        return (_Part(start, template=True), _Part(head, template=False), _Part(end, template=True)), after

    def encode(self, prompt: ChatPrompt) -> list[int]:
        """Token ids, with the template's control tokens and none that a text spells."""
        if not any(part.template for part in prompt.parts):
            return self.with_prefix(self._tokenizer.encode(prompt.text, special=False))
        ids = self._tokenizer.encode(prompt.text, special=True)
        controls = self._controls_of(prompt)
        if self._controls_among(ids) != controls:
            ids = self._tokenizer.encode_pieces(list(self._pieces(prompt, controls)))
        return self.with_prefix(ids)

    def _controls_among(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if token in self._controls]

    def _controls_of(self, prompt: ChatPrompt) -> list[int]:
        """Control tokens of the template around texts that spell none."""
        frame = "".join(part.text if part.template else "x" for part in prompt.parts)
        if frame not in self._controls_in:
            self._controls_in[frame] = self._controls_among(self._tokenizer.encode(frame, special=True))
        return self._controls_in[frame]

    def _pieces(self, prompt: ChatPrompt, controls: Sequence[int]) -> Iterator[str | int]:
        """The text, cut at the template's control tokens, and their ids."""
        names = {token: name for name, token in self._tokenizer.control_tokens.items()}
        left, waiting = deque(controls), ""
        for part in prompt.parts:
            at = 0
            while part.template and left and (found := part.text.find(names[left[0]], at)) >= 0:
                yield waiting + part.text[at:found]
                at, waiting = found + len(names[left[0]]), ""
                yield left.popleft()
            waiting += part.text[at:]
        yield waiting

    def with_prefix(self, ids: list[int]) -> list[int]:
        """The ids with the tokens that the model expects before any text, exactly once."""
        bos, prefix = self._tokenizer.bos_id, list(self._tokenizer.prefix_ids)
        first = 0
        while bos is not None and ids[first : first + 2] == [bos, bos]:
            first += 1
        ids = ids[first:]
        if ids[: len(prefix)] == prefix:
            return ids
        return prefix + ids[ids[:1] == prefix[:1] :]


def _edges(text: str) -> tuple[str, str]:
    """Format of a text's white space around its words, and the words."""
    words = text.strip()
    lead = len(text) - len(text.lstrip())
    return f"{text[:lead]}{{}}{text[lead + len(words) :]}", words


def _changed(what: str) -> BackendError:
    return BackendError(
        f"The model's chat template does not put {what} into the prompt as it is.",
        fix=TEMPLATE_FIX,
    )
