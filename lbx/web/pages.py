"""Rendering of pages from templates, which escape all values and make invisible characters visible, and of forms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal
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
from lbx.base.templates import template_environment
from lbx.base.visible import visible
from lbx.web import limits
from lbx.web.documents import blocks_of

HERE = Path(__file__).parent
SaveForm = Callable[[Request, Mapping[str, str]], str]
"""Function that saves the fields of a request's form, and returns the path of the next page."""


class _NumberConvertor(IntegerConvertor):
    """Number in a path, {name:number}. Numbers with more digits match no route."""

    regex = f"[0-9]{{1,{limits.NUMBER_DIGITS}}}"


register_url_convertor("number", _NumberConvertor())


class FormText(str):
    """Text of a form field, which is escaped, but keeps invisible characters, because the form sends it back."""

    __slots__ = ()


def score_text(score: float | None) -> str:
    """Format a score in percent with one decimal, as the script of the report page does from two decimals."""
    if score is None or not math.isfinite(score):
        return ""
    return str(Decimal(math.floor(10_000 * score + 0.5) / 100).quantize(Decimal("0.1"), ROUND_HALF_UP))


@functools.cache
def _templates() -> Environment:
    environment = template_environment(HERE / "templates")
    environment.globals["limits"] = limits
    environment.filters["score"] = score_text
    environment.filters["blocks"] = lambda text: blocks_of(visible(text)) if text else []
    return environment


def page(name: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a template as a response. All texts in ``values`` are escaped."""
    return HTMLResponse(_templates().get_template(name).render(values), status)


def refusal_page(cause: str, fix: str = "", *, status: int = 403) -> HTMLResponse:
    """Render a page that explains a refused request."""
    return page("refused.html", status=status, cause=cause, fix=fix)


def parse_number(text: str, otherwise: int = 0) -> int:
    """Parse a number in a URL or a form. Returns ``otherwise`` for a text that is empty, invalid or too long."""
    return int(text) if text.isdecimal() and len(text) <= limits.NUMBER_DIGITS else otherwise


def form_route(path: str, save: SaveForm, most: int = limits.FORM_BYTES) -> Route:
    """Build the route of a form of at most ``most`` bytes. ``save`` runs in a thread, in parallel to other requests.

    The last value of a repeated field counts.
    """

    async def handle(request: Request) -> Response:
        length = parse_number(request.headers.get("content-length", ""), -1)
        if "transfer-encoding" in request.headers or not 0 <= length <= most:
            return refusal_page(
                "This form is too large, or its Content-Length header is missing.", "No changes were saved.", status=413
            )
        body = await request.body()
        target = await run_in_threadpool(lambda: save(request, _fields(body)))
        return RedirectResponse(request.scope["root_path"] + target, status_code=303)

    return Route(path, handle, methods=["POST"])


def _fields(body: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(body.decode("utf-8"), True, True, max_num_fields=limits.FIELDS))
    except ValueError as exc:
        raise UsageError("This form does not come from a page of lbx.", fix="No changes were saved.") from exc
