"""HTTP requests to a model server, with retries, deadlines and size limits, and its failures by remedy.

HTTP transport with a deadline and a size limit for each answer: a server may send one byte a minute, or forever.

httpx's timeouts only limit the time between two bytes, and it reads answers of any size; here the deadline covers a
whole answer, and its size is limited. Compressed answers are refused: their unpacked size has no bound.

The deadline is enforced in the read calls of a custom network backend, which httpcore accepts and httpx passes on only
in its private ``_pool``. A deadline around httpx's asynchronous client takes 1.9 ms of CPU per request instead of 1.0,
and a thread for its loop; a custom transport around httpcore, 31 more lines. tests/attacks/test_servers.py checks it.
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpcore2
import httpx2

from lbx.backends.endpoint.options import EndpointOptions
from lbx.base.errors import BackendError, EndpointError, UsageError
from lbx.base.visible import one_line

LIMIT = 64 << 20
"""Maximum bytes of one answer; a million tokens with their text take a tenth of the limit."""


ObjectHook = Callable[[dict[str, Any]], Any]


class EndlessError(Exception):
    """A server's answer is too large or compressed. The message is the end of a sentence ("it ...")."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Complete HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self, object_hook: ObjectHook | None = None) -> Any:
        """Parse the body as JSON, with a function that replaces each object, as in ``json.loads``.

        Raises:
            ValueError: the body is not JSON, or nested too deeply.
        """
        try:
            return json.loads(self.body, object_hook=object_hook)
        except RecursionError as exc:
            raise ValueError("nested too deeply") from exc


def fetch(client: httpx2.Client, method: str, url: str, *, seconds: float, content: str | None = None) -> HttpResponse:
    """Send one HTTP request and return the complete response.

    Args:
        client: client with a ``DeadlineTransport``.
        seconds: deadline of the last byte of the answer.

    Raises:
        EndlessError: the answer exceeds ``LIMIT`` bytes, or is compressed.
        httpx2.HTTPError, httpx2.InvalidURL: errors of the client.
    """
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    body = bytearray()
    with (
        _set_deadline(time.monotonic() + seconds),
        client.stream(method, url, content=content, headers=headers) as response,
    ):
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise EndlessError(f"is compressed ({encoding[:40]}), although lbx did not request it")
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > LIMIT:
                raise EndlessError(f"has more than {LIMIT >> 20} MiB")
        return HttpResponse(response.status_code, response.headers, bytes(body))


class DeadlineTransport(httpx2.HTTPTransport):
    """HTTP transport whose connections observe the deadline of a request."""

    def __init__(self, ssl_context: Any, limits: httpx2.Limits) -> None:
        super().__init__(verify=ssl_context, limits=limits, trust_env=False)
        self._pool = httpcore2.ConnectionPool(
            ssl_context=ssl_context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_Backend(),
        )


_deadline = threading.local()


@contextmanager
def _set_deadline(moment: float) -> Iterator[None]:
    _deadline.moment = moment
    try:
        yield
    finally:
        del _deadline.moment


def _remaining_s(timeout: float | None) -> float | None:
    moment = getattr(_deadline, "moment", None)
    if moment is None:
        return timeout
    remaining_s = float(moment - time.monotonic())
    if remaining_s <= 0:
        raise httpcore2.ReadTimeout("the answer did not end in time")
    return remaining_s if timeout is None else min(remaining_s, timeout)


class _Backend(httpcore2.SyncBackend):
    def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore2.NetworkStream:
        return _Stream(super().connect_tcp(*arguments, **options))


class _Stream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _remaining_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _remaining_s(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0
MAX_ASKED_DELAY_S = 300.0
CONNECT_S = 15.0
_SHORT_S = 30.0
_UNAVAILABLE = frozenset((408, 429, 502, 503, 504))
_PASSING = frozenset((408, 409, 425, 429))
_MAX_MESSAGE = 300
_MOST_CRASHES = 1
"""Number of crashes of the server after which a request is sent again."""
_ABSENT = (404, 405, 501)
_PATHS = ("/chat/completions", "/completions", "/embeddings", "/models")
_START_SERVER = "Start it or correct the card's url."


_REMEDIES = {
    408: "The server stopped waiting for the request: raise its timeout, or lower concurrency in the card.",
    429: "The server limits requests: lower concurrency or set pause_s in the card, or check the account's quota.",
    502: "A proxy before the server got no valid answer from it: check that the server is running, and both logs.",
    503: "The server is overloaded or still loads its model: check its log, and lower concurrency in the card.",
    504: "A proxy before the server stopped waiting for it: raise its timeout, or lower concurrency in the card.",
}


class RefusedError(Exception):
    """Permanent failure of a request: the server answered with an error status that a retry would not change.

    Attributes:
        target: address of a redirection, without user name and query, or "" without one.
    """

    def __init__(self, status: int, message: str, target: str = "") -> None:
        super().__init__(f"{status}: {message}" if message else str(status))
        self.status = status
        self.message = message
        self.target = target

    @property
    def is_general(self) -> bool:
        """Whether the server refuses every request."""
        return self.status < 400 or self.status in (401, 402, 403, 404)


class UnreachableError(Exception):
    """Temporary failure of a request: no answer after all attempts, or the server is not ready.

    Attributes:
        fix: a sentence on the remedy, or "" if unknown.
    """

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class Server:
    """Client of an OpenAI-compatible server. Methods may be called from several threads.

    Raises:
        UsageError: the environment variable for the key is not set.
    """

    def __init__(self, options: EndpointOptions) -> None:
        self.url = options.base_url
        self._root = self.url.removesuffix("/v1")
        self._retries = options.retries
        self._seconds = options.timeout_s
        self._key = _key(options.api_key_env)
        self._key_name = options.api_key_env
        self._extra = options.extra_body
        self._pause_s = options.pause_s
        self._turn = threading.Lock()
        self._next_at = 0.0
        self._stopping = threading.Event()
        self.recover: Callable[[float], bool] = lambda _began: False
        """Restarts a server that has crashed since a time of ``time.monotonic``, or returns False without a crash."""
        # No proxy and no .netrc from the environment: a run reaches only this address.
        self._client = httpx2.Client(
            headers={"User-Agent": "lbx"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            timeout=httpx2.Timeout(options.timeout_s, connect=min(CONNECT_S, options.timeout_s), pool=None),
            transport=DeadlineTransport(
                httpx2.create_ssl_context(),
                httpx2.Limits(max_connections=None, max_keepalive_connections=options.concurrency),
            ),
            trust_env=False,
        )

    def get(self, path: str, *, root: bool = False) -> Any:
        """Fetch a JSON document from the server, or return None if it does not exist.

        Args:
            path: path with a leading slash.
            root: whether the path is relative to the server's root instead of ``url``.

        Raises:
            UnreachableError, RefusedError: see ``post``; a status of 404, 405 or 501 returns None.
        """
        try:
            response = self._with_retries("GET", (self._root if root else self.url) + path, None, unready_only=True)
            return response.json()
        except RefusedError as exc:
            if exc.status in _ABSENT:
                return None
            raise
        except ValueError:
            return None

    def post(
        self,
        path: str,
        payload: Mapping[str, Any],
        *,
        root: bool = False,
        unready_only: bool = False,
        object_hook: ObjectHook | None = None,
    ) -> Mapping[str, Any]:
        """Send a request and return the JSON object of the answer.

        Args:
            path, root: see ``get``.
            unready_only: whether to retry only if the server is not ready, and not after other failures.
            object_hook: see ``HttpResponse.json``.

        Raises:
            UnreachableError: no connection, or 429, 502, 503, 504 after all retries; or no answer in ``timeout_s``.
            RefusedError: any other error status.
            BackendError: the answer is not a JSON object, or never ends.
        """
        url = (self._root if root else self.url) + path
        body = payload if root else {**self._extra, **payload}
        response = self._with_retries("POST", url, body, unready_only=unready_only)
        try:
            document = response.json(object_hook)
        except ValueError as exc:
            if response.body.lstrip().startswith(b"data:"):
                raise BackendError(
                    f"The server {self.url} streams its answers, which lbx did not request.",
                    fix="Switch streaming off in the server, in the proxy before it, or in extra_body of the card.",
                ) from exc
            raise BackendError(
                f"The server {self.url} gave an answer that is not JSON: {self._excerpt(response.text)!r}.",
                fix="Check the card's url, which ends in /v1 for most servers, and check that no proxy answers instead "
                "of the server.",
            ) from exc
        if not isinstance(document, dict):
            raise BackendError(
                f"The server {self.url} answered {self._excerpt(response.text)!r}, not a JSON object.",
                fix="Check the card's url, which ends in /v1 for most servers.",
            )
        return document

    def is_alive(self) -> bool:
        """Whether the server answers a single request now."""
        try:
            status = fetch(self._client, "GET", self.url + "/models", seconds=_SHORT_S).status
        except (httpx2.ReadTimeout, EndlessError):
            return True  # busy: some servers list their models only between answers
        except httpx2.HTTPError:
            return False
        return bool(status not in _UNAVAILABLE or status in (408, 429))

    def is_ready(self) -> bool:
        """Whether the server has loaded the model, as it reports by /health, or else by the list of models."""
        for url in (f"{self._root}/health", f"{self.url}/models"):
            try:
                status = fetch(self._client, "GET", url, seconds=CONNECT_S).status
            except (httpx2.HTTPError, EndlessError):
                return False
            if status not in _ABSENT:
                return bool(status < 500 and status not in _UNAVAILABLE)
        return False

    def stop(self) -> None:
        """End the waits between attempts."""
        self._stopping.set()

    def close(self) -> None:
        self.stop()
        self._client.close()

    def to_error(self, exc: RefusedError | UnreachableError) -> EndpointError:
        """Convert a failure that would affect every request into an EndpointError."""
        if isinstance(exc, UnreachableError):
            return EndpointError(
                f"The model server {self.url} does not answer ({exc}).",
                fix=f"{(exc.fix or _START_SERVER).removesuffix('.')}, then run the same command again to continue.",
            )
        if exc.status < 400:
            return self._redirection_error(exc)
        if exc.status in (401, 403):
            fix = (
                f"Check the key in the environment variable {self._key_name}."
                if self._key_name
                else ("Put a key into an environment variable, and set api_key_env in the card to the variable's name.")
            )
            return EndpointError(f"The model server {self.url} refuses the key ({exc}).", fix=fix)
        if exc.status >= 500:
            return EndpointError(
                f"The model server {self.url} failed ({exc}).",
                fix="Check its log. When it works again, run the same command to continue.",
            )
        return EndpointError(
            f"The model server {self.url} refuses requests ({exc}).",
            fix="Check the card's url and model: the url of most servers ends in /v1."
            if exc.status in _ABSENT
            else "Check the options in the card, the account on a paid server, and the server's log.",
        )

    def _redirection_error(self, exc: RefusedError) -> EndpointError:
        base = next((exc.target.removesuffix(path) for path in _PATHS if exc.target.endswith(path)), "")
        target = f" to {exc.target}" if exc.target else ""
        return EndpointError(
            f"The model server {self.url} redirects requests{target} ({exc.status}), and lbx follows no redirection.",
            fix=f'If that is the server, set url = "{base}" in the card.'
            if base
            else "Check the card's url: a login page or a proxy may answer in place of the server.",
        )

    def _with_retries(self, method: str, url: str, payload: Any, *, unready_only: bool) -> HttpResponse:
        """Send a request, and repeat it at most ``retries`` times until the server answers."""
        failed = crashes = 0
        while True:
            wait = 0.0
            self._wait_for_turn()
            began = time.monotonic()
            try:
                # allow_nan would write NaN, which is not JSON.
                content = None if payload is None else json.dumps(payload, ensure_ascii=False, allow_nan=False)
                response = fetch(self._client, method, url, seconds=self._seconds, content=content)
            except EndlessError as exc:
                raise BackendError(
                    f"The answer of the server {self.url} {exc}.",
                    fix="Check the card's url, and check that no proxy changes the model's answers.",
                ) from exc
            except httpx2.ReadTimeout as exc:  # the server may still be working on it: a retry would do the work twice
                raise UnreachableError(
                    "no answer within the card's timeout_s", "Raise timeout_s or lower concurrency in the card."
                ) from exc
            except httpx2.TransportError as exc:
                if isinstance(exc, httpx2.UnsupportedProtocol) or "CERTIFICATE" in str(exc):
                    raise UnreachableError(_reason(exc)) from exc
                if self.recover(began):
                    crashes += 1
                    if crashes > _MOST_CRASHES:
                        raise UnreachableError(
                            f"the server crashed {crashes} times while it worked on it", "Check the server's log."
                        ) from exc
                    continue
                problem: Exception = UnreachableError(_reason(exc))
                problem.__cause__ = exc
            except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
                raise UnreachableError(_reason(exc)) from exc
            else:
                status = _status(response)
                if status < 300:
                    return response
                problem, wait = self._problem(status, url, response), _asked_delay(response)
                if isinstance(problem, RefusedError) and not self._may_pass(status, unready_only):
                    raise problem
            failed += 1
            delay = min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (failed - 1)) * random.SystemRandom().uniform(0.5, 1)
            if failed > self._retries or self._stopping.wait(max(delay, wait)):
                raise problem

    def _wait_for_turn(self) -> None:
        """Wait until ``pause_s`` has passed since the previous request of any thread."""
        with self._turn:
            now = time.monotonic()
            start = max(now, self._next_at)
            self._next_at = start + self._pause_s
        if start > now and self._stopping.wait(start - now):
            raise UnreachableError("the run has ended")

    def _problem(self, status: int, url: str, response: HttpResponse) -> Exception:
        message = self._error_message(response)
        if status in _UNAVAILABLE:
            return UnreachableError(f"{status}: {message}" if message else str(status), _REMEDIES[status])
        return RefusedError(status, message, _target(url, response) if status < 400 else "")

    @staticmethod
    def _may_pass(status: int, unready_only: bool) -> bool:
        return status in _PASSING or (status >= 500 and status != 501 and not unready_only)

    def _error_message(self, response: HttpResponse) -> str:
        """Message in the body of an error response, under any of the usual keys."""
        try:
            body = response.json()
        except ValueError:
            return self._excerpt(response.text)
        while isinstance(body, dict):
            body = next((body[k] for k in ("error", "message", "detail", "msg") if body.get(k)), "")
        return self._excerpt(body if isinstance(body, str) else json.dumps(body))

    def _excerpt(self, text: str) -> str:
        line = re.sub(r"\s+", " ", text).strip()
        if self._key:
            line = line.replace(self._key, "***")
        return line if len(line) <= _MAX_MESSAGE else line[: _MAX_MESSAGE - 1] + "…"


def _key(variable: str) -> str:
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(
            f"The environment variable {variable}, which the model card names for the server's key, is not set.",
            fix="Set it, or remove api_key_env from the card.",
        )
    if not key.isascii() or not key.isprintable():
        raise UsageError(
            f"The key in the environment variable {variable} has characters that HTTP headers cannot contain.",
            fix="Set it again, without line breaks, quotation marks of an editor or letters with accents.",
        )
    return key


def _status(response: HttpResponse) -> int:
    """Status of a response, or, for an error in the body of a successful response, the error's code or 400."""
    if response.status >= 300 or b'"error"' not in response.body:
        return response.status
    try:
        body = response.json()
    except ValueError:
        return response.status
    failed = isinstance(body, dict) and (body.get("error") or body.get("object") == "error")
    if not failed or body.get("choices"):
        return response.status
    code = body["error"].get("code") if isinstance(body.get("error"), dict) else body.get("code")
    return code if type(code) is int and 400 <= code < 600 else 400


def _target(url: str, response: HttpResponse) -> str:
    """Address that a response redirects to, or "", without user name and query, which may be secrets."""
    location = response.headers.get("Location", "").strip()
    try:
        parts = urlsplit(urljoin(url, location) if location else "")
        address = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    except ValueError:
        return ""
    return one_line(address)[:_MAX_MESSAGE] if parts.netloc else ""


def _asked_delay(response: HttpResponse) -> float:
    """Seconds that a response's Retry-After header (a number or a date) requests, up to five minutes, or 0."""
    text = response.headers.get("Retry-After", "").strip()
    if not text:
        return 0.0
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return min(float(text), MAX_ASKED_DELAY_S)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return min(max((until - datetime.now(UTC)).total_seconds(), 0.0), MAX_ASKED_DELAY_S)


def _reason(exc: Exception) -> str:
    text = re.sub(r"\s+", " ", str(exc)).strip().rstrip(".")
    if "CERTIFICATE" in text:
        return f"its TLS certificate is not trusted: {text}; set SSL_CERT_FILE to a file with further authorities"
    return text or type(exc).__name__
