"""From a prompt's text to the tokens that a model reads: chat wrapping, truncation, one BOS."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lbx.errors import BackendError, PromptError
from lbx.records import Prompt, Request, SampleKey, Sampling, Truncation, sha256_text

_SENTINEL = "\ue000lbx\ue001"
"""Stands for the user's words while a template is taken apart; private-use characters, in nobody's template."""

_MAX_CUTS = 8
_TEMPLATE_FIX = "Give another one in the model card ([chat] template_file), or switch it off ([chat] enabled = false)."


class Tokenizer(Protocol):
    """What prompts need of a tokenizer. No method adds BOS or EOS; ``Prompter`` does, once."""

    @property
    def bos_token(self) -> str:
        """The BOS token's text for chat templates, "" where the model has none."""
        ...

    @property
    def eos_token(self) -> str: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def adds_bos(self) -> bool:
        """Whether the model expects a BOS before plain text."""
        ...

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Text -> id of the tokens that ``encode(special=True)`` recognises and ``special=False`` spells out."""
        ...

    @property
    def chat_template(self) -> str | None:
        """The model's Jinja chat template, or None for a base model."""
        ...

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of the text. special=True turns control tokens' texts into their ids; False keeps them text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, control tokens left out, spaces untouched."""
        ...


class ChatTemplate:
    """A model's Jinja chat template, rendered as transformers renders it.

    ``strftime_now`` is not offered: a template that asks for today's date falls back to its own fixed one,
    so that a prompt does not change overnight.

    Args:
        source: the Jinja text.
        bos_token, eos_token: what ``{{ bos_token }}`` and ``{{ eos_token }}`` stand for.
        kwargs: further variables, e.g. {"enable_thinking": False}.

    Raises:
        BackendError: the template is not valid Jinja.
    """

    def __init__(
        self, source: str, *, bos_token: str = "", eos_token: str = "", kwargs: Mapping[str, object] | None = None
    ) -> None:
        def raise_exception(message: str) -> None:
            raise jinja2.TemplateError(message)

        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = raise_exception
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as exc:
            raise BackendError(
                f"The model's chat template is not valid Jinja: {exc}.",
                fix=_TEMPLATE_FIX,
            ) from exc
        self._variables = {**(kwargs or {}), "bos_token": bos_token, "eos_token": eos_token}

    def render(self, content: str) -> str:
        """The text a model reads when the user says ``content``, up to where its answer begins.

        Raises:
            BackendError: the template fails, e.g. it insists on a system message.
        """
        messages = [{"role": "user", "content": content}]
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._variables)
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError) as exc:
            raise BackendError(
                f"The model's chat template failed on a user message: {exc}.",
                fix=_TEMPLATE_FIX,
            ) from exc


def _tojson(value: object, indent: int | None = None) -> str:
    # Jinja's own tojson escapes <, > and & for HTML, which would change a prompt.
    return json.dumps(value, ensure_ascii=False, indent=indent)


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """A prompt's text with the place where the user's own words stand in it."""

    before: str
    content: str
    after: str

    @property
    def text(self) -> str:
        return self.before + self.content + self.after


@dataclass(frozen=True, slots=True)
class _Cut:
    text: str
    original: int
    truncated: bool


class Prompter:
    """Turns prompts into requests for one model.

    Args:
        tokenizer: the model's.
        context_window: tokens that prompt and answer share.
        template: the chat template, or None to feed every prompt as plain text.
        max_prompt_tokens: a limit instead of the benchmark's own, before chat wrapping.
        max_new_tokens: an answer budget instead of the benchmark's own.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        context_window: int,
        template: ChatTemplate | None = None,
        max_prompt_tokens: int | None = None,
        max_new_tokens: int | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._window = context_window
        self._template = template
        self._max_prompt_tokens = max_prompt_tokens
        self._max_new_tokens = max_new_tokens
        controls = sorted(tokenizer.control_tokens, key=len, reverse=True)
        self._control_pattern = re.compile("|".join(map(re.escape, controls))) if controls else None

    def request(self, key: SampleKey, prompt: Prompt, sampling: Sampling) -> Request:
        """The prompt as tokens, cut by the benchmark's rule where it is too long.

        Raises:
            PromptError: the rule forbids cutting, or nothing of the document would be left.
        """
        budget = self._max_new_tokens or prompt.max_new_tokens
        room = self._window - budget
        chat = prompt.chat and self._template is not None
        limit = self._limit(prompt, room, chat)
        cut = _Cut(prompt.text, original=0, truncated=False)
        for _ in range(_MAX_CUTS):
            cut = self._cut(prompt, limit, budget)
            wrapped = self._wrap(cut.text, chat)
            ids = self._encode(wrapped)
            if len(ids) <= room:
                return Request(
                    key=key,
                    token_ids=tuple(ids),
                    max_new_tokens=budget,
                    stop=prompt.stop,
                    min_new_tokens=prompt.min_new_tokens,
                    sampling=sampling,
                    original_tokens=cut.original,
                    truncated=cut.truncated,
                    prompt_sha256=sha256_text(wrapped.text),
                    opens_reasoning=wrapped.after.rstrip().endswith("<think>"),
                )
            # Text decoded from a cut may encode to a few tokens more than were kept: cut those too.
            limit = min(limit, cut.original) - (len(ids) - room)
        raise PromptError(
            f"The prompt of {key} is {cut.original} tokens and cannot be cut to fit: the context window is "
            f"{self._window} tokens, of which {budget} are for the answer.",
            fix="Use a larger context window or fewer new tokens.",
        )

    def _limit(self, prompt: Prompt, room: int, chat: bool) -> int:
        if self._max_prompt_tokens is not None:
            return self._max_prompt_tokens
        if self._window in prompt.limits:
            return prompt.limits[self._window]
        overhead = len(self._encode(self._wrap("", chat))) if chat else 0
        return room - overhead

    def _cut(self, prompt: Prompt, limit: int, budget: int) -> _Cut:
        ids = self._with_bos(self._tokenizer.encode(prompt.text, special=False))
        if len(ids) <= limit:
            return _Cut(prompt.text, len(ids), truncated=False)
        if prompt.truncation is Truncation.REFUSE:
            raise PromptError(
                f"The prompt is {len(ids)} tokens and this benchmark's prompts are never cut: the context window is "
                f"{self._window} tokens, of which {budget} are for the answer and {self._window - budget - limit} "
                "for the chat template.",
                fix="Use a model or a card with a larger context window.",
            )
        if limit <= 0:
            raise PromptError(
                f"Nothing of the prompt ({len(ids)} tokens) would be left: the context window is {self._window} tokens "
                f"and the answer may take {budget}.",
                fix="Use a larger context window or fewer new tokens.",
            )
        if prompt.truncation in (Truncation.MIDDLE, Truncation.MIDDLE_FLOOR):
            return _Cut(self._cut_middle(ids, limit, prompt.truncation), len(ids), truncated=True)
        return _Cut(self._cut_document(prompt, limit, len(ids)), len(ids), truncated=True)

    def _cut_middle(self, ids: Sequence[int], limit: int, rule: Truncation) -> str:
        decode = self._tokenizer.decode
        half = int(limit / 2)
        # Slices count from the front: ids[-0:] would be the whole prompt where a limit of 1 leaves nothing.
        if rule is Truncation.MIDDLE:
            return decode(ids[:half]) + decode(ids[len(ids) - half :])
        return decode([*ids[:half], *ids[len(ids) - (limit - half) :]])

    def _cut_document(self, prompt: Prompt, limit: int, original: int) -> str:
        document = self._tokenizer.encode(prompt.document, special=False)
        keep = len(document) - (original - limit)
        if keep <= 0:
            raise PromptError(
                f"The question and its instructions alone are {original - len(document)} tokens, more than the "
                f"{limit} that a prompt may have, and the question is never cut.",
                fix="Use a larger context window or fewer new tokens.",
            )
        kept = document[:keep] if prompt.truncation is Truncation.DOCUMENT_END else document[-keep:]
        return prompt.before + self._tokenizer.decode(kept) + prompt.after

    def _wrap(self, text: str, chat: bool) -> _Wrapped:
        if not chat or self._template is None:
            return _Wrapped("", text, "")
        rendered = self._template.render(text)
        before, found, after = self._template.render(_SENTINEL).partition(_SENTINEL)
        if not found or not rendered.startswith(before) or not rendered.endswith(after):
            raise BackendError(
                "The model's chat template does not put the user's message into the prompt as it is.",
                fix=_TEMPLATE_FIX,
            )
        return _Wrapped(before, rendered[len(before) : len(rendered) - len(after)], after)

    def _encode(self, wrapped: _Wrapped) -> list[int]:
        """Token ids with control tokens only where the template has them, never where the document spells one."""
        encode = self._tokenizer.encode
        if not wrapped.before and not wrapped.after:
            return self._with_bos(encode(wrapped.content, special=False))
        if self._control_pattern is None or not self._control_pattern.search(wrapped.content):
            return self._with_bos(encode(wrapped.text, special=True))
        ids: list[int] = []
        for text, control in self._pieces(wrapped):
            ids += [control] if control is not None else encode(text, special=False)
        return self._with_bos(ids)

    def _pieces(self, wrapped: _Wrapped) -> Iterator[tuple[str, int | None]]:
        """The text cut at the template's control tokens: (text, None) and (token, id), in order."""
        assert self._control_pattern is not None  # the caller has searched with it
        begin, end = len(wrapped.before), len(wrapped.before) + len(wrapped.content)
        text, start = wrapped.text, 0
        for match in self._control_pattern.finditer(text):
            if match.start() < end and match.end() > begin:
                continue
            if text[start : match.start()]:
                yield text[start : match.start()], None
            yield match.group(), self._tokenizer.control_tokens[match.group()]
            start = match.end()
        if text[start:]:
            yield text[start:], None

    def _with_bos(self, ids: list[int]) -> list[int]:
        """Exactly one BOS where the model expects one, whether or not its template writes it too."""
        bos = self._tokenizer.bos_id
        if bos is None:
            return ids
        first = 0
        while ids[first : first + 2] == [bos, bos]:
            first += 1
        ids = ids[first:]
        return [bos, *ids] if self._tokenizer.adds_bos and ids[:1] != [bos] else ids
