"""Wrap prompts in a chat template and encode both: template marks as control tokens, texts as plain text."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from lbx.base.errors import BackendError, PromptError
from lbx.engine.chat_template import TEMPLATE_FIX, ChatTemplate
from lbx.engine.reasoning import ReasoningMarks

_USER = "\ue000lbx\ue001"
"""Placeholder of the user's message while a template is split; private-use characters that no template has."""
_SYSTEM = "\ue002lbx\ue003"
_PLACEHOLDER = re.compile("\ue004([0-9]+)\ue005")
"""Placeholder of one of several messages."""


class Tokenizer(Protocol):
    """Tokenizer methods that prompts need. No method adds BOS or EOS; ``Wrapper`` does, once."""

    @property
    def bos_token(self) -> str:
        """Text of the BOS token for chat templates; "" if the model has none."""
        ...

    @property
    def eos_token(self) -> str: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """Tokens that the model expects before plain text: BOS, GLM's replacement of it, or none."""
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
    def template_names(self) -> tuple[str, ...]:
        """Names of the model's chat templates if none is the default; () for others."""
        ...

    @property
    def reasoning_marks(self) -> ReasoningMarks:
        """Marks that open and close the reasoning."""
        ...

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Encode a text. special=True turns texts of control tokens into their ids; False keeps them text."""
        ...

    def encode_pieces(self, pieces: Sequence[str | int]) -> list[int]:
        """Encode texts, always as plain text, and ids of control tokens as one sequence."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Decode without hidden tokens, spaces unchanged."""
        ...


class _Part(NamedTuple):
    text: str
    template: bool


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Prompt split into parts.

    Attributes:
        user: index of the part with the user's message.
    """

    parts: tuple[_Part, ...]
    user: int = 0

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    @property
    def content(self) -> str:
        """User's message, as rendered by the template."""
        return self.parts[self.user].text

    @property
    def begin(self) -> int:
        """Index of the user's message in the text."""
        return sum(len(part.text) for part in self.parts[: self.user])

    @property
    def tail(self) -> str:
        """Text after the user's message."""
        return "".join(part.text for part in self.parts[self.user + 1 :])

    def with_answer_prefix(self, prefix: str) -> ChatPrompt:
        """Append the beginning of the answer."""
        return ChatPrompt((*self.parts, _Part(prefix, template=False)), self.user) if prefix else self


class Wrapper:
    """Wrapping of prompts in a chat template, and their encoding.

    Args:
        template: None if prompts are plain text, or a server wraps them.
        sends_system: for servers that wrap prompts: whether they take system messages; called at the first one.
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
        """Placement of a system message: a separate "message", or in the "text"; None for an empty one."""
        if not system:
            return None
        if not chat:
            return "text"
        if self._template is not None:
            supports_system = self._frame(system) is not None
        else:
            supports_system = self._sends_system is not None and self._sends_system()
        return "message" if supports_system else "text"

    def wrap(self, text: str, system: str = "", turns: Sequence[str] = (), *, chat: bool) -> ChatPrompt:
        """Wrap a text in the chat template.

        The template renders a short text in place of each message, inside the message's own white space: it may drop
        that, but never changes or reacts to the words.

        Args:
            system: message that ``system_place`` has found a placement for.
            turns: see ``Prompt.turns``.

        Raises:
            BackendError: the template fails, or omits or repeats the user's message.
            PromptError: the template wraps this text differently because of the white space around it.
        """
        if not chat or self._template is None:
            return ChatPrompt(tuple(_Part(message, template=False) for message in (system, text, *turns)), user=1)
        if turns:
            return self._wrap_turns(text, system, turns)
        frame = self._frame(system)
        if frame is None:
            raise _template_error("the user's message")
        edges, words = _edges(text)
        before, after = "".join(part.text for part in frame[0]), frame[1]
        rendered = self._template.render(edges.format(_USER), system).replace(_USER, words)
        if not rendered.startswith(before) or not rendered.endswith(after):
            raise PromptError(
                "The model's chat template changes because of the white space around this prompt.",
                fix=TEMPLATE_FIX,
            )
        content = _Part(rendered[len(before) : len(rendered) - len(after)], template=False)
        return ChatPrompt((*frame[0], content, _Part(after, template=True)), user=len(frame[0]))

    def _wrap_turns(self, text: str, system: str, turns: Sequence[str]) -> ChatPrompt:
        assert self._template is not None  # prompts without a template are never split
        edges, words = zip(*map(_edges, (system, text, *turns)), strict=True)
        placeholders = [edge.format(f"\ue004{number}\ue005") for number, edge in enumerate(edges)]
        first = placeholders[0] if system else ""
        pieces = _PLACEHOLDER.split(self._template.render(placeholders[1], first, placeholders[2:]))
        found = [int(number) for number in pieces[1::2]]
        if sorted(found) != list(range(0 if system else 1, len(placeholders))):
            raise _template_error("the messages of a conversation")
        parts = [
            _Part(words[int(piece)], template=False) if index % 2 else _Part(piece, template=True)
            for index, piece in enumerate(pieces)
        ]
        return ChatPrompt(tuple(parts), user=2 * found.index(1) + 1)

    def _frame(self, system: str) -> tuple[tuple[_Part, ...], str] | None:
        """Parts before the user's message, and text after it; None if the template omits a message."""
        if system not in self._frames:
            self._frames[system] = self._split_frame(system)
        return self._frames[system]

    def _split_frame(self, system: str) -> tuple[tuple[_Part, ...], str] | None:
        assert self._template is not None  # prompts without a template are never split
        if not system:
            pieces = self._template.render(_USER).split(_USER)
            return ((_Part(pieces[0], template=True),), pieces[1]) if len(pieces) == 2 else None
        try:
            start, user, rest = self._template.render(_USER, _SYSTEM).partition(_SYSTEM)
            before, _, after = self._template.render(_USER, system).partition(_USER)
        except BackendError:  # the template refuses system messages, or ends with them
            return None
        end = rest.partition(_USER)[0]
        if not user or rest.count(_USER) != 1 or not before.startswith(start) or not before.endswith(end):
            return None
        if not end:  # no role but the user's
            return None
        head = before[len(start) : len(before) - len(end)]
        if head.strip() != system.strip():
            return None
        return (_Part(start, template=True), _Part(head, template=False), _Part(end, template=True)), after

    def encode(self, prompt: ChatPrompt) -> list[int]:
        """Encode a prompt; only the template's control tokens become ids, not ones spelled out in texts."""
        if not any(part.template for part in prompt.parts):
            return self.with_prefix(self._tokenizer.encode(prompt.text, special=False))
        ids = self._tokenizer.encode(prompt.text, special=True)
        # Control tokens that the template itself adds, whatever the texts spell out
        frame = "".join(part.text if part.template else "x" for part in prompt.parts)
        if frame not in self._controls_in:
            self._controls_in[frame] = self._controls_among(self._tokenizer.encode(frame, special=True))
        controls = self._controls_in[frame]
        if self._controls_among(ids) != controls:
            ids = self._tokenizer.encode_pieces(list(self._pieces(prompt, controls)))
        return self.with_prefix(ids)

    def _controls_among(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if token in self._controls]

    def _pieces(self, prompt: ChatPrompt, controls: Sequence[int]) -> Iterator[str | int]:
        """Split the text at the template's control tokens, and yield their ids in place."""
        names = {token: name for name, token in self._tokenizer.control_tokens.items()}
        remaining, waiting = deque(controls), ""
        for part in prompt.parts:
            at = 0
            while part.template and remaining and (found := part.text.find(names[remaining[0]], at)) >= 0:
                yield waiting + part.text[at:found]
                at, waiting = found + len(names[remaining[0]]), ""
                yield remaining.popleft()
            waiting += part.text[at:]
        yield waiting

    def with_prefix(self, ids: list[int]) -> list[int]:
        """Prepend the tokens that the model expects before any text, exactly once."""
        bos, prefix = self._tokenizer.bos_id, list(self._tokenizer.prefix_ids)
        first = 0
        while bos is not None and ids[first : first + 2] == [bos, bos]:
            first += 1
        ids = ids[first:]
        if ids[: len(prefix)] == prefix:
            return ids
        return prefix + ids[ids[:1] == prefix[:1] :]


def _edges(text: str) -> tuple[str, str]:
    """Split a text into its outer white space, as a format with "{}" for the rest, and the rest."""
    words = text.strip()
    lead = len(text) - len(text.lstrip())
    return f"{text[:lead]}{{}}{text[lead + len(words) :]}", words


def _template_error(subject: str) -> BackendError:
    return BackendError(
        f"The model's chat template does not put {subject} into the prompt unchanged.",
        fix=TEMPLATE_FIX,
    )
