"""Conversion of prompts into requests: chat template, truncation, encoding with one BOS."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lbx.base.errors import EmptyPromptError, PromptError
from lbx.base.records import Prompt, Request, SampleKey, Sampling, Truncation, sha256_text
from lbx.engine.chat_template import ChatTemplate
from lbx.engine.reasoning import opens_reasoning
from lbx.engine.wrapping import ChatPrompt, Tokenizer, Wrapper

__all__ = ["ChatTemplate", "Prompter", "ReadPrompt", "Tokenizer"]

_MAX_CUTS = 8
_WORDS_A_CUT = 250
_IDS: dict[int, int] = {}
"""One shared object per token id: waiting prompts take 8 bytes per token instead of 36 with a tokenizer's own ints."""


@dataclass(frozen=True, slots=True)
class _CutText:
    """Prompt text after truncation, with its original and removed numbers of tokens.

    ``ids`` are the tokens of an uncut text, ``cut_at`` is the index of the cut in a cut text.
    """

    text: str
    original_tokens: int
    removed_tokens: int = 0
    ids: tuple[int, ...] = ()
    cut_at: int = 0


@dataclass(frozen=True, slots=True)
class _Budget:
    """Division of the context window into prompt, reasoning and answer, in tokens."""

    window: int
    answer: int
    reasoning: int

    @property
    def prompt_tokens(self) -> int:
        return self.window - self.answer - self.reasoning

    def __str__(self) -> str:
        reasoning = f" and {self.reasoning} for its reasoning" if self.reasoning else ""
        return f"the context window is {self.window} tokens, including {self.answer} for the answer{reasoning}"

    def remedy(self, needed: int) -> str:
        """Sentence on a remedy with which a prompt of ``needed`` tokens would fit."""
        fewer = " or fewer new tokens" if needed < self.window - self.reasoning else ""
        return f"Use a larger context window{fewer}."


@dataclass(frozen=True, slots=True)
class _Limit:
    """Maximum number of tokens of a prompt.

    Attributes:
        source: clause on the origin of the limit, or "" for the context window.
        remedy: sentence on how to raise the limit, or "" for the context window.
    """

    tokens: int
    source: str = ""
    remedy: str = ""

    def explain(self, needed: int, budget: _Budget) -> tuple[str, str]:
        """Return a clause on the limits that ``needed`` tokens exceed, and sentences on the remedy."""
        if not self.source:
            return str(budget), budget.remedy(needed)
        if needed <= budget.prompt_tokens:
            return self.source, self.remedy
        return f"{self.source}, and {budget}", f"{self.remedy} {budget.remedy(needed)}"


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """Prompt as the model reads it.

    Attributes:
        text: includes the chat template.
        cut_at: index in ``text`` at which truncation removed text, or None for uncut texts.
    """

    request: Request
    text: str
    cut_at: int | None = None


class Prompter:
    """Converter of prompts into requests for one model.

    Args:
        context_window: tokens that prompt and answer share.
        template: chat template, or None to feed every prompt as plain text.
        max_prompt_tokens: limit of prompts before chat wrapping, in place of the benchmark's own.
        max_new_tokens: answer budget in place of the benchmark's own.
        thinking_tokens: extra budget for reasoning; 0 means one budget for reasoning and answer. Bare prompts
            (``Prompt.chat`` False) never get it, since only templates make a model think, nor do prompts with
            ``has_shared_budget``.
        stop: strings that end every answer, in addition to the benchmark's own.
        sends_system: for servers that wrap prompts: whether they accept system messages.
        sends_turns: whether a server wraps prompts, which then takes a conversation as messages.

    Attributes:
        has_template: whether chat prompts are put into a template, here or by a server.
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
        stop: Sequence[str] = (),
        sends_system: Callable[[], bool] | None = None,
        sends_turns: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._window = context_window
        self._wrapper = Wrapper(tokenizer, template, sends_system=sends_system)
        self._template = template
        self.has_template = template is not None or sends_turns
        self._max_prompt_tokens = max_prompt_tokens
        self._max_new_tokens = max_new_tokens
        self._thinking_tokens = thinking_tokens
        self._stop = stop
        self._controls = frozenset(tokenizer.control_tokens.values())

    def request(self, key: SampleKey, prompt: Prompt, sampling: Sampling) -> Request:
        """Encode a prompt, truncated by the benchmark's method if the prompt is too long.

        Raises:
            PromptError: the method forbids truncation, or would remove the whole document.
        """
        return self.read(key, prompt, sampling).request

    def read(self, key: SampleKey, prompt: Prompt, sampling: Sampling) -> ReadPrompt:
        """Encode a prompt like ``request``, and return the request with the text that the model reads."""
        answer = self._max_new_tokens or prompt.max_new_tokens
        has_own_budget = prompt.chat and not prompt.has_shared_budget
        budget = _Budget(self._window, answer, self._thinking_tokens if has_own_budget else 0)
        placement = self._wrapper.system_place(prompt.system, chat=prompt.chat)
        if placement == "text":
            prompt = prompt.with_system_in_text
        if not (prompt.chat and self.has_template):
            prompt = prompt.with_turns_in_text
        if not prompt.chat or self._template is None:
            prompt = prompt.with_prefix_in_text
        cut, wrapped, ids = self._fit(key, prompt, budget)
        marks = self._tokenizer.reasoning_marks
        more_stops = [*self._stop, *([marks.end] if marks.end and prompt.chat else [])]
        # Number of BOS tokens before the first other token. Later ones are correct: ChatML templates open every turn
        # with the token that some models call BOS.
        bos_tokens = 0
        for token in ids:
            if token == self._tokenizer.bos_id:
                bos_tokens += 1
            elif token in self._controls or self._tokenizer.decode([token]).strip():
                break
        request = Request(
            key=key,
            token_ids=tuple(map(_IDS.setdefault, ids, ids)),
            max_new_tokens=budget.answer,
            stop=(*prompt.stop, *(stop for stop in more_stops if stop not in prompt.stop)),
            stop_tokens=prompt.stop_tokens,
            min_new_tokens=prompt.min_new_tokens,
            sampling=sampling,
            original_tokens=cut.original_tokens + self._turn_tokens(prompt),
            truncated=cut.removed_tokens > 0,
            tokens_cut=cut.removed_tokens,
            kept=cut.text if cut.removed_tokens else "",
            bos_tokens=bos_tokens,
            prompt_sha256=sha256_text(wrapped.text),
            opens_reasoning=opens_reasoning(wrapped.text_after_user.removesuffix(prompt.answer_prefix), marks),
            thinking_tokens=budget.reasoning,
            system=prompt.system if self._template is None else "",
            turns=prompt.turns if self._template is None else (),
            system_place=placement,
        )
        cut_at = wrapped.user_start + min(cut.cut_at, len(wrapped.user_text)) if cut.removed_tokens else None
        return ReadPrompt(request, wrapped.text, cut_at)

    def _fit(self, key: SampleKey, prompt: Prompt, budget: _Budget) -> tuple[_CutText, ChatPrompt, list[int]]:
        chat = prompt.chat and self._template is not None
        if (tokens := self._max_prompt_tokens) is not None:
            limit = _Limit(tokens, f"--max-prompt-tokens is {tokens}", "Raise --max-prompt-tokens, or leave it out.")
        elif self._window in prompt.limits:
            tokens = prompt.limits[self._window]
            source = f"the benchmark's limit for a context window of {self._window} tokens is {tokens}"
            limit = _Limit(tokens, source, "Use a larger context window, or set --max-prompt-tokens.")
        else:
            around = self._template is not None or prompt.system or prompt.turns
            is_separate = prompt.chat and around and prompt.truncation is not Truncation.DOCUMENT_END_ONCE
            limit = _Limit(budget.prompt_tokens - (self._read_tokens(prompt, "") if is_separate else 0))
        cut = _CutText(prompt.text, original_tokens=0)
        for _ in range(_MAX_CUTS):
            cut = self._truncate(prompt, limit, budget)
            self._check_not_empty(key, cut, limit, budget)
            wrapped = self._wrap(prompt, cut.text)
            alone = not chat and not prompt.system and not prompt.turns
            ids = list(cut.ids) if cut.ids and alone else self._wrapper.encode(wrapped)
            if len(ids) <= budget.prompt_tokens:
                return cut, wrapped, ids
            # Text decoded from a cut may encode to a few tokens more than were kept: cut those too.
            limit = _Limit(min(limit.tokens, cut.original_tokens) - (len(ids) - budget.prompt_tokens))
        raise PromptError(
            f"The prompt of {key} has {cut.original_tokens} tokens and cannot be truncated to fit: {budget}.",
            fix=budget.remedy(cut.original_tokens),
        )

    def _read_tokens(self, prompt: Prompt, text: str) -> int:
        return len(self._wrapper.encode(self._wrap(prompt, text)))

    def _turn_tokens(self, prompt: Prompt) -> int:
        return sum(len(self._tokenizer.encode(turn, special=False)) for turn in prompt.turns)

    def _wrap(self, prompt: Prompt, text: str) -> ChatPrompt:
        wrapped = self._wrapper.wrap(text, prompt.system, prompt.turns, chat=prompt.chat)
        return wrapped.with_answer_prefix(prompt.answer_prefix)

    def _encode(self, text: str, *, special: bool = False) -> list[int]:
        """Encode a text, with the prefix tokens that the model expects."""
        return self._wrapper.with_prefix(self._tokenizer.encode(text, special=special))

    def _truncate(self, prompt: Prompt, limit: _Limit, budget: _Budget) -> _CutText:
        ids = self._encode(prompt.text, special=prompt.reads_control_tokens and not prompt.chat)
        if prompt.truncation in (Truncation.WORDS_END, Truncation.WORDS_START):
            return self._cut_words(prompt, limit, budget, ids)
        total = len(ids)
        if prompt.truncation is Truncation.DOCUMENT_END_ONCE and prompt.chat and self._template is not None:
            total = self._read_tokens(prompt, prompt.text)
        if total <= limit.tokens:
            return _CutText(prompt.text, total, ids=tuple(ids))
        if prompt.truncation is Truncation.REFUSE:
            turns = self._turn_tokens(prompt)
            reason, remedy = limit.explain(len(ids) + turns, budget)
            raise PromptError(
                f"The prompt has {len(ids) + turns} tokens, more than the {limit.tokens + turns} that fit, and this "
                f"benchmark does not truncate prompts: {reason}.",
                fix=remedy,
            )
        if limit.tokens <= 0:
            reason, remedy = limit.explain(1, budget)
            raise EmptyPromptError(
                f"Truncation would remove the whole prompt ({len(ids)} tokens): {reason}.", fix=remedy
            )
        if prompt.truncation in (Truncation.MIDDLE, Truncation.MIDDLE_FLOOR, Truncation.MIDDLE_EVEN):
            return self._cut_middle(ids, limit.tokens, prompt.truncation)
        return self._cut_document(prompt, limit, budget, total)

    def _check_not_empty(self, key: SampleKey, cut: _CutText, limit: _Limit, budget: _Budget) -> None:
        if cut.text.strip():
            return
        if not cut.removed_tokens:
            raise PromptError(
                f"The prompt of {key} is empty.", fix="Its data may be damaged: check it with lbx verify."
            )
        reason, remedy = limit.explain(limit.tokens, budget)
        raise EmptyPromptError(
            f"The prompt of {key} is empty after truncation: {limit.tokens} of its {cut.original_tokens} tokens may "
            f"remain, and the {cut.original_tokens - cut.removed_tokens} remaining tokens contain no text: {reason}.",
            fix=remedy,
        )

    def _cut_middle(self, ids: Sequence[int], limit: int, rule: Truncation) -> _CutText:
        decode = self._tokenizer.decode
        half = int(limit / 2)
        decodes_separately = rule is Truncation.MIDDLE
        # Slices count from the front: ids[-0:] would be the whole prompt if a limit of 1 leaves no token for the end.
        end = len(ids) - (limit - half if rule is Truncation.MIDDLE_FLOOR else half)
        start = decode(ids[:half])
        text = start + decode(ids[end:]) if decodes_separately else decode([*ids[:half], *ids[end:]])
        return _CutText(text, len(ids), removed_tokens=end - half, cut_at=len(start))

    def _cut_document(self, prompt: Prompt, limit: _Limit, budget: _Budget, original: int) -> _CutText:
        document = self._tokenizer.encode(prompt.document, special=False)
        keep = len(document) - (original - limit.tokens)
        is_once = prompt.truncation is Truncation.DOCUMENT_END_ONCE
        if keep < (-len(self._tokenizer.prefix_ids) if is_once else 1):
            question = original - len(document)
            reason, remedy = limit.explain(question + 1, budget)
            raise EmptyPromptError(
                f"The question and its instructions have {question} tokens, which leaves none for the document, and "
                f"lbx never truncates the question: {reason}.",
                fix=remedy,
            )
        keep = max(keep, 0)
        first = keep // 2 if prompt.truncation is Truncation.DOCUMENT_MIDDLE else keep
        head, tail = document[:first], document[len(document) - (keep - first) :]
        start, end = (self._tokenizer.decode(part) if part else "" for part in (head, tail))
        if is_once:
            start = self._keep_document_start(prompt.document, start, self._tokenizer.decode(document))
        text = prompt.before + start + end + prompt.after
        return _CutText(text, original, removed_tokens=original - limit.tokens, cut_at=len(prompt.before + start))

    def _keep_document_start(self, document: str, beginning: str, text: str) -> str:
        """Cut a document where the first removed token begins, within no character, as HELMET does.

        Args:
            beginning, text: texts of the tokens to keep, and of all tokens.
        """
        pairs = enumerate(zip(beginning, text, strict=False))
        size = next((at for at, (kept, own) in pairs if kept != own), min(len(beginning), len(text)))
        if document.startswith(beginning[:size]):
            return document[:size]

        # The tokenizer normalises the text. Not tokens are counted, because half a word may have more than the word.
        def read_length(end: int) -> int:
            return len(self._tokenizer.decode(self._tokenizer.encode(document[:end], special=False)))

        count = bisect_right(range(len(document) + 1), size, key=read_length)
        return document[: count - 1]

    def _cut_words(self, prompt: Prompt, limit: _Limit, budget: _Budget, ids: Sequence[int]) -> _CutText:
        at_end = prompt.truncation is Truncation.WORDS_END
        words = prompt.document.split(" ")

        def keep_words(count: int) -> str:
            return " ".join(words[:count] if at_end else words[max(0, len(words) - count) :])

        def text_with(document: str) -> str:
            return prompt.before + document + prompt.after

        def is_within_limit(document: str) -> bool:
            if len(self._encode(document)) > limit.tokens:
                return False
            most = self._max_prompt_tokens
            return most is None or len(self._encode(text_with(document))) <= most

        def fits(document: str) -> bool:
            return is_within_limit(document) and self._read_tokens(prompt, text_with(document)) <= budget.prompt_tokens

        if fits(prompt.document):
            return _CutText(prompt.text, len(ids), ids=tuple(ids))
        # The official script gives up if even the last 250 words do not fit; here single words go then. Fewer words are
        # fewer tokens, so the first count that fits can be found by bisection.
        most = limit.tokens
        counts = [*range(most, 0, -_WORDS_A_CUT), *range((most - 1) % _WORDS_A_CUT, 0, -1)]
        n_words = bisect_left(counts, True, key=lambda count: fits(keep_words(count)))
        if n_words == len(counts):
            least = self._read_tokens(prompt, text_with(keep_words(1)))
            binding = _Limit(0) if is_within_limit(keep_words(1)) else limit
            reason, remedy = binding.explain(least, budget)
            raise EmptyPromptError(
                f"Truncation would remove the whole document: with one word of it, the prompt has {least} tokens, and "
                f"{reason}.",
                fix=remedy,
            )
        document = keep_words(counts[n_words])
        text = text_with(document)
        lost = len(ids) - len(self._encode(text))
        return _CutText(
            text,
            len(ids),
            removed_tokens=max(1, lost),
            cut_at=len(prompt.before + document) if at_end else len(prompt.before),
        )
