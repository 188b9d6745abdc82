"""Writing of imported runs, in batches of a few megabytes, and the harnesses that produced some of these runs.

The setting ``harness`` of such a run contains the harness's scores, and for each task a verdict on whether it is
comparable. Results files may come from unknown sources, so malformed values are left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar, get_args

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import StoreError
from lbx.base.version import __version__
from lbx.results.file.store import Store
from lbx.results.rows import GenerationRow, RunRow, SampleRow

T = TypeVar("T")

_BATCH_ROWS = 500
_BATCH_CHARACTERS = 8_000_000


def make_import_row(
    format_name: str,
    content_sha256: str,
    bundle: Bundle | None,
    *,
    run_id: str,
    model: str,
    versions: Mapping[str, int] | None = None,
    metadata: Mapping[str, str] | None = None,
    **settings: Any,
) -> RunRow:
    """Build the row of a run that was imported from files.

    Args:
        format_name: name of the files' format.
        content_sha256: hash of the content that identifies the run.
        bundle: source of the samples that the run answers.
        versions: versions of the metrics that will score the run.
        settings: further settings of the run.
    """
    settings = {"imported": format_name, "content_sha256": content_sha256, **settings}
    digest = bundle.digest if bundle else ""
    return RunRow(
        run_id, model, "import", "", versions or {}, digest, settings, {}, __version__, metadata=metadata or None
    )


def refuse_other_content(store: Store, run_id: str, content_sha256: str) -> None:
    """Raise StoreError if a run of this name was imported from files with other content."""
    for (text,) in store.query("SELECT settings FROM runs WHERE run_id = ? AND backend = 'import'", [run_id]).rows:
        if json.loads(text).get("content_sha256") != content_sha256:
            raise StoreError(
                f"The run {run_id!r} in {store.path} was imported from files with other content.",
                fix="Pass another name with --name NAME, or omit --name to derive the name from the content.",
            )


def write_import(store: Store, run: RunRow, samples: Iterable[SampleRow], generations: Iterable[GenerationRow]) -> None:
    """Write a run and its rows to a results file. Repeating an import replaces the same rows.

    The run stays open until ``Store.finish_run``.

    Args:
        generations: answers in file order. The times of their rows preserve this order for exports.

    Raises:
        StoreError: the file contains other samples under the same names, or another run of this name.
    """
    store.begin_run(run)
    try:
        for batch in _batches(samples, lambda row: len(row.sample.context)):
            store.write(samples=batch)
        now = datetime.now(UTC)
        timed = (replace(row, created_at=now + timedelta(microseconds=at)) for at, row in enumerate(generations))
        for part in _batches(timed, lambda row: len(row.output or "") + len(row.source_row or "")):
            store.write(generations=part)
    except BaseException:
        store.finish_run(run.run_id, "interrupted")
        raise


def _batches(rows: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Split rows into batches for writing. ``size`` returns the number of characters of a row."""
    batch: list[T] = []
    size_so_far = 0
    for row in rows:
        batch.append(row)
        size_so_far += size(row)
        if len(batch) >= _BATCH_ROWS or size_so_far >= _BATCH_CHARACTERS:
            yield batch
            batch, size_so_far = [], 0
    if batch:
        yield batch


SETTING = "harness"

Verdict = Literal["comparable", "differs", "not comparable", "unknown"]


@dataclass(frozen=True, slots=True)
class HarnessTask:
    """A harness's score of a task of an imported run, and a verdict on whether it is comparable.

    Attributes:
        version: the harness's version of the task, or None if unknown.
        metric: the harness's name for its score, or "" without a score.
        score: the harness's score in 0..1, or None if the files do not contain the score.
        verdict: "comparable" with numbers of the official script, "differs" if comparable but answered under other
            conditions, which the reasons list, "not comparable", or "unknown" if the files do not record enough.
        reasons: reasons for the verdict, and for a difference between the harness's score and lbx's score.
        unknowns: facts that the files do not record, and that the verdict leaves open.
    """

    version: float | None = None
    metric: str = ""
    score: float | None = None
    verdict: Verdict = "unknown"
    reasons: Sequence[str] = ()
    unknowns: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Harness:
    """An evaluation harness and the settings under which it asked the model.

    Attributes:
        name: name of the harness's file format, such as "lm_eval".
        version: version of the harness, or "" if unknown.
        time: time of the harness's run, as in its file names, or "" if unknown.
        settings: recorded settings that affect answers.
        tasks: {task: score and verdict}.
    """

    name: str
    version: str = ""
    time: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks: Mapping[str, HarnessTask] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}".rstrip()

    @property
    def unofficial_tasks(self) -> frozenset[str]:
        """Tasks without an official number, because the harness does not ask them as the official script does."""
        return frozenset(name for name, task in self.tasks.items() if task.verdict != "comparable")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def harness_of(settings: Mapping[str, Any]) -> Harness | None:
    """Read the harness in a run's settings. Returns None for a run that was not imported from a harness."""
    stored = settings.get(SETTING)
    if not isinstance(stored, dict) or not isinstance(stored.get("name"), str):
        return None
    tasks = stored.get("tasks")
    return Harness(
        stored["name"],
        _text(stored.get("version")),
        _text(stored.get("time")),
        stored["settings"] if isinstance(stored.get("settings"), dict) else {},
        {name: _task(values) for name, values in tasks.items() if isinstance(values, dict)}
        if isinstance(tasks, dict)
        else {},
    )


def harnesses_of_runs(store: Store) -> dict[str, Harness]:
    """Return {run: harness} for all runs that were imported from a harness."""
    rows = store.query("SELECT run_id, settings FROM runs WHERE json_exists(settings, ?)", [f"$.{SETTING}"]).rows
    found = {run_id: harness_of(json.loads(settings)) for run_id, settings in rows}
    return {run_id: harness for run_id, harness in found.items() if harness}


def _task(values: Mapping[str, Any]) -> HarnessTask:
    return HarnessTask(
        finite_number(values.get("version")),
        _text(values.get("metric")),
        finite_number(values.get("score")),
        next((verdict for verdict in get_args(Verdict) if verdict == values.get("verdict")), "unknown"),
        _texts(values.get("reasons")),
        _texts(values.get("unknowns")),
    )


def finite_number(value: object) -> float | None:
    """Convert a value of an untrusted file to a number. Returns None for other values, NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _texts(values: object) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
