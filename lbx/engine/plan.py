"""What a run would read, counted before any model computes: pure arithmetic on token ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from lbx.engine.work import Work
from lbx.errors import PromptError
from lbx.records import Task


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task's figures, in tokens of the model's tokenizer.

    Attributes:
        samples: asked, without those that are refused.
        prompt_tokens: the sum over all prompts, as if each were read alone.
        distinct_tokens: the tokens of the prompts' prefix tree: what must be computed at least.
        new_tokens: the most that may be generated.
        truncated: prompts that the benchmark's rule cuts.
        refused: prompts that cannot be made to fit.
        longest: the longest prompt after cutting.
    """

    task: str
    samples: int
    prompt_tokens: int
    distinct_tokens: int
    new_tokens: int
    truncated: int
    refused: int
    longest: int


def plan(work: Work) -> list[TaskPlan]:
    """Count every task's prompts as ``lbx run`` would make them."""
    return [_plan_task(work, task) for task in work.tasks]


def _plan_task(work: Work, task: Task) -> TaskPlan:
    benchmark, iterations = work.benchmarks[task.benchmark], work.iterations_of(task)
    prompts: list[np.ndarray] = []
    new_tokens = truncated = refused = 0
    for sample in islice(benchmark.samples(work.bundle, task.name), work.limit):
        prompt = benchmark.prompt(work.bundle, sample, work.mode, work.chunks(benchmark, sample))
        try:
            request = work.prompter.request(sample.key, prompt, work.settings.sampling_for(prompt, 0))
        except PromptError:
            refused += 1
            continue
        prompts.append(np.asarray(request.token_ids, dtype=np.int32))
        new_tokens += request.max_new_tokens + request.thinking_tokens
        truncated += request.truncated
    lengths = [len(ids) for ids in prompts]
    return TaskPlan(
        task=task.full_name,
        samples=len(prompts) * iterations,
        prompt_tokens=sum(lengths) * iterations,
        distinct_tokens=distinct_tokens(prompts),
        new_tokens=new_tokens * iterations,
        truncated=truncated,
        refused=refused,
        longest=max(lengths, default=0),
    )


def distinct_tokens(prompts: Iterable[np.ndarray]) -> int:
    """Nodes of the prefix tree of token sequences (each a 1-D int32 array): every distinct prefix counted once.

    In sorted order a sequence shares more with its predecessor than with any other before it, so the tree's
    size is the sum of what each adds to the one before.
    """
    ordered = sorted(ids.astype(">u4").tobytes() for ids in prompts)
    if not ordered:
        return 0
    return len(ordered[0]) // 4 + sum(len(b) // 4 - _common_prefix(a, b) for a, b in pairwise(ordered))


def _common_prefix(a: bytes, b: bytes) -> int:
    """Leading tokens that two sequences of 4-byte tokens share."""
    n = min(len(a), len(b)) // 4
    unequal = np.nonzero(np.frombuffer(a, np.uint32, n) != np.frombuffer(b, np.uint32, n))[0]
    return int(unequal[0]) if len(unequal) else n
