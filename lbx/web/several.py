"""Start page of `lbx browse` for several results files, with the pages of each file below ``/file/KEY``.

A request names a file by a key that is looked up among the files, so that no address reaches any other file. Folders
are searched without following links, at each visit, because new files may appear during a run array.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from lbx.base.errors import VALUE_ERRORS, LbxError, UsageError
from lbx.base.records import JUDGE, sha256_text
from lbx.results import Store
from lbx.results.read.runs import run_names, run_states
from lbx.results.read.stored_answers import AnswerFilter, count_answers
from lbx.web.browsing import ResultsSource
from lbx.web.pages import page, refusal_page

_SUFFIX = ".duckdb"
_MOST_FILES = 1000
_MOST_BENCHMARKS = 8


def results_in(paths: Sequence[Path]) -> dict[str, Path]:
    """Find results files: {name for readers: path}. A folder means all files below that end with ``.duckdb``."""
    found: dict[str, Path] = {}
    for path in paths:
        if path.is_dir():
            folder = path.resolve()
            found |= {str(path / file.relative_to(folder)): file for file in _files_below(folder)}
        else:
            found[str(path)] = path
    return found


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the results files below a folder without links, in order."""
    for root, folders, names in os.walk(folder):  # which follows no links to folders
        folders.sort()
        for name in sorted(names):
            file = Path(root, name)
            if name.endswith(_SUFFIX) and file.is_file() and not file.is_symlink():
                yield file


@dataclass(frozen=True, slots=True)
class FileSummary:
    """Contents of a results file in a row of the start page.

    Attributes:
        answers: number of answers. Like ``runs``, it leaves out judges.
        newest: time of the newest answer, or "".
        state: number of runs by state, or "done" if all are finished.
        error: reason why the file cannot be read, or "".
    """

    runs: int = 0
    benchmarks: str = ""
    answers: int = 0
    newest: str = ""
    state: str = ""
    error: str = ""
    is_live: bool = False


def read_summary(path: Path) -> FileSummary:
    """Summarise a results file. The summary of an unreadable file contains only an error."""
    try:
        with Store(path, allow_writer=True) as store:
            states = run_states(store)
            sql = "SELECT DISTINCT benchmark FROM generations WHERE benchmark <> ? ORDER BY ALL"
            benchmarks = [name for (name,) in store.query(sql, [JUDGE]).rows]
            answers = count_answers(store, AnswerFilter(with_judges=False))
            n_runs = len(run_names(store))
            is_live = store.snapshot is not None
    except LbxError as error:
        return FileSummary(error=error.cause)
    except VALUE_ERRORS as error:
        return FileSummary(error=f"It has values that lbx cannot read ({type(error).__name__}).")
    counts = Counter(state.state for state in states)
    newest = max((time for state in states if (time := state.newest_at or state.started_at)), default=None)
    more = len(benchmarks) - _MOST_BENCHMARKS
    return FileSummary(
        n_runs,
        ", ".join([*benchmarks[:_MOST_BENCHMARKS], *([f"{more:,} more"] if more > 0 else [])]),
        answers,
        f"{newest:%Y-%m-%d %H:%M}" if newest else "",
        next(iter(counts), "no runs") if len(counts) < 2 else ", ".join(f"{n:,} {name}" for name, n in counts.items()),
        is_live=is_live,
    )


class SeveralPages:
    """Routes of a start page and of the pages of each file.

    Args:
        paths: results files, and folders with results files.
        make_routes: makes the routes of a file's pages.

    Raises:
        UsageError: a path does not exist.
    """

    def __init__(self, paths: Sequence[Path], make_routes: Callable[[Path], Sequence[BaseRoute]]) -> None:
        if missing := [str(path) for path in paths if not path.exists()]:
            raise UsageError(
                f"These files or folders do not exist: {', '.join(missing)}.",
                fix="Name results files, or folders with results files.",
            )
        self._paths, self._make_routes = paths, make_routes
        self._routers: dict[Path, Router] = {}
        self._summaries: dict[Path, tuple[str, FileSummary]] = {}

    @property
    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self._start_page),
            Route("/state", lambda _request: JSONResponse({"version": self._version(self._files())})),
            Mount("/file/{key}", self._respond),
        ]

    def _files(self) -> Mapping[str, Path]:
        return dict(list(results_in(self._paths).items())[:_MOST_FILES])

    def _version(self, files: Mapping[str, Path]) -> str:
        return sha256_text(str([(name, ResultsSource(path).version()) for name, path in files.items()]))[:16]

    def _start_page(self, request: Request) -> Response:
        files = self._files()
        version = self._version(files)
        rows = [(name, _key(name), self._summary(path)) for name, path in files.items()]
        return page(
            "files.html",
            root=request.scope["root_path"],
            files="",
            told="",
            document=None,
            snapshot="",
            version=version,
            is_live=any(summary.is_live for _, _, summary in rows),
            rows=rows,
            most=_MOST_FILES,
        )

    def _summary(self, path: Path) -> FileSummary:
        """Read the summary of a file, or return the last one of an unchanged file."""
        version = ResultsSource(path).version()
        if self._summaries.get(path, ("", None))[0] != version:
            self._summaries[path] = version, read_summary(path)
        return self._summaries[path][1]

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        router = await run_in_threadpool(self._router, scope["path_params"]["key"])
        missing = refusal_page("This results file is no longer here.", "Open the list of files.", status=404)
        await (router or missing)(scope, receive, send)

    def _router(self, key: str) -> Router | None:
        path = next((path for name, path in self._files().items() if _key(name) == key), None)
        if path is None:
            return None
        return self._routers.setdefault(path, Router(self._make_routes(path)))


def _key(name: str) -> str:
    return sha256_text(name)[:16]
