"""Prompts of a run exactly as its model would read them, without generating answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from lbx.base.errors import BackendError, PromptError, UsageError
from lbx.base.records import CountedIn, Prompt, Sample, SampleKey
from lbx.engine.prefix import common_prefix_length
from lbx.engine.prompter import ReadPrompt
from lbx.opinions.judge_spec import JudgeSpec
from lbx.options.run_spec import RunSpec
from lbx.running.jobs import Work
from lbx.running.models import load_to_count, resolve_card
from lbx.running.preparing import make_works, open_retriever, resolve

FIRST_ANSWER = "<the first answer>"
"""Placeholder for the model's answers in later prompts."""


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """Prompt as sent to the model.

    Attributes:
        step: number of answers that the prompt follows.
        prepared_prompt: None if the prompt cannot be sent; ``error`` contains the reason.
        counted_in: see ``BackendInfo``.
        shared_tokens: length of the common prefix with the previous prompt.
    """

    key: SampleKey
    step: int
    prompt: Prompt
    prepared_prompt: ReadPrompt | None
    counted_in: CountedIn
    error: str | None = None
    shared_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        row = {**self.key._asdict(), "step": self.step, "prompt_source": self.prompt.source, "error": self.error}
        if self.prepared_prompt is None:
            return row
        request = asdict(self.prepared_prompt.request)
        names = (
            "max_new_tokens", "thinking_tokens", "min_new_tokens", "stop", "stop_tokens", "sampling", "original_tokens",
            "truncated", "tokens_cut", "bos_tokens", "prompt_sha256",
        )  # fmt: skip
        return {
            **row,
            "text": self.prepared_prompt.text,
            "cut_at": self.prepared_prompt.cut_at,
            "prompt_tokens": len(self.prepared_prompt.request.token_ids),
            "shared_tokens": self.shared_tokens,
            **{name: request[name] for name in names},
            "system_prompt": self.prepared_prompt.request.system_place,
            "token_ids": list(self.prepared_prompt.request.token_ids),
        }


def prompts(spec: RunSpec, *, first: bool = False) -> Iterator[SentPrompt]:
    """Yield the prompts of a run as sent to the model, sample by sample. The model is loaded for the tokenizer.

    Args:
        first: only the first selected sample of each task.

    Raises:
        LbxError: the bundle, the tasks or the model are missing.
    """
    with _open_works(spec) as works:
        for work in works:
            before: Sequence[int] = ()
            for task in work.tasks:
                benchmark = work.benchmarks[task.benchmark]
                selected = work.selection.select(task, benchmark.samples(work.bundle, task.name))
                for _, sample in islice(selected, 1 if first else None):
                    for sent in _prompts_of_sample(work, sample):
                        ids = sent.prepared_prompt.request.token_ids if sent.prepared_prompt else ()
                        yield replace(sent, shared_tokens=common_prefix_length(before, ids))
                        before = ids or before


def rebuild_sent_prompts(
    spec: RunSpec, run_id: str, key: SampleKey, answers: Sequence[str], results: Path | None = None
) -> list[SentPrompt]:
    """Rebuild the prompts of one stored answer.

    Args:
        answers: outputs of every step except the last one.

    Raises:
        LbxError: the bundle, the sample or the model no longer exists.
    """
    name = f"{key.benchmark}/{key.task}"
    only = replace(
        spec, tasks=(name,), ids=(f"{name}/{key.sample_id}",), limit=None, documents=None, sample=None, questions=None,
        workers=0,
    )  # fmt: skip
    if isinstance(spec, JudgeSpec):  # its tasks are the tasks of the judged answers
        files = [path for path in spec.answers if Path(path).is_file()] or [str(results)]
        only = replace(spec, ids=only.ids, limit=None, workers=0, answers=tuple(files))
    with _open_works(only, run_id, results) as (work, *_):
        for task in work.tasks:
            selected = work.selection.select(task, work.benchmarks[task.benchmark].samples(work.bundle, task.name))
            for _, sample in selected:
                if sample.key == key._replace(iteration=0):
                    return list(_prompts_of_sample(work, sample, answers))
    raise UsageError(f"The bundle {spec.bundle} no longer contains {key}.")


@contextmanager
def _open_works(spec: RunSpec, run_id: str | None = None, results: Path | None = None) -> Iterator[list[Work]]:
    """Open the runs of a spec as a list, ``run_id`` first, with a model that only counts tokens."""
    run = resolve(spec)
    with open_retriever(run) as reading:
        card = resolve_card(spec, run.bundle)
        backend = load_to_count(card, run.bundle)
        try:
            yield sorted(make_works(reading, card, backend), key=lambda work: work.run_id != run_id)
        finally:
            backend.close()


def _prompts_of_sample(work: Work, sample: Sample, answers: Sequence[str] | None = None) -> Iterator[SentPrompt]:
    """Yield the prompts of all steps. Without answers, a placeholder stands for each."""
    benchmark = work.benchmarks[sample.benchmark]
    prompt: Prompt | str = work.prompt(sample)
    outputs: list[str] = []
    while isinstance(prompt, Prompt):
        yield _sent_prompt(work, sample.key, len(outputs), prompt)
        if answers is not None and len(outputs) == len(answers):
            break
        outputs.append(FIRST_ANSWER if answers is None else answers[len(outputs)])
        prompt = benchmark.next_step(work.bundle, sample, work.mode, outputs)


def _sent_prompt(work: Work, key: SampleKey, step: int, prompt: Prompt) -> SentPrompt:
    counted_in = work.backend.info.counted_in
    try:
        return SentPrompt(key, step, prompt, work.prepare_prompt(key, prompt), counted_in)
    except (PromptError, BackendError) as error:
        return SentPrompt(key, step, prompt, None, counted_in, str(error))
