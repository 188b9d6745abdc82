"""Who may pass: the right Host, the right Origin, a secret link swapped for a cookie. And what every answer says to
the browser about itself."""

from __future__ import annotations

import hmac
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lbx.base.visible import one_line
from lbx.web import limits
from lbx.web.pages import refused
from lbx.web.place import Place

_log = logging.getLogger("lbx.web")

_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # To other sites nothing, as by "no-referrer"; but with that one a form of this very site says "Origin: null".
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_COOKIE = "lbx"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with a link of their own. ``token`` is in the link, ``session`` in the cookie it is swapped for."""

    name: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)


class Gate:
    """ASGI middleware before every page. Behind it ``request.state.person`` is the name of who asks.

    Args:
        app: the pages.
        place: where they are.
        people: who may come in.
        root: the path that all pages lie below: "/...".
    """

    def __init__(self, app: ASGIApp, place: Place, people: Sequence[Person], root: str) -> None:
        self._app = app
        self._place = place
        self._people = people
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message["headers"] if pair[0].decode() not in _HEADERS]
                headers = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": kept + headers}
            await send(message)

        if scope["type"] != "http":
            return
        request = Request(scope)
        try:
            answer = self._refused(request) or self._unknown(request)
            await (answer or self._app)(scope, receive, sending)
        except ClientDisconnect:  # the browser is gone, and nobody is left to be told
            return
        except Exception as error:  # of ours; the browser has been told
            if os.environ.get("LBX_DEBUG"):
                raise
            path, words = one_line(scope["path"]), one_line(str(error))
            _log.error("%s %s: %s: %s", request.method, path, type(error).__name__, words)

    def _refused(self, request: Request) -> Response | None:
        """What no person may ask."""
        sizes = [len(name) + len(value) + 4 for name, value in request.headers.raw]
        if sum(sizes) + len(request.scope["path"]) + len(request.scope["query_string"]) > limits.HEADER_BYTES:
            return refused("The headers of this are longer than any browser's.", status=431)
        host = request.headers.get("host", "")
        if not self._place.answers_to(host):
            return refused("This address is not the one that lbx listens at.", "Open the link that lbx printed.")
        if request.method in ("GET", "HEAD"):
            return None
        own = request.headers.get("origin", "").lower() in (f"http://{host.lower()}", f"https://{host.lower()}")
        if not own or request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return refused("This was not sent from one of lbx's own pages.", "Nothing was saved.")
        return None

    def _unknown(self, request: Request) -> Response | None:
        """What somebody without a link may have: nothing but the style sheet."""
        if request.scope["path"].startswith(f"{self._root}/"):
            request.scope["root_path"] = self._root
            held = self._held(request)
            token = request.query_params.get("token")
            if token is not None:
                return self._swapped(request, held, self._of(token, "token"))
            if held:
                request.state.person = held.name
                return None
        elif request.scope["path"].startswith("/static/"):
            return None
        fix = "If lbx was started again since, its links are new."
        return refused("lbx does not know this browser.", f"Open the link that lbx printed for you. {fix}")

    def _held(self, request: Request) -> Person | None:
        """Whose cookie it is. Looked for by hand: Python's own reader takes time by the square of some cookies."""
        pairs = ";".join(request.headers.getlist("cookie")).split(";")
        own = [value.strip() for name, _, value in (pair.partition("=") for pair in pairs) if name.strip() == _COOKIE]
        people = (self._of(value, "session") for value in own[: limits.COOKIES])
        return next((person for person in people if person), None)

    def _swapped(self, request: Request, held: Person | None, person: Person | None) -> Response:
        """To the first page, whatever the path of the link: somebody may have changed it."""
        if person is None:
            return refused("This link is not valid.", "If lbx was started again since, its links are new.")
        if held and held is not person:
            return refused(
                "This browser was opened with another person's link.",
                "Open it in another browser, or in a private window.",
            )
        if request.headers.get("sec-fetch-site") == "cross-site":
            # From a link in a mail, say: the browser would keep a strict cookie from a redirection.
            answer: Response = refused("Welcome.", status=200)
            answer.headers["refresh"] = f"0; url={self._root}/"
        else:
            answer = RedirectResponse(f"{self._root}/", status_code=303)
        answer.set_cookie(_COOKIE, person.session, httponly=True, samesite="strict", path=f"{self._root}/")
        return answer

    def _of(self, secret: str, kind: str) -> Person | None:
        candidate = secret.encode("utf-8", "replace")
        match = None
        for person in self._people:
            if hmac.compare_digest(getattr(person, kind).encode(), candidate):
                match = person
        return match
