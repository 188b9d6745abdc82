"""A site: routes behind the gate, a link for each person, errors as pages."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from lbx.base.errors import LbxError, UsageError
from lbx.base.stored_values import VALUE_ERRORS, stored_value_error
from lbx.web.gate import Gate, Person
from lbx.web.pages import HERE, refused
from lbx.web.place import Place


class Site:
    """Routes with links to them.

    Args:
        place: where it will listen. All pages lie below one path there, random and new at each start: browsers send a
            cookie to every port of a host, but to its own path alone.
        routes: what people may ask; ``request.state.person`` is who does.
        people: names, each of which gets a link.
    """

    def __init__(self, place: Place, routes: Sequence[BaseRoute], people: Sequence[str]) -> None:
        self.place = place
        self._root = f"/{secrets.token_urlsafe(12)}"
        self._people = [Person(name) for name in people]
        static = Mount("/static", StaticFiles(directory=HERE / "static"))
        pages = Starlette(
            routes=[*routes, static],
            exception_handlers={
                LbxError: _explained,
                HTTPException: _not_there,
                **dict.fromkeys(VALUE_ERRORS, _explained_value_error),
                Exception: _failed,
            },
        )
        self.app = Gate(pages, place, self._people, self._root)

    @property
    def url(self) -> str:
        """What stands before the paths of its pages."""
        return self.place.url + self._root

    @property
    def links(self) -> dict[str, str]:
        """{name: the address that lets in whoever has it}."""
        return {person.name: f"{self.url}/?token={person.token}" for person in self._people}


def _explained(_request: Request, error: Exception) -> Response:
    assert isinstance(error, LbxError)
    status = 400 if isinstance(error, UsageError) else 500
    return refused(error.cause, error.fix, status=status)


def _explained_value_error(request: Request, error: Exception) -> Response:
    explained = stored_value_error(error)
    if explained is None or os.environ.get("LBX_DEBUG"):
        raise error
    return _explained(request, explained)


def _not_there(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    cause = "There is no such page." if error.status_code == 404 else f"This request is not valid: {error.detail}."
    return refused(cause, status=error.status_code)


def _failed(_request: Request, _error: Exception) -> Response:
    fix = "What was shown as saved before is safe. The terminal in which lbx runs says more."
    return refused("lbx met something it did not expect.", fix, status=500)
