"""Templates: every value escaped, and made visible. And what forms send."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment
from starlette.concurrency import run_in_threadpool
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from lbx.base.errors import UsageError
from lbx.base.templates import templates
from lbx.base.visible import visible
from lbx.web import limits
from lbx.web.documents import blocks_of

HERE = Path(__file__).parent
Saved = Callable[[Request, Mapping[str, str]], str]
"""Takes a request and the form's fields, saves, and returns where to go from there."""


class _Number(IntegerConvertor):
    """A number in a path: {name:number}. With more digits there is no such page."""

    regex = f"[0-9]{{1,{limits.NUMBER_DIGITS}}}"


register_url_convertor("number", _Number())


class AsTyped(str):
    """A text for a field: escaped, but not made visible, because what comes back from there is kept."""

    __slots__ = ()


@functools.cache
def _templates() -> Environment:
    made = templates(HERE / "templates")
    made.globals["limits"] = limits
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
    return int(text) if text.isdecimal() and len(text) <= limits.NUMBER_DIGITS else otherwise


def saving(path: str, save: Saved, most: int = limits.FORM_BYTES) -> Route:
    """The route of a form of at most so many bytes. ``save`` runs beside other requests, in a thread of its own.

    A field that is there twice counts as its last.
    """

    async def saved(request: Request) -> Response:
        length = number_in(request.headers.get("content-length", ""), -1)
        if "transfer-encoding" in request.headers or not 0 <= length <= most:
            return refused("This form is too large, or does not say how large it is.", "Nothing was saved.", status=413)
        body = await request.body()
        where = await run_in_threadpool(lambda: save(request, _fields(body)))
        return RedirectResponse(request.scope["root_path"] + where, status_code=303)

    return Route(path, saved, methods=["POST"])


def _fields(body: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(body.decode("utf-8"), True, True, max_num_fields=limits.FIELDS))
    except ValueError as exc:
        raise UsageError("No page of lbx sends such a form.", fix="Nothing was saved.") from exc
