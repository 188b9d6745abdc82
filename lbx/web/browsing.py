"""Routes of `lbx browse`: the answers of a results file as a list, one by one, by question, and the runs' progress.

Each page opens the file for reading and closes it: writers are not blocked, and pages show new answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from lbx.base.layout import Bundle
from lbx.web.answer_list import answer_list
from lbx.web.answer_page import answer_page, question_page
from lbx.web.browsing_texts import BrowsingTexts, PromptBuilder, bundle_document
from lbx.web.progress_page import progress_page
from lbx.web.results_source import ResultsSource


class BrowsingPages:
    """Routes of a results file's pages.

    Args:
        bundle: Bundle with the documents; None shows no documents.
        prompts: Rebuilds an answer's prompts; None if that is not possible.
        runs, tasks: Runs and tasks to show; () for all.
    """

    def __init__(
        self,
        results: Path,
        *,
        bundle: Bundle | None = None,
        prompts: PromptBuilder | None = None,
        runs: Sequence[str] = (),
        tasks: Sequence[str] = (),
    ) -> None:
        self._source, self._bundle = ResultsSource(results, runs, tasks), bundle
        self._texts = BrowsingTexts(self._document_text, prompts)

    @property
    def routes(self) -> list[BaseRoute]:
        source, texts = self._source, self._texts
        return [
            Route("/", partial(answer_list, source)),
            Route("/answer", partial(answer_page, source, texts)),
            Route("/question", partial(question_page, source, texts)),
            Route("/progress", partial(progress_page, source)),
            Route("/state", self._state),
            *texts.documents.routes,
        ]

    def _document_text(self, key: str) -> str | None:
        return bundle_document(self._source, self._bundle, key) if self._bundle else None

    def _state(self, _request: Request) -> Response:
        """Version of the file, for pages that refresh themselves."""
        return JSONResponse({"version": self._source.version()})
