"""One sample from its prompt to its answer, in one step or two, with the marks that say what may have spoilt it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from lbx.benchmarks.base import Benchmark
from lbx.engine.work import Work
from lbx.errors import BackendError, PromptError
from lbx.records import Completion, Prompt, Request, Sample, SampleKey
from lbx.store import GenerationRow


@dataclass(frozen=True, slots=True)
class _Step:
    prompt: Prompt
    request: Request
    completion: Completion

    def to_json(self) -> dict[str, Any]:
        """For ``generations.steps``."""
        return {
            "output": self.completion.text,
            "reasoning": self.completion.reasoning,
            "finish_reason": self.completion.finish_reason,
            "prompt_tokens": len(self.request.token_ids),
            "output_tokens": self.completion.output_tokens,
            "prompt_sha256": self.request.prompt_sha256,
            "prompt_source": self.prompt.source,
        }


def ask(work: Work, benchmark: Benchmark, sample: Sample, key: SampleKey) -> GenerationRow:
    """Ask one sample once. What fails for this sample alone becomes a row with its error.

    Raises:
        BundleError: the bundle lacks the benchmark's prompt.
    """
    prompt = benchmark.prompt(work.bundle, sample, work.mode, work.chunks(benchmark, sample))
    try:
        steps = [_step(work, prompt, key)]
        follow_up = benchmark.follow_up(work.bundle, sample, work.mode, steps[0].completion.text)
        if follow_up is not None:
            steps.append(_step(work, follow_up, key))
    except (PromptError, BackendError) as exc:
        return GenerationRow(
            work.run_id, *key, prompt_source=prompt.source, error=str(exc), error_type=type(exc).__name__
        )
    return _row(work.run_id, steps, reference_cut(benchmark.evidence(sample), steps[0].prompt, steps[0].request))


def _step(work: Work, prompt: Prompt, key: SampleKey) -> _Step:
    request = work.prompter.request(key, prompt, work.settings.sampling_for(prompt, key.iteration))
    return _Step(prompt, request, work.backend.generate(request))


def _row(run_id: str, steps: Sequence[_Step], cut: bool | None) -> GenerationRow:
    """The last step's answer; the first step's prompt, which has the document; everybody's tokens and seconds."""
    first, last = steps[0], steps[-1]
    said = [step.completion for step in steps]
    read = [step.request for step in steps]
    closed = [one.reasoning_closed for one in said if one.reasoning_closed is not None]
    return GenerationRow(
        run_id,
        *first.request.key,
        output=last.completion.text,
        reasoning=last.completion.reasoning,
        finish_reason="length" if any(one.finish_reason == "length" for one in said) else "stop",
        prompt_tokens=sum(len(one.token_ids) for one in read),
        cached_tokens=sum(one.cached_tokens for one in said),
        output_tokens=sum(one.output_tokens for one in said),
        original_tokens=sum(one.original_tokens for one in read),
        truncated=any(one.truncated for one in read),
        prompt_sha256=first.request.prompt_sha256,
        prompt_source=first.prompt.source,
        prefill_s=sum(one.prefill_s for one in said),
        decode_s=sum(one.decode_s for one in said),
        seed=first.request.sampling.seed,
        reasoning_tokens=sum(one.reasoning_tokens for one in said),
        reasoning_closed=all(closed) if closed else None,
        stop_in_reasoning=any(one.stop_in_reasoning for one in said),
        tokens_cut=sum(one.tokens_cut for one in read),
        reference_cut=cut,
        bos_tokens=max(one.bos_tokens for one in read),
        steps=[step.to_json() for step in steps[:-1]] or None,
    )


def reference_cut(evidence: Sequence[str], prompt: Prompt, request: Request) -> bool | None:
    """Whether truncation cut away every place in the document where one of the texts stood, compared without case.

    None where nothing was cut, or none of the texts stands in the document to begin with.
    """
    if not request.truncated:
        return None
    document = prompt.document.casefold()
    standing = [text for text in (one.strip().casefold() for one in evidence) if text and text in document]
    if not standing:
        return None
    # What stands around the document is no evidence: a multiple-choice question spells out its own answer. A cut may
    # go into it, so what is left of it is what agrees from either end.
    kept = request.kept[_agreeing(request.kept, prompt.before) :]
    kept = kept[: len(kept) - _agreeing(reversed(kept), reversed(prompt.after))].casefold()
    return not any(text in kept for text in standing)


def _agreeing(one: Iterable[str], other: Iterable[str]) -> int:
    """How many first characters are equal."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
