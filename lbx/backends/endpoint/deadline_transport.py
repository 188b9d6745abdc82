"""HTTP transport with a deadline and a size limit for each answer: a server may send one byte a minute, or forever.

httpx's timeouts only limit the time between two bytes, and it reads answers of any size; here the deadline covers a
whole answer, and its size is limited. Compressed answers are refused: their unpacked size has no bound.

The deadline is enforced in the read calls of a custom network backend, which httpcore accepts and httpx passes on only
in its private ``_pool``. A deadline around httpx's asynchronous client takes 1.9 ms of CPU per request instead of 1.0,
and a thread for its loop; a custom transport around httpcore, 31 more lines. tests/attacks/test_servers.py checks it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpcore2
import httpx2

LIMIT = 64 << 20
"""Maximum bytes of one answer; a million tokens with their text take a tenth of that."""


class EndlessError(Exception):
    """Answer that is too large, or compressed; the message is the end of a sentence ("it ...")."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Complete HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Parse the body as JSON.

        Raises:
            ValueError: the body is not JSON, or nested too deeply.
        """
        try:
            return json.loads(self.body)
        except RecursionError as exc:
            raise ValueError("nested too deeply") from exc


def fetch(client: httpx2.Client, method: str, url: str, *, seconds: float, content: str | None = None) -> HttpResponse:
    """Send one request.

    Args:
        client: made with a ``DeadlineTransport``.
        seconds: deadline of the last byte of the answer.

    Raises:
        EndlessError: the answer has more than ``LIMIT`` bytes, or is compressed.
        httpx2.HTTPError, httpx2.InvalidURL: errors of the client.
    """
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    body = bytearray()
    with _until(time.monotonic() + seconds), client.stream(method, url, content=content, headers=headers) as response:
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise EndlessError(f"is compressed ({encoding[:40]}), although lbx did not request it")
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > LIMIT:
                raise EndlessError(f"has more than {LIMIT >> 20} MiB")
        return HttpResponse(response.status_code, response.headers, bytes(body))


class DeadlineTransport(httpx2.HTTPTransport):
    """httpx's transport with connections that keep the deadline of their request."""

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
def _until(moment: float) -> Iterator[None]:
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
