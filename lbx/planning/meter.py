"""How far a run is, in tokens, and how long the rest will take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from lbx.planning.outlook import Outlook
from lbx.store import GenerationRow

RATE_S = 60.0
"""The span over which tokens a second are counted."""
_TRUST = 0.05
_MOST_TRUST_S = 60.0
"""An estimate outweighs what was seen until this share of it, at most these seconds, has passed."""
_FEW_ANSWERS = 4


@dataclass(slots=True)
class RunCounts:
    """What one of the runs that are made together has done."""

    answered: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    computed_tokens: int = 0
    output_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0

    def add(self, row: GenerationRow) -> None:
        if row.error is not None:
            self.failed += 1
            return
        self.answered += 1
        self.prompt_tokens += row.prompt_tokens or 0
        self.computed_tokens += (row.prompt_tokens or 0) - (row.cached_tokens or 0) + (row.output_tokens or 0)
        self.output_tokens += row.output_tokens or 0
        self.prefill_s += row.prefill_s or 0.0
        self.decode_s += row.decode_s or 0.0


@dataclass(slots=True)
class _OfTask:
    """A task's answers: how many there will be, how many there are, and their tokens."""

    planned: int
    planned_tokens: float
    answered: int = 0
    tokens: int = 0

    @property
    def left_tokens(self) -> float:
        """Tokens of the answers to come: as long as those so far, once there are some."""
        expected = self.planned_tokens / self.planned if self.planned else 0.0
        mean = self.tokens / self.answered if self.answered >= _FEW_ANSWERS else expected
        return max(0, self.planned - self.answered) * mean


class RunMeter:
    """Counts what a run does against what was planned. One thread may count while another one reads.

    Args:
        outlook: None where nothing was counted: samples then stand for tokens.
        samples: to be asked in all, those that were found done included.
        clock: seconds, as ``time.monotonic``.
    """

    def __init__(self, outlook: Outlook | None, samples: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.samples = samples
        self.found = 0
        self.over = 0
        self._told = 0
        self.runs: dict[str, RunCounts] = {}
        self._outlook = outlook
        self._clock = clock
        self._start = clock()
        self._seen: deque[tuple[float, int]] = deque([(self._start, 0)])
        self._tasks: dict[str, _OfTask] = {}
        if outlook is not None:
            answers = outlook.time.answer_tokens if outlook.time else {}
            self._tasks = {
                task.task: _OfTask(task.samples, answers.get(task.task, task.new_tokens)) for task in outlook.tasks
            }

    def sample(self, row: GenerationRow | None) -> None:
        """A sample is over; None: it was before."""
        if row is None:
            self.found += 1
            return
        self.over += 1
        self.runs.setdefault(row.run_id, RunCounts()).add(row)
        task = self._tasks.get(f"{row.benchmark}/{row.task}")
        if task is not None and row.error is None:
            task.answered += 1
            task.tokens += row.output_tokens or 0

    def count(self, tokens: int) -> None:
        """So many more tokens of prompts and answers were computed."""
        self._told += tokens

    @property
    def computed(self) -> int:
        """Tokens of prompts and answers: as told, at least those of the answers that have ended."""
        return max(self._told, sum(run.computed_tokens for run in list(self.runs.values())))

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._start

    @property
    def planned_prompt_tokens(self) -> int | None:
        return None if self._outlook is None else self._outlook.total.prompt_tokens

    @property
    def prompt_tokens(self) -> int:
        """Of the prompts that are answered."""
        return sum(run.prompt_tokens for run in list(self.runs.values()))

    @property
    def fraction(self) -> float:
        """How far the run is, 0 to 1: by prompt tokens answered, or by samples where those are not known."""
        planned = self.planned_prompt_tokens
        if planned:
            return min(1.0, self.prompt_tokens / planned)
        left = self.samples - self.found
        return min(1.0, self.over / left) if left > 0 else 1.0

    def tokens_per_s(self) -> float:
        """Tokens computed a second, lately."""
        now = self._clock()
        while len(self._seen) > 1 and now - self._seen[1][0] >= RATE_S:
            self._seen.popleft()
        then, before = self._seen[0]
        if now - self._seen[-1][0] >= RATE_S / 60:
            self._seen.append((now, self.computed))
        return (self.computed - before) / (now - then) if now > then else 0.0

    def left_s(self) -> float | None:
        """Seconds to the end: what is left of the estimate, at the pace so far; None: unknown."""
        elapsed = self.elapsed_s
        done, left, estimated = self._work()
        if left <= 0:
            return 0.0
        trust = min(_TRUST * estimated, _MOST_TRUST_S)
        if done + trust <= 0:
            return None
        return left * (elapsed + trust) / (done + trust)

    def _work(self) -> tuple[float, float, float]:
        """What is done and what is left, in estimated seconds (in tokens or samples where there is no estimate), and
        the estimate (0 then).
        """
        if self._outlook is None:
            return float(self.over), float(self.samples - self.found - self.over), 0.0
        expected = self._outlook.time
        outputs = sum(run.output_tokens for run in list(self.runs.values()))
        left_outputs = sum(task.left_tokens for task in self._tasks.values())
        prompts = max(0, self.computed - outputs)
        if expected is None:
            return float(self.computed), max(0, self._outlook.total.distinct_tokens - prompts) + left_outputs, 0.0
        left_prompts = max(0, expected.computed_tokens - prompts)
        wall = expected.total_s / max(1e-9, expected.prefill_s + expected.decode_s)
        answers = sum(expected.answer_tokens.values())
        prompt_s = wall * expected.prefill_s / max(1, expected.computed_tokens)
        answer_s = wall * expected.decode_s / max(1, answers)
        done = prompt_s * prompts + answer_s * outputs
        return done, prompt_s * left_prompts + answer_s * left_outputs, expected.total_s
