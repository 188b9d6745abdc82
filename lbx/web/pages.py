"""Templates: every value escaped, and made visible. And what forms send."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from lbx.errors import UsageError
from lbx.visible import one_line, visible
from lbx.web.documents import blocks_of

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
Saved = Callable[[Request, Mapping[str, str]], str]
"""Takes a request and the form's fields, saves, and returns where to go from there."""


class AsTyped(str):
    """A text for a field: escaped, but not made visible, because what comes back from there is kept."""

    __slots__ = ()


@functools.cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["line"] = one_line
    made.filters["blocks"] = lambda text: blocks_of(visible(text)) if text else []
    return made


def page(name: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A page by its template. Every text in ``values`` is shown as text, whatever it holds."""
    return HTMLResponse(_templates().get_template(name).render(values), status)


def refused(cause: str, fix: str = "", *, status: int = 403) -> HTMLResponse:
    """A page that says why there is none."""
    return page("refused.html", status=status, cause=cause, fix=fix)


def number_in(text: str, otherwise: int = 0) -> int:
    """A number in an address or a form; ``otherwise`` where there is none, or a larger one than any page has."""
    return int(text) if text.isdecimal() and len(text) < 16 else otherwise


def saving(path: str, save: Saved) -> Route:
    """The route of a form. ``save`` runs beside other requests, in a thread of its own.

    A field that is there twice counts as its last.
    """

    async def saved(request: Request) -> Response:
        body = await request.body()
        try:
            fields = dict(parse_qsl(body.decode("utf-8"), True, True, max_num_fields=10_000))
        except ValueError as exc:
            raise UsageError("A form came that no page of lbx sends.", fix="Nothing was saved.") from exc
        return RedirectResponse(await run_in_threadpool(save, request, fields), status_code=303)

    return Route(path, saved, methods=["POST"])
