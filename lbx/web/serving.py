"""Sockets, connections and the main loop of a site."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import stat
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from lbx.base.errors import LbxError, UsageError
from lbx.web import limits
from lbx.web.site import Site, SiteSocket

_LONGEST_UDS = 100
_log = logging.getLogger("lbx.web")


@contextmanager
def listening(host: str, port: int, uds: Path | None = None, *, others: bool = False) -> Iterator[SiteSocket]:
    """Bind a socket, and close it at the end of the block.

    Args:
        host: address or name of this machine.
        port: port to bind, or 0 for any free port. With ``uds``, the local port of the tunnel.
        uds: path of a Unix domain socket to bind instead, which only this user can access.
        others: whether to allow access from other machines, which a host that is not loopback requires.

    Raises:
        UsageError: the host is not loopback and ``others`` is not set, or the port or the file is in use.
        LbxError: the operating system refuses to bind.
    """
    site_socket = SiteSocket(_bind_file(uds), "127.0.0.1", port or 8765, uds) if uds else _bind_tcp(host, port, others)
    try:
        yield site_socket
    finally:
        site_socket.socket.close()
        if uds:
            uds.unlink(missing_ok=True)


def _bind_tcp(host: str, port: int, allow_remote: bool) -> SiteSocket:
    try:
        family, _, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as exc:
        raise UsageError(f'This machine has no address "{host}".', fix="Omit --host to use 127.0.0.1.") from exc
    is_remote = not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
    if is_remote and not allow_remote:
        raise UsageError(
            f"Other machines can reach {host}, and their traffic would not be encrypted.",
            fix="Omit --host and use the printed `ssh -L` command; or, in a network that you trust, pass "
            "--others-may-reach-it.",
        )
    bound_socket = socket.socket(family, socket.SOCK_STREAM, protocol)  # without one, asyncio leaves Nagle's delay on
    bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound_socket.bind(address)
        bound_socket.listen(limits.BACKLOG)
    except OSError as exc:
        bound_socket.close()
        if exc.errno == errno.EADDRINUSE:
            raise UsageError(
                f"Port {port} is already in use, perhaps by lbx in another terminal.",
                fix="Stop that program, or pass another port with --port N (0 for any free port).",
            ) from exc
        raise LbxError(f"Cannot listen on {host}, port {port}: {exc.strerror}.", fix="Pass another --port.") from exc
    return SiteSocket(bound_socket, host, bound_socket.getsockname()[1], remote=is_remote)


def _bind_file(path: Path) -> socket.socket:
    if len(os.fsencode(path.absolute())) > _LONGEST_UDS:
        raise UsageError(
            f"{path} is too long for the name of a socket.", fix="Choose a shorter path, for example in /tmp."
        )
    if path.exists():
        _remove_dead_socket(path)
    bound_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o077)
    try:
        bound_socket.bind(str(path))
        bound_socket.listen(limits.BACKLOG)
    except OSError as exc:
        bound_socket.close()
        raise UsageError(f"Cannot create a socket at {path}: {exc.strerror}.", fix="Choose another path.") from exc
    finally:
        os.umask(before)
    return bound_socket


def _remove_dead_socket(path: Path) -> None:
    """Remove the socket of a killed process. Raises UsageError for other files, and for sockets that are in use."""
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise UsageError(f"{path} exists and is not a socket.", fix="Choose another file.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # the queue of a listening process may be full
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:  # a socket of another type, or of another user
            pass
    raise UsageError(f"Another program already listens on {path}.", fix="Stop that program, or choose another file.")


class Connection(H11Protocol):
    """Connection of uvicorn with a deadline for requests and a limit on connections per person."""

    _deadline: asyncio.TimerHandle | None = None

    @property
    def person(self) -> str:
        """Name of the person who made the last request, or "" for strangers."""
        return str(self.scope["state"].get("person", "")) if self.scope else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.since = self.loop.time()
        self._set_deadline()
        # Close each person's oldest connections above the limit
        by_person = defaultdict(list)
        for connection in self.connections:
            assert isinstance(connection, Connection)
            by_person[connection.person].append(connection)
        for person, connections in by_person.items():
            limit = limits.CONNECTIONS_PER_PERSON if person else limits.STRANGER_CONNECTIONS
            newest_first = sorted(connections, key=lambda connection: connection.since, reverse=True)
            for connection in newest_first[limit:]:
                self.connections.discard(connection)
                connection.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid request, unless the response to the previous request has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def _set_deadline(self) -> None:
        """Start the deadline of a request, unless it is running. Further bytes of the request do not extend it."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._clear_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(limits.REQUEST_S, self.transport.abort)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def serve(site: Site) -> None:
    """Serve until Ctrl-C or SIGTERM, and finish open responses.

    Raises:
        KeyboardInterrupt: a signal arrived, and open responses are finished.
    """
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(_LoopErrors())
        runner.run(make_server(site).serve(sockets=[site.site_socket.socket]))


class _LoopErrors:
    """Handler that logs a lack of file descriptors once. Asyncio alone logs a traceback at every retry, each second."""

    full = False

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif not self.full:
            self.full = True
            _log.warning("lbx has too many open files, so new connections wait. Raise the limit: ulimit -n 4096")


def make_server(site: Site) -> uvicorn.Server:
    """Build a uvicorn server with lbx's limits and without uvicorn's logs. ``AccessMiddleware`` logs pages' errors."""
    settings = uvicorn.Config(
        site.app,
        access_log=False,  # addresses contain tokens
        log_level="error" if os.environ.get("LBX_DEBUG") else "critical",
        server_header=False,
        timeout_graceful_shutdown=limits.GRACE_S,
        backlog=limits.BACKLOG,
        h11_max_incomplete_event_size=limits.HEADER_BYTES,
        ws="none",
        lifespan="off",
        http=Connection,
        loop="asyncio",
    )
    return uvicorn.Server(settings)
