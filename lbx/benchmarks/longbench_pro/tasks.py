"""LongBench Pro's tasks (official names, metrics, accepted answers), and a reader of the rows of one task.

The data file is one JSON array of half a gigabyte with all 25 tasks. Parsing all of it for each task would take longer
than many reports, so one pass over the bytes finds the start and the task of each row. The pass relies on properties of
valid JSON: inside a string a quotation mark follows a backslash, so ``"secondary_task":`` is always a key, and
``}, {"...":`` is always between two rows. If the counts of rows and keys differ, every row is parsed, and every error
names file and line.
"""

from __future__ import annotations

import json
import mmap
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from lbx.base.inputs import open_input
from lbx.benchmarks.base.benchmark import WINDOWS_OF_128K
from lbx.benchmarks.base.data_files import DataRow, damaged_file_error
from lbx.benchmarks.base.sources import RowSource, find_parquet, json_rows

METRICS: dict[str, tuple[str, ...]] = {
    "ndcg": ("ndcg",),
    "pairwise_accuracy": ("pairwise_accuracy",),
    "accuracy": ("accuracy",),
    "f1": ("f1",),
    "subem": ("subem",),
    "summary": ("summary", "rouge_l", "rouge_l_unlimited", "similarity"),
}
"""{metric of a task: stored metrics}. rouge_l_unlimited is rouge_l without the official run's recursion limit."""


@dataclass(frozen=True, slots=True)
class SecondaryTask:
    """Official name of a secondary task, and the metric, a key of ``METRICS``."""

    title: str
    metric: str


TASKS: dict[str, SecondaryTask] = {
    "t1.1": SecondaryTask("T1.1 Global Cohesive Retrieval", "ndcg"),
    "t1.2": SecondaryTask("T1.2 Key-Snippet Retrieval", "ndcg"),
    "t2.1": SecondaryTask("T2.1 Global Timeline Reconstruction", "pairwise_accuracy"),
    "t2.2": SecondaryTask("T2.2 Local Causal Chain Sorting", "pairwise_accuracy"),
    "t3.1": SecondaryTask("T3.1 Multi-Doc Integration QA", "accuracy"),
    "t3.2": SecondaryTask("T3.2 Single-Hop Fact QA", "accuracy"),
    "t4.1": SecondaryTask("T4.1 Global-Coverage Constrained Summary", "summary"),
    "t4.2": SecondaryTask("T4.2 Query-Focused Summary", "summary"),
    "t5.1": SecondaryTask("T5.1 Full-Sentence Citation Alignment", "f1"),
    "t5.2": SecondaryTask("T5.2 Key-Statement Citation Alignment", "f1"),
    "t6.1": SecondaryTask("T6.1 Large-Scale Document Clustering", "subem"),
    "t6.2": SecondaryTask("T6.2 Targeted Subset Cluster Identification", "f1"),
    "t6.3": SecondaryTask("T6.3 Global Frequency Analysis", "pairwise_accuracy"),
    "t7.1": SecondaryTask("T7.1 Global Conflict & Inconsistency Localization", "f1"),
    "t7.2": SecondaryTask("T7.2 Targeted Rule or Condition Violation Detection", "f1"),
    "t7.3": SecondaryTask("T7.3 Comprehensive Error & Anomaly Sweep", "f1"),
    "t8.1": SecondaryTask("T8.1 Structured Multi-Source Consistency Verification", "subem"),
    "t8.2": SecondaryTask("T8.2 Single-Source Targeted Aggregation", "subem"),
    "t8.3": SecondaryTask("T8.3 Long-Context Procedural State Tracking", "subem"),
    "t9.1": SecondaryTask("T9.1 Dependency-Aware Multi-Version Impact Analysis", "f1"),
    "t9.2": SecondaryTask("T9.2 Localized Interface Change Detection", "f1"),
    "t10.1": SecondaryTask("T10.1 Large-Scale In-Context Rule Induction", "subem"),
    "t10.2": SecondaryTask("T10.2 Targeted Example-Based Rule Induction", "subem"),
    "t11.1": SecondaryTask("T11.1 Long-Range Entity & Commitment Tracking", "accuracy"),
    "t11.2": SecondaryTask("T11.2 Short-Range Reference Resolution & State Query", "accuracy"),
}
TASK_OF = {kind.title: task for task, kind in TASKS.items()}

LONG_WINDOW = 262_144
LIMITS = dict.fromkeys((*WINDOWS_OF_128K, 163_840, 202_752), 120_000) | {LONG_WINDOW: 224_000}
"""{context window: limit of the prompt}, in tokens, of the published runs for models of 128k, 160k, 198k and 256k."""

TEXT_META = ("secondary_task", "primary_task", "token_length", "contextual_requirement", "difficulty")


def accepted_answers(answer: object) -> tuple[tuple[str, ...], bool]:
    """Reference answers in a value of the field ``answer``, and whether the official code can read all of them.

    As in that code, a bare string counts as its characters. It fails at any other value than a list of texts.
    """
    if not isinstance(answer, list | tuple | str):
        return (), False
    return tuple(item for item in answer if isinstance(item, str)), all(isinstance(item, str) for item in answer)


FILE = "longbench_pro.json"
_FIELD = "secondary_task"
_KEY = f'"{_FIELD}"'.encode()
_VALUE = re.compile(rb'[ \t\r\n]*:[ \t\r\n]*("(?:[^"\\]|\\.)*")')
_BETWEEN = re.compile(rb'\}[ \t\r\n]*(,[ \t\r\n]*)\{[ \t\r\n]*"(?:[^"\\]|\\.){0,99}"[ \t\r\n]*:')
_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\[[ \t\r\n]*(?=\{)")
_TAIL = re.compile(rb"[ \t\r\n]*\][ \t\r\n]*\Z")


class RowSpan(NamedTuple):
    """Position of a row in the file: bytes from ``start`` to ``end``, and first line, with the secondary task."""

    start: int
    end: int
    line: int
    task: str


@dataclass(frozen=True, slots=True)
class DataFile:
    """Rows of the benchmark's data file, numbered from 0 in the file's order.

    Attributes:
        source: source of every row.
        path: the JSON file, or None if the bundle contains the hub's parquet.
    """

    source: RowSource
    path: Path | None

    def counts(self) -> Mapping[str, int]:
        """Count the rows of each secondary task. Raises BundleError."""
        entries = self._entries()
        if entries is not None:
            return Counter(entry.task for entry in entries)
        return Counter(row.get(_FIELD, str) for row in self.source.rows())

    def rows(self, task: str) -> Iterator[tuple[int, DataRow]]:
        """Yield (number, row) of one secondary task. Raises BundleError."""
        entries = self._entries()
        if entries is None or self.path is None:
            yield from ((at, row) for at, row in enumerate(self.source.rows()) if row.get(_FIELD, str) == task)
            return
        with open_input(self.path) as file:
            for at, entry in enumerate(entries):
                if entry.task == task:
                    file.seek(entry.start)
                    yield at, _parse_row(self.path, entry, file.read(entry.end - entry.start))

    def _entries(self) -> tuple[RowSpan, ...] | None:
        if self.path is None:
            return None
        try:
            stat = self.path.stat()
            return _index_rows(self.path, stat.st_mtime_ns, stat.st_size) if stat.st_size else None
        except OSError as exc:
            raise damaged_file_error(str(self.path), str(exc)) from exc


def find_data(folder: Path | None) -> DataFile | None:
    """Find the data in a dataset's snapshot: a JSON array, JSON lines or the hub's parquet, or None without data."""
    if folder is None:
        return None
    path = folder / FILE
    if not path.is_file():
        parquet = find_parquet(folder, "default")
        return DataFile(parquet, None) if parquet else None
    return DataFile(json_rows(path, _FIELD), path)


def _parse_row(path: Path, entry: RowSpan, content: bytes) -> DataRow:
    location = f"{path}, line {entry.line}"
    try:
        values: Any = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as exc:
        raise damaged_file_error(location, f"it is not UTF-8 ({exc.reason})") from exc
    except json.JSONDecodeError as exc:
        raise damaged_file_error(
            f"{path}, line {entry.line + exc.lineno - 1}", f"{exc.msg} at column {exc.colno}"
        ) from exc
    if not isinstance(values, dict) or values.get(_FIELD) != entry.task:
        raise damaged_file_error(location, f"the field {_FIELD!r} is not at the top level of the row")
    return DataRow(location, values)


@lru_cache(maxsize=8)
def _index_rows(path: Path, mtime_ns: int, size: int) -> tuple[RowSpan, ...] | None:
    """Find the positions of the rows, or None if they cannot be found without parsing."""
    with open_input(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        spans = _array_spans(view) if _HEAD.match(view) else _line_spans(view)
        keys = list(_keys(view))
        if len(keys) != len(spans):
            return None
        entries, line, counted = [], 1, 0
        for (start, end), (at, task) in zip(spans, keys, strict=True):
            if not start < at < end:
                return None
            line, counted = line + view[counted:start].count(b"\n"), start
            entries.append(RowSpan(start, end, line, task))
        return tuple(entries)


def _array_spans(view: mmap.mmap) -> list[tuple[int, int]]:
    head = _HEAD.match(view)
    last = view.rfind(b"}") + 1
    if head is None or not _TAIL.match(view, last):
        return []
    cuts = [match.span(1) for match in _BETWEEN.finditer(view)]
    starts = [head.end(), *(after for _, after in cuts)]
    return list(zip(starts, [*(before for before, _ in cuts), last], strict=True))


def _line_spans(view: mmap.mmap) -> list[tuple[int, int]]:
    spans, start = [], 0
    while start < len(view):
        end = view.find(b"\n", start) + 1 or len(view)
        if view[start:end].strip():
            spans.append((start, end))
        start = end
    return spans


def _keys(view: mmap.mmap) -> Iterator[tuple[int, str]]:
    at = view.find(_KEY)
    while at >= 0:
        value = _VALUE.match(view, at + len(_KEY))
        if value and view[max(at - 1, 0) : at] != b"\\":
            try:
                yield at, json.loads(value[1])
            except ValueError:
                yield at, ""
        at = view.find(_KEY, at + len(_KEY))
