"""Results file of `lbx browse`: opened for each page, with labels of its runs and the version of its contents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from lbx.base.database import files_of
from lbx.base.records import sha256_text
from lbx.report.labels import headline, labels, progress
from lbx.scoring.score_columns import runs_by_id
from lbx.store import Store
from lbx.store.answers import AnswerKey
from lbx.store.snapshots import has_writer
from lbx.store.texts import removal_notice


class ResultsSource:
    """Results file for pages.

    Args:
        runs, tasks: Runs and tasks to show; () for all.
    """

    def __init__(self, path: Path, runs: Sequence[str] = (), tasks: Sequence[str] = ()) -> None:
        self.path, self.runs, self.tasks = path, runs, tasks

    @contextmanager
    def connect(self, request: Request) -> Iterator[tuple[Store, dict[str, Any]]]:
        """Open the file, or a snapshot of a file that is being written, with values of the pages' common parts."""
        version = self.version()  # first: a commit during the reading makes the page out of date
        with Store(self.path, allow_writer=True) as store:
            yield (
                store,
                {
                    "root": request.scope["root_path"],
                    "told": "",
                    "snapshot": f"The file {store.snapshot}." if store.snapshot else removal_notice(store),
                    "is_live": store.snapshot is not None,
                    "version": version,
                    "file": headline(self.path.name, progress(store, self.runs)),
                    "has_document": request.headers.get("lbx-document"),
                    "document": None,
                },
            )

    def version(self) -> str:
        """Name of the file's state, which changes with each commit and when its writer ends; opens no database."""
        states = [(part.name, status.st_mtime_ns, status.st_size) for part, status in _statuses(self.path)]
        return sha256_text(f"{states} {has_writer(self.path)}")[:16]


def run_labels(store: Store) -> dict[str, str]:
    """{run: label}, also for judges."""
    return labels(runs_by_id(store).values())


def answer_link(key: AnswerKey, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """Link to an answer, with more parameters, such as those of the list that it was reached from."""
    iteration = {"iteration": str(key.iteration)} if key.iteration else {}
    return f"/answer?{urlencode({'run': key.run_id, **_question(key), **iteration, **more})}"


def question_link(key: AnswerKey, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """Link to all answers to the question of an answer."""
    return f"/question?{urlencode({**_question(key), **more})}"


def _question(key: AnswerKey) -> dict[str, str]:
    return {"benchmark": key.benchmark, "task": key.task, "sample": key.sample_id}


def _statuses(path: Path) -> list[tuple[Path, Any]]:
    """(file, its status) of a results file and its logs; a checkpoint may remove a log at any time."""
    statuses = []
    for part in files_of(path):
        try:
            statuses.append((part, part.stat()))
        except FileNotFoundError:
            continue
    return statuses
