"""Offline guarantee of a run: a guard that blocks network access, and the network interfaces of the machine."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lbx.base.errors import LbxError
from lbx.base.inputs import SMALL, read_input
from lbx.base.phases import phases

_EVENTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"})


_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY")


class _Guard:
    """State of the guard: the addresses that this process may reach, or None to allow all."""

    is_installed = False
    allowed_addresses: frozenset[tuple[str, int]] | None = None


_guard = _Guard()


class NetworkAttemptError(LbxError):
    """Code attempted to reach the network during an offline run."""


def network_interfaces() -> list[str]:
    """Names of this process's network interfaces other than loopback, or [] inside an empty network namespace."""
    try:
        lines = read_input(Path("/proc/self/net/dev"), SMALL).decode().splitlines()[2:]
    except OSError:
        return sorted(name for _, name in socket.if_nameindex() if name not in ("lo", "lo0"))
    return sorted(name for name in (line.split(":")[0].strip() for line in lines) if name != "lo")


@phases.measure("network check")
def block_network(*servers: tuple[str, int] | None) -> str:
    """Block every connection and name look-up of this process from now on, and put libraries into offline mode.

    Args:
        servers: host and port of each model server that remains reachable, or None for a local model.

    Returns:
        Description of the offline method, for the terminal and the results file.

    Raises:
        NetworkAttemptError: the host's name has no address.
    """
    for name in _OFFLINE:
        os.environ[name] = "1"
    reachable = [server for server in servers if server]
    allowed = frozenset[tuple[str, int]]().union(*(_addresses(*server) for server in reachable))
    if not _guard.is_installed:
        sys.addaudithook(_refuse)  # cannot be removed again, so it checks the current guard
        _guard.is_installed = True
    _guard.allowed_addresses = allowed
    blocked = "lbx refuses network connections"
    if reachable:
        blocked += " but to the model server " + " and ".join(f"{host}:{port}" for host, port in reachable)
    return blocked if network_interfaces() else f"no network interface (namespace), and {blocked}"


@contextmanager
def offline(*servers: tuple[str, int] | None) -> Iterator[str]:
    """Block the network like ``block_network``, inside a ``with`` block."""
    before, environment = _guard.allowed_addresses, {name: os.environ.get(name) for name in _OFFLINE}
    try:
        yield block_network(*servers)
    finally:
        _guard.allowed_addresses = before
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _addresses(host: str, port: int) -> frozenset[tuple[str, int]]:
    """Resolve a host, and return (name, port) and (address, port) of each of its addresses."""
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise NetworkAttemptError(
            f"The model server's host {host} cannot be resolved: {exc}.", fix="Correct the url in the model card."
        ) from exc
    return frozenset({(host, port), *((str(address[4][0]), port) for address in entries)})


def _refuse(event: str, arguments: tuple[object, ...], guard: _Guard = _guard) -> None:
    allowed = guard.allowed_addresses  # bound as a default: an interpreter at exit clears the module first
    if allowed is None or event not in _EVENTS:
        return
    if arguments and isinstance(arguments[0], socket.socket) and arguments[0].family == socket.AF_UNIX:
        return  # stays on this machine
    target = arguments[1] if len(arguments) > 1 and event.startswith("socket.conn") else arguments[:1]
    if event == "socket.connect" and isinstance(target, tuple) and target[:2] in allowed:
        return
    if event == "socket.getaddrinfo" and arguments[:2] in allowed:
        return
    raise NetworkAttemptError(
        f"A library tried to use the network during an offline run ({event}: {target}).",
        fix="A run must read only the bundle. Please report this, with the output of --debug.",
    )
