"""Names of RULER's tasks, and the settings of their generators.

The settings are those of ``scripts/synthetic.yaml`` in
https://github.com/NVIDIA/RULER/tree/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a, as a test checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

LENGTHS = (4096, 8192, 16384, 32768, 65536, 131072)
"""Standard lengths of samples in tokens, answer included."""
LONGEST = 1 << 24
"""Maximum length in tokens, far above any context window."""


@dataclass(frozen=True, slots=True)
class NeedleRules:
    """Settings of a needle task.

    Attributes:
        haystack: "noise" (one sentence again and again), "needle" (other needles) or "essay".
        key, value: "words", "numbers" or "uuids".
        keys, values, queries: number of keys, of values for each key, and of keys asked for.
    """

    haystack: str = "noise"
    key: str = "words"
    value: str = "numbers"
    keys: int = 1
    values: int = 1
    queries: int = 1


NEEDLES: Mapping[str, NeedleRules] = {
    "niah_single_1": NeedleRules(),
    "niah_single_2": NeedleRules("essay"),
    "niah_single_3": NeedleRules("essay", value="uuids"),
    "niah_multikey_1": NeedleRules("essay", keys=4),
    "niah_multikey_2": NeedleRules("needle"),
    "niah_multikey_3": NeedleRules("needle", key="uuids", value="uuids"),
    "niah_multivalue": NeedleRules("essay", values=4),
    "niah_multiquery": NeedleRules("essay", queries=4),
}
QUESTIONS: Mapping[str, str] = {"qa_1": "squad", "qa_2": "hotpotqa"}
"""Question tasks and the datasets that they draw from."""
TASKS = (*NEEDLES, "vt", "cwe", "fwe", *QUESTIONS)
"""The 13 tasks, in the authors' order."""
STANDARD_TASKS = tuple(f"{task}_{length}" for length in LENGTHS for task in TASKS)

_NAME = re.compile(rf"({'|'.join(TASKS)})_([1-9][0-9]{{0,7}})")


def is_task(name: str) -> bool:
    """Whether a name is a task at some length: "vt_32768", "qa_1_5000"."""
    match = _NAME.fullmatch(name)
    return match is not None and int(match[2]) <= LONGEST


def split_task(name: str) -> tuple[str, int]:
    """Split a name into task and length: ("vt", 32768) for "vt_32768"."""
    task, _, length = name.rpartition("_")
    return task, int(length)


def task_name(task: str, length: int) -> str:
    return f"{task}_{length}"


def family_of(task: str) -> str:
    """Return the key of a task in the authors' constants.py."""
    if task in NEEDLES:
        return "niah"
    if task in QUESTIONS:
        return "qa"
    return {"vt": "variable_tracking", "cwe": "common_words_extraction", "fwe": "freq_words_extraction"}[task]
