"""Backend for models on an OpenAI-compatible server: llama-server, llama-cpp-python, vLLM, SGLang, or hosted.

With a tokenizer in the card, lbx wraps and truncates prompts like for every other backend, and sends them as token ids,
or, if the server takes none, as text that was checked to encode to exactly these ids. A probe at load time measures
whether the server puts a BOS before a text, and its count of the prompt's tokens is compared with lbx's on every
answer. Without a tokenizer, the server's chat interface gets the user's message, wraps it in its own template, and
refuses prompts that do not fit: lbx then counts characters and truncates no prompt.

HTTP has no separate budget for reasoning: ``thinking_tokens`` and ``max_new_tokens`` become one budget.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.backends.cards import ModelCard
from lbx.backends.endpoint.answers import (
    LLAMA,
    Reply,
    make_completion,
    parameters,
    read_reply,
    stopped_early,
)
from lbx.backends.endpoint.http import RefusedError, Server, UnreachableError
from lbx.backends.endpoint.options import EndpointOptions
from lbx.backends.endpoint.probe import (
    PromptTransport,
    ServerFacts,
    backend_info,
    check_card,
    probe_transport,
    read_facts,
    takes_system,
)
from lbx.backends.endpoint.prompt_log_probs import MAX_TEXT_TOKENS, read_top_log_probs
from lbx.backends.endpoint.tokenizer import CharacterTokenizer, PromptText
from lbx.backends.tokenizer_loading import open_tokenizer
from lbx.base.errors import BackendError, EndpointError, LbxError, PromptError
from lbx.base.processes import POLL_INTERVAL_S
from lbx.base.records import Completion, Request
from lbx.engine.chat_template import conversation
from lbx.engine.model import BackendInfo, CompletionResult, TopLogProbs
from lbx.engine.prompter import Tokenizer
from lbx.engine.token_budget import check_fits

ResultQueue = queue.Queue[tuple[int, CompletionResult | BaseException]]
MAX_UNANSWERED = 3
"""Number of consecutive unanswered requests that ends a run, even if the server is alive."""

_MERGED_TOKENS = 2
"""Number of tokens that both ends of a message may lose to the template's text."""
_MOST_CHARACTERS = 12
"""Maximum number of characters per token in a long text without runs, with any known tokenizer."""
_UNSUPPORTED = re.compile(r"unsupported|not supported|unrecogni[sz]ed|unknown|not permitted", re.IGNORECASE)
_CHECK_LOG = "Check the server's log."
_SIGNS, _RUN, _REPEATED_WORD = re.compile(r"[\W_]+"), re.compile(r"(.)\1+"), re.compile(r"\b(\w+)(?: \1\b)+")
_TOO_LONG = re.compile(r"context|too long|max(imum)?[ _-]?(model[ _-]?)?(len|token)|exceeds? the limit", re.IGNORECASE)


@dataclass(eq=False)
class EndpointBackend:
    """Model on a server, which is sent several requests concurrently.

    Args:
        tokenizer: tokenizer of the card, or a ``CharacterTokenizer``.
        template_fields: variables for the server's chat template, as fields of a request.
    """

    _server: Server
    _facts: ServerFacts
    _transport: PromptTransport
    tokenizer: Tokenizer
    info: BackendInfo
    _free: Callable[[], None]
    _concurrency: int
    _template_fields: Mapping[str, Any]
    eos_ids: frozenset[int] = frozenset()
    max_text_tokens: int = MAX_TEXT_TOKENS

    def __post_init__(self) -> None:
        self._text = PromptText(self.tokenizer)
        self._lock = threading.Lock()
        self._timeouts = 0
        self._last_timeout = 0.0
        self._last_problem = UnreachableError("")
        self._workers = 0
        self._takes_system: bool | None = None

    def generate_many(
        self, requests: Sequence[Request], *, one_by_one: bool = False
    ) -> Iterator[tuple[int, CompletionResult]]:
        """Request answers concurrently, with prompts that share a prefix close together.

        Yields:
            (index, result) in order of completion; each index once. The result is a Completion, a PromptError if the
            request does not fit the context window (by lbx's count or the server's), or a BackendError if the server
            failed.

        Raises:
            EndpointError: the server is gone, or refuses every request; requests without a result were not answered.
        """
        order = RequestQueue([r.token_ids for r in requests], one_by_one=self._facts.kind in LLAMA)
        results: ResultQueue = queue.Queue()

        def work() -> None:
            try:
                while (index := order.take()) is not None:
                    results.put((index, self._outcome(requests[index])))
                    order.release_followers(index)
            finally:
                with self._lock:
                    self._workers -= 1

        threads = min(1 if one_by_one else self._concurrency, len(requests))
        with self._lock:
            self._workers += threads
        for _ in range(threads):
            # A daemon thread: an interrupted run must not wait for answers that are no longer needed.
            threading.Thread(target=work, daemon=True).start()
        try:
            for _ in requests:
                index, outcome = _next_result(results)
                if not isinstance(outcome, CompletionResult):
                    order.stop()
                    yield from self._finished_results(results)
                    raise outcome
                yield index, outcome
        finally:
            order.stop()

    def use_recovery(self, recover: Callable[[float], bool]) -> None:
        """Set ``Server.recover``, the function that restarts a crashed server."""
        self._server.recover = recover

    def takes_system(self) -> bool:
        if self._takes_system is None:
            self._takes_system = self._transport.api == "chat" and takes_system(self._server, self._facts)
        return self._takes_system

    def text_top_log_probs(self, tokens: Sequence[int]) -> TopLogProbs:
        """Return the log probabilities of the likeliest tokens after each token of a text (``TopBackend``)."""
        return read_top_log_probs(self._server, self._facts, tokens)

    def close(self) -> None:
        self._server.close()
        with self._lock:
            if not self._workers:  # after an interruption a worker may still be counting tokens
                self._free()
                self._free = lambda: None

    @staticmethod
    def _finished_results(results: ResultQueue) -> Iterator[tuple[int, CompletionResult]]:
        """Yield the results that other threads have finished in the meantime, so that no answer is lost."""
        while not results.empty():
            index, outcome = results.get()
            if isinstance(outcome, CompletionResult):
                yield index, outcome

    def _outcome(self, request: Request) -> CompletionResult | BaseException:
        try:
            return self._answer(request)
        except BaseException as exc:  # raised again in the thread that reads the results
            return exc

    def _answer(self, request: Request) -> Completion:
        check_fits(request, self.info.context_window)
        prompt = self._prompt(request)
        sends_stop = bool(request.stop) and not request.min_new_tokens
        reply = self._ask(request, prompt, with_stop=sends_stop)
        if sends_stop and stopped_early(request, reply, self.tokenizer):
            reply = self._ask(request, prompt, with_stop=False)
        return make_completion(request, reply, self.tokenizer, drops_first_space=self._drops_first_space)

    @property
    def _drops_first_space(self) -> bool:
        return self._transport.api == "completions" and self._text.drops_first_space

    def _prompt(self, request: Request) -> dict[str, Any]:
        """Fields of the request body that contain the prompt.

        Raises:
            BackendError: the server takes text only, and no text encodes to the prompt's tokens.
        """
        ids = list(request.token_ids)
        if self._transport.ids:
            return {"prompt": ids}
        first = ids[:1] == [self.tokenizer.bos_id]
        if self._transport.adds_bos or self._transport.api == "chat":
            ids = ids[1:] if first else ids
        text = self._text.find_text(ids, special=self._transport.reads_controls)
        if text is None or (self._transport.adds_bos and not first):
            raise BackendError(
                f"The prompt of {request.key} cannot be sent to this server unchanged: the server does not accept "
                "token ids, and the document contains the text of a control token or text that tokenizing changes.",
                fix='Use api = "completions" with a server that accepts token ids (llama-server, vLLM, SGLang), or one '
                "of lbx's own backends.",
            )
        if self._transport.api == "completions":
            return {"prompt": text}
        document = text.removeprefix(request.system).removesuffix("".join(request.turns))
        messages = conversation(document, request.turns)
        if request.system and text.startswith(request.system):
            messages.insert(0, {"role": "system", "content": request.system})
        return {"messages": messages, **self._template_fields}

    def _ask(self, request: Request, prompt: Mapping[str, Any], *, with_stop: bool) -> Reply:
        self._check_answering()
        kind = self._facts.kind
        payload = {"model": self._facts.model, **prompt, **parameters(request, kind, with_stop=with_stop)}
        start = time.perf_counter()
        try:
            server_reply = self._server.post(self._transport.path, payload)
        except UnreachableError as exc:
            raise self._unreachable_error(request, exc, start) from exc
        except RefusedError as exc:
            raise self._refusal_error(request, exc) from exc
        with self._lock:
            self._timeouts = 0
        reply = read_reply(server_reply, time.perf_counter() - start, budget=payload["max_tokens"])
        self._check_prompt(request, prompt, reply.prompt_tokens)
        return reply

    def _check_prompt(self, request: Request, prompt: Mapping[str, Any], read: int | None) -> None:
        """Check that the server read the whole prompt, by the server's count of tokens.

        The count must equal lbx's if lbx's tokenizer made all tokens, and else be possible for the messages.
        """
        if read is None:
            return
        if self._transport.api == "completions":
            expected, size = read == len(request.token_ids), f"{len(request.token_ids):,}"
        else:
            least = self._least_tokens(prompt["messages"])
            expected, size = read >= least, f"at least {least:,}"
        if not expected:
            raise BackendError(
                f"The server read {read:,} tokens, but the prompt of {request.key} has {size}.",
                fix="Check that the server does not truncate prompts (Ollama does, to num_ctx) and runs the model of "
                "the card's tokenizer, if it has one. Start the server with a larger context window, or set "
                "[tokenizer] and context_window in the card, so that lbx truncates prompts.",
            )

    def _least_tokens(self, messages: Sequence[Mapping[str, str]]) -> int:
        """Lower bound of the number of tokens that a server reads in complete messages.

        With a tokenizer, a template may trim a message, and merge the message's ends with the template's text.
        """
        texts = [message["content"].strip() for message in messages]
        if self.info.counts_tokens:
            special = self._transport.reads_controls
            tokens = sum(len(self.tokenizer.encode(text, special=special)) for text in texts)
            return max(0, tokens + self._transport.least_overhead - _MERGED_TOKENS * len(texts))
        return sum(map(length_without_repetitions, texts)) // _MOST_CHARACTERS

    def _check_answering(self) -> None:
        """Refuse a server that leaves requests unanswered (EndpointError).

        Those requests are already stored as failed, so that the next run does not begin with them.
        """
        if self._timeouts >= MAX_UNANSWERED:
            raise EndpointError(
                f"The model server {self._server.url} is running, but did not answer {self._timeouts} requests "
                f"in a row (the last one: {self._last_problem}).",
                fix=f"{self._last_problem.fix or _CHECK_LOG} Then run the same command again to continue; add "
                "--retry-failed to repeat the failed samples.",
            )

    def _unreachable_error(self, request: Request, exc: UnreachableError, start: float) -> LbxError:
        if not self._server.is_alive():
            return self._server.to_error(exc)
        with self._lock:
            if start >= self._last_timeout:  # concurrent timeouts count once
                self._timeouts += 1
                self._last_timeout = time.perf_counter()
                self._last_problem = exc
        return BackendError(
            f"The model server {self._server.url} gave no answer to {request.key}: {exc}.",
            fix=f"{exc.fix or _CHECK_LOG} Then run again with --retry-failed.",
        )

    def _refusal_error(self, request: Request, exc: RefusedError) -> LbxError:
        if exc.is_general:
            return self._server.to_error(exc)
        if exc.status in (400, 422) and _UNSUPPORTED.search(exc.message):
            return BackendError(
                f"The model server {self._server.url} does not take a field of the request for {request.key} ({exc}).",
                fix="Check server and extra_body under [options] in the card, and the sampling options of the run.",
            )
        if exc.status == 413 or (exc.status in (400, 422) and _TOO_LONG.search(exc.message)):
            budget = request.max_new_tokens + request.thinking_tokens
            return PromptError(
                f"The prompt of {request.key} and an answer of {budget:,} tokens do not fit the server's context "
                f"window ({exc}).",
                fix="Start the server with a larger one, set [tokenizer] and context_window in the model card, so "
                "that lbx truncates prompts, or lower --max-new-tokens.",
            )
        return BackendError(
            f"The model server {self._server.url} failed on {request.key} ({exc}).",
            fix=f"{_CHECK_LOG} Then run again with --retry-failed.",
        )


def length_without_repetitions(text: str) -> int:
    """Number of characters of a text, counting runs of signs, of a character and of a word once.

    Tokens of some vocabularies are runs of hundreds of spaces or signs, or words of 29 letters.
    """
    return len(_REPEATED_WORD.sub(r"\1", _RUN.sub(r"\1", _SIGNS.sub(" ", text))))


class RequestQueue:
    """Queue of requests for several threads, where the first of the prompts with a common prefix runs by itself.

    A server's prefix cache serves a prompt only after another one with the same prefix was read. So the first prompt of
    each group runs by itself; after its answer, its followers come before any other group.

    Args:
        one_by_one: run at most one prompt of a group at a time, for servers with a cache for a single request.
    """

    def __init__(self, prompts: Sequence[Sequence[int]], *, one_by_one: bool) -> None:
        self._groups = [deque(group) for group in group_by_prefix(prompts)]
        self._group_of = {index: number for number, group in enumerate(self._groups) for index in group}
        self._fresh = deque(range(len(self._groups)))
        self._warm: deque[int] = deque()  # groups with an answered prompt, repeated for each request that may run
        self._one_by_one = one_by_one
        self._waiting = len(self._group_of)
        self._change = threading.Condition()

    def take(self) -> int | None:
        """Wait for a request that may run and return its index, or None if all are taken or after ``stop``."""
        with self._change:
            while self._waiting:
                if self._warm:
                    return self._hand_out(self._warm.popleft())
                if self._fresh:
                    return self._hand_out(self._fresh.popleft())
                self._change.wait()
            return None

    def release_followers(self, index: int) -> None:
        """Release the requests that share a prefix with an answered or failed request."""
        with self._change:
            number = self._group_of[index]
            group = self._groups[number]
            followers = min(len(group), 1) if self._one_by_one else len(group) - self._warm.count(number)
            self._warm.extendleft([number] * followers)
            self._change.notify_all()

    def stop(self) -> None:
        """End the queue: ``take`` returns None in all threads."""
        with self._change:
            self._waiting = 0
            self._change.notify_all()

    def _hand_out(self, number: int) -> int:
        self._waiting -= 1
        if not self._waiting:
            self._change.notify_all()
        return self._groups[number].popleft()


def group_by_prefix(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Group prompts that share half of the shorter prompt with a neighbour. Returns sorted indices of each group.

    Groups come in the order of their first prompts.
    """
    keys = [tuple(prompt) for prompt in prompts]
    groups: list[list[int]] = []
    for index in sorted(range(len(keys)), key=keys.__getitem__):
        if groups and _share_half(keys[groups[-1][-1]], keys[index]):
            groups[-1].append(index)
        else:
            groups.append([index])
    return sorted(groups, key=min)


def _share_half(first: Sequence[int], second: Sequence[int]) -> bool:
    half = (min(len(first), len(second)) + 1) // 2
    return first[:half] == second[:half]


def _next_result(results: ResultQueue) -> tuple[int, CompletionResult | BaseException]:
    while True:
        with contextlib.suppress(queue.Empty):
            return results.get(timeout=POLL_INTERVAL_S)


def load(card: ModelCard, weights: Path | None, *, debug: bool = False) -> EndpointBackend:
    """Connect to the model server of a card.

    Args:
        weights: file or folder of the tokenizer, or None.

    Raises:
        ImportError: the library that reads the tokenizer is not installed.
        UsageError: the card requests features that the server or HTTP does not support.
        BackendError: the tokenizer is damaged, or of another model than the server's.
        EndpointError: the server does not answer, or refuses the key.
    """
    options = card.options_as(EndpointOptions)
    api = options.api or ("completions" if weights else "chat")
    check_card(card, api, weights)
    server = Server(options)
    free: Callable[[], None] = lambda: None  # noqa: E731
    try:
        facts = read_facts(server, card, options)
        tokenizer: Tokenizer = CharacterTokenizer(card.chat.reasoning)
        if weights is not None:
            tokenizer, free = open_tokenizer(weights, card.chat, own_template=api == "completions", debug=debug)
        template_fields = {"chat_template_kwargs": dict(card.chat.kwargs)} if api == "chat" and card.chat.kwargs else {}
        transport = probe_transport(server, facts, api, tokenizer if weights else None, template_fields)
        info = backend_info(card, options, facts, transport, tokenizer=tokenizer, weights=weights)
    except BaseException:
        server.close()
        free()
        raise
    return EndpointBackend(server, facts, transport, tokenizer, info, free, options.concurrency, template_fields)
