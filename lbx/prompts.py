"""From a prompt's text to the tokens that a model reads: chat wrapping, truncation, one BOS."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lbx.chat_template import TEMPLATE_FIX, ChatTemplate, knows_switch
from lbx.errors import BackendError, EmptyPromptError, PromptError
from lbx.reasoning import Marks, opens_reasoning
from lbx.records import Prompt, Request, SampleKey, Sampling, Truncation, sha256_text

__all__ = ["ChatTemplate", "Prompter", "Tokenizer", "knows_switch"]

_SENTINEL = "\ue000lbx\ue001"
"""Stands for the user's words while a template is taken apart; private-use characters, in nobody's template."""

_MAX_CUTS = 8


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

    @property
    def reasoning_marks(self) -> Marks:
        """What opens and what closes this model's reasoning."""
        ...

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of the text. special=True turns control tokens' texts into their ids; False keeps them text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, control tokens left out, spaces untouched."""
        ...


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
    """A prompt's text after truncation, and how many tokens it had before and lost by it.

    ``ids`` are the text's where nothing was cut.
    """

    text: str
    original: int
    lost: int = 0
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Budget:
    """How the context window is shared out, in tokens."""

    window: int
    answer: int
    reasoning: int

    @property
    def room(self) -> int:
        """What is left for the prompt."""
        return self.window - self.answer - self.reasoning

    def __str__(self) -> str:
        reasoning = f" and {self.reasoning} for its reasoning" if self.reasoning else ""
        return f"the context window is {self.window} tokens, of which {self.answer} are for the answer{reasoning}"


class Prompter:
    """Turns prompts into requests for one model.

    Args:
        tokenizer: the model's.
        context_window: tokens that prompt and answer share.
        template: the chat template, or None to feed every prompt as plain text.
        max_prompt_tokens: a limit instead of the benchmark's own, before chat wrapping.
        max_new_tokens: an answer budget instead of the benchmark's own.
        thinking_tokens: a budget for the reasoning besides the answer's; 0 means one budget for both. Bare prompts
            (``Prompt.chat`` False) never get it: what makes a model think is in its template. Nor do prompts whose
            own budget is for both.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        context_window: int,
        template: ChatTemplate | None = None,
        max_prompt_tokens: int | None = None,
        max_new_tokens: int | None = None,
        thinking_tokens: int = 0,
    ) -> None:
        self._tokenizer = tokenizer
        self._window = context_window
        self._template = template
        self._max_prompt_tokens = max_prompt_tokens
        self._max_new_tokens = max_new_tokens
        self._thinking_tokens = thinking_tokens
        self._controls = frozenset(tokenizer.control_tokens.values())
        controls = sorted(tokenizer.control_tokens, key=len, reverse=True)
        self._control_pattern = re.compile("|".join(map(re.escape, controls))) if controls else None

    def request(self, key: SampleKey, prompt: Prompt, sampling: Sampling) -> Request:
        """The prompt as tokens, cut by the benchmark's rule where it is too long.

        Raises:
            PromptError: the rule forbids cutting, or nothing of the document would be left.
        """
        answer = self._max_new_tokens or prompt.max_new_tokens
        apart = prompt.chat and not prompt.budget_for_both
        budget = _Budget(self._window, answer, self._thinking_tokens if apart else 0)
        cut, wrapped, ids = self._fit(key, prompt, budget)
        return Request(
            key=key,
            token_ids=tuple(ids),
            max_new_tokens=budget.answer,
            stop=prompt.stop,
            min_new_tokens=prompt.min_new_tokens,
            sampling=sampling,
            original_tokens=cut.original,
            truncated=cut.lost > 0,
            tokens_cut=cut.lost,
            kept=cut.text if cut.lost else "",
            bos_tokens=self._bos_tokens(ids),
            prompt_sha256=sha256_text(wrapped.text),
            opens_reasoning=opens_reasoning(wrapped.after, self._tokenizer.reasoning_marks),
            thinking_tokens=budget.reasoning,
        )

    def _fit(self, key: SampleKey, prompt: Prompt, budget: _Budget) -> tuple[_Cut, _Wrapped, list[int]]:
        chat = prompt.chat and self._template is not None
        limit = self._limit(prompt, budget.room, chat)
        cut = _Cut(prompt.text, original=0)
        for _ in range(_MAX_CUTS):
            cut = self._cut(prompt, limit, budget)
            self._check_some_left(key, cut, limit)
            wrapped = self._wrap(cut.text, chat)
            ids = list(cut.ids) if cut.ids and not chat else self._encode(wrapped)
            if len(ids) <= budget.room:
                return cut, wrapped, ids
            # Text decoded from a cut may encode to a few tokens more than were kept: cut those too.
            limit = min(limit, cut.original) - (len(ids) - budget.room)
        raise PromptError(
            f"The prompt of {key} is {cut.original} tokens and cannot be cut to fit: {budget}.",
            fix="Use a larger context window or fewer new tokens.",
        )

    def _limit(self, prompt: Prompt, room: int, chat: bool) -> int:
        if self._max_prompt_tokens is not None:
            return self._max_prompt_tokens
        if self._window in prompt.limits:
            return prompt.limits[self._window]
        overhead = len(self._encode(self._wrap("", chat))) if chat else 0
        return room - overhead

    def _cut(self, prompt: Prompt, limit: int, budget: _Budget) -> _Cut:
        ids = self._with_bos(self._tokenizer.encode(prompt.text, special=False))
        if len(ids) <= limit:
            return _Cut(prompt.text, len(ids), ids=tuple(ids))
        if prompt.truncation is Truncation.REFUSE:
            raise PromptError(
                f"The prompt is {len(ids)} tokens, more than the {limit} there is room for, and this benchmark's "
                f"prompts are never cut: {budget}.",
                fix="Use a model or a card with a larger context window.",
            )
        if limit <= 0:
            raise EmptyPromptError(
                f"Nothing of the prompt ({len(ids)} tokens) would be left: {budget}.",
                fix="Use a larger context window or fewer new tokens.",
            )
        if prompt.truncation in (Truncation.MIDDLE, Truncation.MIDDLE_FLOOR):
            return self._cut_middle(ids, limit, prompt.truncation)
        return self._cut_document(prompt, limit, len(ids))

    def _check_some_left(self, key: SampleKey, cut: _Cut, limit: int) -> None:
        if cut.text.strip():
            return
        if not cut.lost:
            raise PromptError(f"The prompt of {key} is empty.", fix="Its data may be damaged: see lbx verify.")
        raise EmptyPromptError(
            f"The prompt of {key} is empty after truncation: of its {cut.original} tokens {limit} may be kept, and "
            f"the {cut.original - cut.lost} that were hold no text.",
            fix="Use a larger context window, fewer new tokens, or a larger --max-prompt-tokens.",
        )

    def _cut_middle(self, ids: Sequence[int], limit: int, rule: Truncation) -> _Cut:
        decode = self._tokenizer.decode
        half = int(limit / 2)
        # Slices count from the front: ids[-0:] would be the whole prompt where a limit of 1 leaves nothing.
        if rule is Truncation.MIDDLE:
            text = decode(ids[:half]) + decode(ids[len(ids) - half :])
            return _Cut(text, len(ids), lost=len(ids) - 2 * half)
        text = decode([*ids[:half], *ids[len(ids) - (limit - half) :]])
        return _Cut(text, len(ids), lost=len(ids) - limit)

    def _cut_document(self, prompt: Prompt, limit: int, original: int) -> _Cut:
        document = self._tokenizer.encode(prompt.document, special=False)
        keep = len(document) - (original - limit)
        if keep <= 0:
            raise EmptyPromptError(
                f"The question and its instructions alone are {original - len(document)} tokens, more than the "
                f"{limit} that a prompt may have, and the question is never cut.",
                fix="Use a larger context window or fewer new tokens.",
            )
        first = {Truncation.DOCUMENT_END: keep, Truncation.DOCUMENT_MIDDLE: keep // 2}.get(prompt.truncation, 0)
        head, tail = document[:first], document[len(document) - (keep - first) :]
        kept = "".join(self._tokenizer.decode(part) for part in (head, tail) if part)
        text = prompt.before + kept + prompt.after
        return _Cut(text, original, lost=original - limit)

    def _wrap(self, text: str, chat: bool) -> _Wrapped:
        if not chat or self._template is None:
            return _Wrapped("", text, "")
        rendered = self._template.render(text)
        before, found, after = self._template.render(_SENTINEL).partition(_SENTINEL)
        if not found or not rendered.startswith(before) or not rendered.endswith(after):
            raise BackendError(
                "The model's chat template does not put the user's message into the prompt as it is.",
                fix=TEMPLATE_FIX,
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

    def _bos_tokens(self, ids: Sequence[int]) -> int:
        """How many BOS tokens stand before the first token that says anything.

        Further on they are no fault: ChatML templates open every turn with the token that some models call BOS.
        """
        count = 0
        for token in ids:
            if token == self._tokenizer.bos_id:
                count += 1
            elif token in self._controls or self._tokenizer.decode([token]).strip():
                break
        return count
