"""Wrapping of prompts in a chat template, and encoding: the template's marks as control tokens, texts as plain text."""

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
"""Placeholder of a message in a conversation."""


class Tokenizer(Protocol):
    """Methods of a tokenizer that prompts need. No method adds BOS or EOS, because ``Wrapper`` adds BOS once."""

    @property
    def bos_token(self) -> str:
        """Text of the BOS token for chat templates, or "" if the model has none."""
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
        """Return {text: id} of the tokens that ``encode(special=True)`` recognises and ``special=False`` spells out."""
        ...

    @property
    def hidden_tokens(self) -> Mapping[str, int]:
        """Return {text: id} of the control tokens that ``decode`` leaves out."""
        ...

    @property
    def chat_template(self) -> str | None:
        """The model's Jinja chat template, or None for a base model."""
        ...

    @property
    def template_names(self) -> tuple[str, ...]:
        """Names of the model's chat templates if none is the default, or () for others."""
        ...

    @property
    def reasoning_marks(self) -> ReasoningMarks:
        """Marks that open and close the reasoning."""
        ...

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Encode a text to ids. ``special``: whether texts of control tokens become ids rather than plain text."""
        ...

    def encode_pieces(self, pieces: Sequence[str | int]) -> list[int]:
        """Encode texts, always as plain text, and ids of control tokens into one sequence."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text, without hidden tokens and with spaces unchanged."""
        ...


class _Segment(NamedTuple):
    text: str
    is_template: bool


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Prompt in a chat template, split into the template's text and the messages.

    Attributes:
        user_index: index of the segment with the user's message.
    """

    segments: tuple[_Segment, ...]
    user_index: int = 0

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)

    @property
    def user_text(self) -> str:
        """User's message, as rendered by the template."""
        return self.segments[self.user_index].text

    @property
    def user_start(self) -> int:
        """Index of the user's message in the text."""
        return sum(len(segment.text) for segment in self.segments[: self.user_index])

    @property
    def text_after_user(self) -> str:
        """Text after the user's message."""
        return "".join(segment.text for segment in self.segments[self.user_index + 1 :])

    def with_answer_prefix(self, prefix: str) -> ChatPrompt:
        """Copy of the prompt with the beginning of the answer appended."""
        return ChatPrompt((*self.segments, _Segment(prefix, is_template=False)), self.user_index) if prefix else self


class Wrapper:
    """Wrapper of prompts in a model's chat template, which also encodes them.

    Args:
        template: None if prompts are plain text, or a server wraps them.
        sends_system: for servers that wrap prompts: whether they accept system messages; called at the first message.
    """

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate | None, sends_system: Callable[[], bool] | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._sends_system = sends_system
        self._frames: dict[str, tuple[tuple[_Segment, ...], str] | None] = {}
        self._controls = frozenset(tokenizer.control_tokens.values())
        self._controls_in: dict[str, list[int]] = {}

    def system_place(self, system: str, *, chat: bool) -> str | None:
        """Placement of a system message: "message" (separate), "text" (in the user's text), or None without one."""
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
            return ChatPrompt(
                tuple(_Segment(message, is_template=False) for message in (system, text, *turns)), user_index=1
            )
        if turns:
            return self._wrap_turns(text, system, turns)
        frame = self._frame(system)
        if frame is None:
            raise _template_error("the user's message")
        edges, words = _edges(text)
        before, after = "".join(segment.text for segment in frame[0]), frame[1]
        rendered = self._template.render(edges.format(_USER), system).replace(_USER, words)
        if not rendered.startswith(before) or not rendered.endswith(after):
            raise PromptError(
                "The model's chat template changes because of the white space around this prompt.",
                fix=TEMPLATE_FIX,
            )
        content = _Segment(rendered[len(before) : len(rendered) - len(after)], is_template=False)
        return ChatPrompt((*frame[0], content, _Segment(after, is_template=True)), user_index=len(frame[0]))

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
            _Segment(words[int(piece)], is_template=False) if index % 2 else _Segment(piece, is_template=True)
            for index, piece in enumerate(pieces)
        ]
        return ChatPrompt(tuple(parts), user_index=2 * found.index(1) + 1)

    def _frame(self, system: str) -> tuple[tuple[_Segment, ...], str] | None:
        """Segments before the user's message, and the text after it, or None if the template omits a message."""
        if system not in self._frames:
            self._frames[system] = self._split_frame(system)
        return self._frames[system]

    def _split_frame(self, system: str) -> tuple[tuple[_Segment, ...], str] | None:
        assert self._template is not None  # prompts without a template are never split
        if not system:
            pieces = self._template.render(_USER).split(_USER)
            return ((_Segment(pieces[0], is_template=True),), pieces[1]) if len(pieces) == 2 else None
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
        return (
            _Segment(start, is_template=True),
            _Segment(head, is_template=False),
            _Segment(end, is_template=True),
        ), after

    def encode(self, prompt: ChatPrompt) -> list[int]:
        """Encode a prompt. Only the template's control tokens become ids, not those spelled out in the messages."""
        if not any(segment.is_template for segment in prompt.segments):
            return self.with_prefix(self._tokenizer.encode(prompt.text, special=False))
        ids = self._tokenizer.encode(prompt.text, special=True)
        # Control tokens that the template itself adds, whatever the texts spell out
        frame = "".join(segment.text if segment.is_template else "x" for segment in prompt.segments)
        if frame not in self._controls_in:
            self._controls_in[frame] = self._controls_among(self._tokenizer.encode(frame, special=True))
        controls = self._controls_in[frame]
        if self._controls_among(ids) != controls:
            ids = self._tokenizer.encode_pieces(list(self._pieces(prompt, controls)))
        return self.with_prefix(ids)

    def _controls_among(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if token in self._controls]

    def _pieces(self, prompt: ChatPrompt, controls: Sequence[int]) -> Iterator[str | int]:
        """Split the text at the template's control tokens, and yield texts and token ids in order."""
        names = {token: name for name, token in self._tokenizer.control_tokens.items()}
        remaining, waiting = deque(controls), ""
        for segment in prompt.segments:
            at = 0
            while segment.is_template and remaining and (found := segment.text.find(names[remaining[0]], at)) >= 0:
                yield waiting + segment.text[at:found]
                at, waiting = found + len(names[remaining[0]]), ""
                yield remaining.popleft()
            waiting += segment.text[at:]
        yield waiting

    def with_prefix(self, ids: list[int]) -> list[int]:
        """Prepend the tokens that the model expects before any text, unless the ids begin with them."""
        bos, prefix = self._tokenizer.bos_id, list(self._tokenizer.prefix_ids)
        first = 0
        while bos is not None and ids[first : first + 2] == [bos, bos]:
            first += 1
        ids = ids[first:]
        if ids[: len(prefix)] == prefix:
            return ids
        return prefix + ids[ids[:1] == prefix[:1] :]


def _edges(text: str) -> tuple[str, str]:
    """Split a text into outer white space, as a format string with "{}", and the stripped text."""
    words = text.strip()
    lead = len(text) - len(text.lstrip())
    return f"{text[:lead]}{{}}{text[lead + len(words) :]}", words


def _template_error(subject: str) -> BackendError:
    return BackendError(
        f"The model's chat template does not put {subject} into the prompt unchanged.",
        fix=TEMPLATE_FIX,
    )
