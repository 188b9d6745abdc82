"""Web site of lbx, with a secret link for each person, access checks, and error pages."""

from __future__ import annotations

import getpass
import hmac
import ipaddress
import logging
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import lbx.report
from lbx.base.errors import VALUE_ERRORS, LbxError, UsageError, stored_value_error, unreadable_values
from lbx.base.visible import as_command, one_line
from lbx.web import limits
from lbx.web.pages import HERE, refusal_page

_log = logging.getLogger("lbx.web")
_SEE_TERMINAL = "All changes reported as saved are safe. See the terminal running lbx for details."

_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    # Sends no Referer to other sites. With "no-referrer", forms of this site would have the header "Origin: null".
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_COOKIE = "lbx"
_WORD_DIFF = Path(lbx.report.__file__).parent / "page" / "script" / "diff.js"
"""The report page's script that compares two texts."""


@dataclass(frozen=True, slots=True)
class SiteSocket:
    """Bound socket with the site's URL and accepted host names.

    Attributes:
        uds: path of a Unix domain socket, or None for TCP.
        remote: whether other machines can reach the socket.
    """

    socket: socket.socket
    host: str
    port: int
    uds: Path | None = None
    remote: bool = False

    @property
    def url(self) -> str:
        """URL for a browser on this machine, or on a machine connected by ``tunnel``."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def tunnel(self) -> str:
        """Command that forwards the socket to another machine."""
        address = str(self.uds.absolute()) if self.uds else f"{self.host}:{self.port}"
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # a numeric user id without a name, as in containers
            user = "USER"
        return as_command("ssh", "-L", f"{self.port}:{address}", f"{user}@{socket.gethostname()}")

    def answers_to(self, header: str) -> bool:
        """Whether a Host header names this socket, which excludes DNS rebinding.

        Any port is accepted, because a tunnel may use another port. If other machines can reach the socket, numeric
        addresses are accepted, too, because only names can be rebound.
        """
        name = header.rpartition(":")[0] if header.rpartition(":")[2].isdecimal() else header
        name = name.strip("[]").lower().rstrip(".")
        if name in ("localhost", "127.0.0.1", "::1"):
            return True
        return self.remote and (
            name in {socket.gethostname().lower(), socket.getfqdn().lower()} | {self.host.lower()}
            or _parse_address(name) is not None
        )


def _parse_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Person:
    """Person with the secret in the person's link, which is also the cookie."""

    name: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)


class AccessMiddleware:
    """ASGI middleware that checks every request, and sets ``request.state.person`` to the person's name.

    Args:
        root: path prefix of all pages, "/...".
    """

    def __init__(self, app: ASGIApp, site_socket: SiteSocket, people: Sequence[Person], root: str) -> None:
        self._app = app
        self._site_socket = site_socket
        self._people = people
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                other_headers = [pair for pair in message["headers"] if pair[0].decode() not in _HEADERS]
                headers = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": other_headers + headers}
            await send(message)

        if scope["type"] != "http":
            return
        request = Request(scope)
        try:
            answer = self._check_request(request) or self._check_person(request)
            await (answer or self._app)(scope, receive, sending)
        except ClientDisconnect:
            return
        except Exception as error:  # a bug in lbx; the browser already has an error page
            if os.environ.get("LBX_DEBUG"):
                raise
            _log_error(request.method, scope["path"], error)

    def _check_request(self, request: Request) -> Response | None:
        """Return the refusal of a request that is not allowed for any person, or None for other requests."""
        address = len(request.scope["path"]) + len(request.scope["query_string"])
        if address > limits.ADDRESS_BYTES:
            return refusal_page("The address of this page is too long.", "Search for a shorter text.", status=414)
        sizes = [len(name) + len(value) + 4 for name, value in request.headers.raw]
        if sum(sizes) + address > limits.HEADER_BYTES:
            return refusal_page("The headers of this request are too long.", status=431)
        host = request.headers.get("host", "")
        if not self._site_socket.answers_to(host):
            return refusal_page("lbx does not listen on this address.", "Open the link printed by lbx.")
        if request.method in ("GET", "HEAD"):
            return None
        is_own_page = request.headers.get("origin", "").lower() in (f"http://{host.lower()}", f"https://{host.lower()}")
        if not is_own_page or request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return refusal_page("This request does not come from a page of lbx.", "No changes were saved.")
        return None

    def _check_person(self, request: Request) -> Response | None:
        """Return the refusal of a stranger, or the response to a secret link, or None for a request of a person."""
        if request.scope["path"].startswith(f"{self._root}/"):
            request.scope["root_path"] = self._root
            # The person of the cookie, parsed by hand: Python's own parser takes quadratic time for some cookies
            pairs = ";".join(request.headers.getlist("cookie")).split(";")
            tokens = [
                value.strip() for name, _, value in (pair.partition("=") for pair in pairs) if name.strip() == _COOKIE
            ]
            people = (self._find_person(value) for value in tokens[: limits.COOKIES])
            current = next((person for person in people if person), None)
            token = request.query_params.get("token")
            if token is not None:
                return self._open_link(request, current, self._find_person(token))
            if current:
                request.state.person = current.name
                return None
        elif request.scope["path"].startswith("/static/"):
            return None
        return refusal_page(
            "This browser has no access.",
            "Open the link that lbx printed for you in this browser; then this page continues to its address. If lbx "
            "was restarted, its links are new.",
        )

    def _open_link(self, request: Request, current: Person | None, person: Person | None) -> Response:
        """Redirect to the first page. The path of the link is ignored, because it may have been changed."""
        if person is None:
            return refusal_page("This link is not valid.", "If lbx was restarted, its links are new.")
        if current and current is not person:
            return refusal_page(
                "This browser already uses another person's link.",
                "Open this link in another browser or in a private window.",
            )
        if request.headers.get("sec-fetch-site") == "cross-site":
            # After a link on another site, such as webmail, a browser does not send a strict cookie with a redirect.
            answer: Response = refusal_page("Welcome.", status=200)
            answer.headers["refresh"] = f"0; url={self._root}/"
        else:
            answer = RedirectResponse(f"{self._root}/", status_code=303)
        answer.set_cookie(_COOKIE, person.token, httponly=True, samesite="strict", path=f"{self._root}/")
        return answer

    def _find_person(self, secret: str) -> Person | None:
        candidate = secret.encode("utf-8", "replace")
        matches = [person for person in self._people if hmac.compare_digest(person.token.encode(), candidate)]
        return matches[0] if matches else None


class Site:
    """Application with access checks and a secret link for each person.

    The paths of all pages begin with a random prefix, which is new at each start, because browsers send a cookie to
    all ports of a host, but only below the cookie's path.

    Args:
        routes: routes of the pages. ``request.state.person`` is the name of the person.
        people: names of the people who get a link.
    """

    def __init__(self, site_socket: SiteSocket, routes: Sequence[BaseRoute], people: Sequence[str]) -> None:
        self.site_socket = site_socket
        self._root = f"/{secrets.token_urlsafe(12)}"
        self._people = [Person(name) for name in people]
        static = Mount("/static", StaticFiles(directory=HERE / "static"))
        word_diff = Route("/static/diff.js", lambda _request: FileResponse(_WORD_DIFF))
        pages = Starlette(
            routes=[*routes, word_diff, static],
            exception_handlers={
                LbxError: _lbx_error_page,
                HTTPException: _http_error_page,
                **dict.fromkeys(VALUE_ERRORS, _value_error_page),
                Exception: _unexpected_error_page,
            },
        )
        self.app = AccessMiddleware(pages, site_socket, self._people, self._root)

    @property
    def url(self) -> str:
        """URL prefix of all pages."""
        return self.site_socket.url + self._root

    @property
    def links(self) -> dict[str, str]:
        """{name of a person: secret link}"""
        return {person.name: f"{self.url}/?token={person.token}" for person in self._people}


def _lbx_error_page(_request: Request, error: Exception) -> Response:
    assert isinstance(error, LbxError)
    status = 400 if isinstance(error, UsageError) else 500
    return refusal_page(error.cause, error.fix, status=status)


def _value_error_page(request: Request, error: Exception) -> Response:
    """Respond only with names of files, because the error's text may quote a value that raters must not see."""
    if stored_value_error(error) is None or os.environ.get("LBX_DEBUG"):
        raise error
    _log_error(request.method, request.scope["path"], error)
    return refusal_page(unreadable_values(), _SEE_TERMINAL, status=500)


def _http_error_page(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    cause = "This page does not exist." if error.status_code == 404 else f"This request is not valid: {error.detail}."
    return refusal_page(cause, status=error.status_code)


def _unexpected_error_page(_request: Request, _error: Exception) -> Response:
    return refusal_page("An unexpected error occurred in lbx.", _SEE_TERMINAL, status=500)


def _log_error(method: str, path: str, error: Exception) -> None:
    _log.error(f"The request {method} {one_line(path)} failed: {type(error).__name__}: {one_line(str(error))}")
