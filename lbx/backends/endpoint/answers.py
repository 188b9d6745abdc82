"""Conversion of requests into parameters of OpenAI-compatible servers, and of replies into completions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lbx.backends.endpoint.tokenizer import CharacterTokenizer
from lbx.base.errors import BackendError
from lbx.base.records import Completion, Request, replace_surrogates
from lbx.engine.prompter import Tokenizer
from lbx.engine.reasoning import ReasoningMarks, opening_end, split_reasoning, text_after_mark

LLAMA = ("llama-server", "llama-cpp-python")
_TORCH = ("vllm", "sglang")
_FINISHED = {"length": "length", "max_tokens": "length"}
_FAILED = ("abort", "error", "content_filter", "tool_calls", "function_call")
_CHECK_LOG = "Check the server's log."
_REMEDIES = {
    "content_filter": "Its filter withheld the answer: switch the filter off, or count the sample as failed.",
    "tool_calls": "It called a tool in place of an answer: start the server without tools.",
    "function_call": "It called a function in place of an answer: start the server without functions.",
}
_LONGEST_NAME = 500
_MOST_COUNTED = (1 << 31) - 1


def parameters(request: Request, kind: str, *, with_stop: bool) -> dict[str, Any]:
    """Parameters of a request, except the prompt: budget, sampling, stop strings.

    Greedy answers must come from the unmodified logits: servers that penalise repetition by default, or take a penalty
    from the model's files, get explicit neutral values.

    Args:
        kind: server software, from ``SERVERS``; unknown servers get OpenAI's parameters, and others only if needed.
    """
    sampling = request.sampling
    values: dict[str, Any] = {
        "max_tokens": request.max_new_tokens + request.thinking_tokens,
        "temperature": sampling.temperature,
    }
    if with_stop:
        values["stop"] = list(request.stop)
    if sampling.temperature:
        values |= {"top_p": sampling.top_p, "seed": seed(request)}
        is_known_server = kind in (*LLAMA, *_TORCH)
        if sampling.top_k or is_known_server:
            values["top_k"] = sampling.top_k or (-1 if kind in _TORCH else 0)
        if sampling.min_p or is_known_server:
            values["min_p"] = sampling.min_p
        if kind == "llama-server":  # by default it applies temperature last; transformers, vLLM and lbx, first
            values["samplers"] = ["temperature", "top_k", "top_p", "min_p"]
    if kind in LLAMA:
        values["repeat_penalty"] = 1.0
    if kind in _TORCH:
        values["repetition_penalty"] = 1.0
    if request.min_new_tokens and kind in ("llama-cpp-python", *_TORCH):
        values["min_tokens"] = request.min_new_tokens
    return values


def seed(request: Request) -> int:
    """Seed of a sampled answer, below 2**31, different for each sample and iteration."""
    digest = hashlib.sha256(f"{request.sampling.seed}\n{request.key}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") >> 1


@dataclass(frozen=True, slots=True)
class Reply:
    """Parsed reply of a server.

    Attributes:
        text: answer, including the reasoning if the server does not split it.
        reasoning: reasoning split off by the server, or None if it did not split.
        finish_reason: "stop" or "length".
        model: the server's name for the model, or None if missing.
        prompt_tokens, output_tokens, reasoning_tokens, cached_tokens: the server's counts, each None if missing.
        prefill_s, decode_s: seconds; if the server does not report them, ``decode_s`` is the total.
    """

    text: str
    reasoning: str | None
    finish_reason: str
    model: str | None
    prompt_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cached_tokens: int | None
    prefill_s: float
    decode_s: float


def read_reply(body: Mapping[str, Any], wall_s: float, *, budget: int | None = None) -> Reply:
    """Parse the first choice of a server's reply.

    A count of 0 tokens for a prompt or a text is unknown: servers that do not count report it.

    Args:
        budget: limit of the answer in tokens, which shows whether an answer without a finish reason reached it.

    Raises:
        BackendError: the reply contains no choice, or reports a failure.
    """
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise BackendError("The server's answer has no choices.", fix=_CHECK_LOG)
    choice, usage, timings = choices[0], table_of(body.get("usage")), table_of(body.get("timings"))
    message = table_of(choice.get("message"))
    text = message.get("content") if message else choice.get("text")
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    finish = str(choice.get("finish_reason") or "")
    if finish in _FAILED:
        raise BackendError(f"The server did not finish the answer ({finish}).", fix=_REMEDIES.get(finish, _CHECK_LOG))
    if not isinstance(text, str | None) or not isinstance(reasoning, str | None) or (text is None and not message):
        raise BackendError(f"The server's answer is not text: {str(choice)[:200]}.", fix=_CHECK_LOG)
    cached = count_of(table_of(usage.get("prompt_tokens_details")).get("cached_tokens"))
    prefill_s, decode_s = (_seconds_of(timings.get(name)) for name in ("prompt_ms", "predicted_ms"))
    if prefill_s is None or decode_s is None:
        prefill_s, decode_s = 0.0, wall_s
    output_tokens = count_of(usage.get("completion_tokens"))
    if not output_tokens and (text or reasoning):
        output_tokens = None
    if not finish and budget and (output_tokens or 0) >= budget:
        finish = "length"
    model = body.get("model")
    return Reply(
        text=text or "",
        reasoning=reasoning,
        finish_reason=_FINISHED.get(finish, "stop"),
        model=replace_surrogates(model)[:_LONGEST_NAME] if model and isinstance(model, str) else None,
        prompt_tokens=count_of(usage.get("prompt_tokens")) or None,
        output_tokens=output_tokens,
        reasoning_tokens=count_of(table_of(usage.get("completion_tokens_details")).get("reasoning_tokens")),
        cached_tokens=count_of(timings.get("cache_n")) if cached is None else cached,
        prefill_s=prefill_s,
        decode_s=decode_s,
    )


def stopped_early(request: Request, reply: Reply, tokenizer: Tokenizer) -> bool:
    """Whether a sent stop string may have ended the reasoning or blanks before it, which stop strings must not end."""
    if reply.finish_reason != "stop":
        return False
    if reply.reasoning is not None:
        return not reply.text.strip()
    marks = tokenizer.reasoning_marks
    reasoning, answer = split_reasoning(reply.text, opened=request.opens_reasoning, marks=marks)
    if reasoning is None:
        return not reply.text.strip()
    # Words before the block are no answer after it.
    closed = reply.text.find(marks.close, opening_end(reply.text, marks.open)) >= 0
    return not (_text_after_block(reply.text, marks) if closed else answer).strip()


def make_completion(request: Request, reply: Reply, tokenizer: Tokenizer, *, drops_first_space: bool) -> Completion:
    """Make a completion from a reply: split the reasoning off, and cut the answer at the first stop string.

    Args:
        drops_first_space: whether decoded texts lack the leading space of the first token.
    """
    text = reply.text.removeprefix(" ") if drops_first_space and reply.reasoning is None else reply.text
    marks = tokenizer.reasoning_marks
    if reply.reasoning is None:
        text = _cut_before_block(request, text, tokenizer)
    closed: bool | None
    if reply.reasoning is not None:
        reasoning, answer = reply.reasoning.strip(), text.lstrip()
        closed = bool(answer) or reply.finish_reason == "stop"
        spoken = reply.reasoning
    else:
        split, answer = split_reasoning(text, opened=request.opens_reasoning, marks=marks)
        reasoning = split  # type: ignore[assignment]
        closed = None if split is None else text.find(marks.close, opening_end(text, marks.open)) >= 0
        spoken = _reasoning_text(text, marks, opened=request.opens_reasoning)
    # Text before the block is kept in front of the answer; stop strings only end text after the block.
    behind = answer if reply.reasoning is not None or not closed else _text_after_block(text, marks)
    before = answer.removesuffix(behind)
    stopped = _cut_at_stop(request, behind, tokenizer)
    return Completion(
        text=answer if stopped is None else before + stopped,
        output_tokens=_token_count(text, tokenizer) if reply.output_tokens is None else reply.output_tokens,
        finish_reason=reply.finish_reason if stopped is None else "stop",
        reasoning=reasoning,
        reasoning_tokens=_reasoning_tokens(reply, reasoning, tokenizer),
        reasoning_closed=closed,
        stop_in_reasoning=reasoning is not None and any(stop in spoken for stop in request.stops),
        cached_tokens=reply.cached_tokens or 0,
        prefill_s=reply.prefill_s,
        decode_s=reply.decode_s,
        prompt_tokens=reply.prompt_tokens,
        served_model=reply.model,
        ended_by_stop=stopped is not None,
    )


def _token_count(text: str, tokenizer: Tokenizer, *, special: bool = True) -> int | None:
    """Number of tokens of a text, or None without a tokenizer."""
    if isinstance(tokenizer, CharacterTokenizer):
        return None
    return len(tokenizer.encode(text, special=special))


def _text_after_block(text: str, marks: ReasoningMarks) -> str:
    return text_after_mark(text, text.find(marks.close, opening_end(text, marks.open)), marks)


def _cut_before_block(request: Request, text: str, tokenizer: Tokenizer) -> str:
    """Drop the text from the closing mark on if a stop string occurs before the mark.

    The decode loop ends at the stop string and never sees the mark, which would turn those words into reasoning.
    """
    marks = tokenizer.reasoning_marks
    if request.opens_reasoning or opening_end(text, marks.open) or text.lstrip().startswith(marks.close):
        return text
    closing = text.find(marks.close)
    stopped = _cut_at_stop(request, text[:closing], tokenizer) if closing >= 0 else None
    return text if stopped is None else text[:closing]


def _reasoning_text(text: str, marks: ReasoningMarks, *, opened: bool) -> str:
    """Reasoning in a text that contains a block, with leading and trailing white space."""
    start = opening_end(text, marks.open)
    at = text.find(marks.close, start)
    inside = text[start:] if at < 0 else text[start:at]
    if opened or start or marks.open not in inside:
        return inside
    return inside.partition(marks.open)[2]


def _cut_at_stop(request: Request, answer: str, tokenizer: Tokenizer) -> str | None:
    """Answer before the first stop that ``min_new_tokens`` allows, or None without a stop.

    The server's tokens are unknown: the text of a stop token ends the answer only after its first words, as leading
    line breaks may belong to a longer token.
    """
    start = 0
    if request.min_new_tokens:
        start = len(tokenizer.decode(tokenizer.encode(answer, special=False)[: request.min_new_tokens]))
    ends = [at for stop in request.stop if stop and (at := answer.find(stop, start)) >= 0]
    words = max(start, len(answer) - len(answer.lstrip()))
    ends += [at for stop in request.stop_tokens if (at := answer.find(stop, words)) >= 0]
    return answer[: min(ends)] if ends else None


def _reasoning_tokens(reply: Reply, reasoning: str | None, tokenizer: Tokenizer) -> int | None:
    if reply.reasoning_tokens is not None:  # some servers count reasoning without returning it
        return reply.reasoning_tokens
    if reasoning is None:
        return 0
    counted = _token_count(reasoning, tokenizer, special=False)
    return counted if counted is None or reply.output_tokens is None else min(counted, reply.output_tokens)


def table_of(value: Any) -> Mapping[str, Any]:
    """Return a value of a server's JSON if it is an object, or else {}."""
    return value if isinstance(value, dict) else {}


def count_of(value: Any) -> int | None:
    """Return a value of a server's JSON if it is a count that a results file can store, or else None."""
    return value if type(value) is int and 0 <= value <= _MOST_COUNTED else None


def _seconds_of(milliseconds: Any) -> float | None:
    fits = type(milliseconds) in (int, float) and 0 <= milliseconds <= _MOST_COUNTED  # NaN does not
    return milliseconds / 1000 if fits else None
