"""Names of RULER's tasks: a task of synthetic.yaml and a length in tokens, as in "vt_32768"."""

from __future__ import annotations

TASKS = (
    "niah_single_1",
    "niah_single_2",
    "niah_single_3",
    "niah_multikey_1",
    "niah_multikey_2",
    "niah_multikey_3",
    "niah_multivalue",
    "niah_multiquery",
    "vt",
    "cwe",
    "fwe",
    "qa_1",
    "qa_2",
)
"""Names in the order of synthetic.yaml."""
LENGTHS = (4096, 8192, 16384, 32768, 65536, 131072)
"""Lengths of the authors' table, in tokens."""


def task_name(base: str, length: int) -> str:
    return f"{base}_{length}"


def split_task(task: str) -> tuple[str, int]:
    """Split a task into its name without the length, and the length: ("vt", 32768) for "vt_32768"."""
    base, _, length = task.rpartition("_")
    return base, int(length)
