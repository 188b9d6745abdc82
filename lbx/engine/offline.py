"""Proof that a run needs no network: what the machine has, and a guard that refuses to use it."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from lbx.errors import LbxError

_EVENTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"})


class NetworkAttemptError(LbxError):
    """Something in this process tried to reach the network although the run is offline."""


def network_interfaces() -> list[str]:
    """Names of this process's network interfaces other than loopback; [] inside an empty network namespace."""
    try:
        lines = Path("/proc/self/net/dev").read_text("utf-8").splitlines()[2:]
    except OSError:
        return sorted(name for _, name in socket.if_nameindex() if name not in ("lo", "lo0"))
    return sorted(name for name in (line.split(":")[0].strip() for line in lines) if name != "lo")


def block_network(*servers: tuple[str, int] | None) -> str:
    """Refuse every connection and name look-up of this process from now on, and tell libraries to stay offline.

    Args:
        servers: host and port of each model server that may be reached all the same; None for a model that runs here.

    Returns:
        How the run is kept offline, in words, for the terminal and the results file.

    Raises:
        NetworkAttemptError: the host's name has no address.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    reachable = [server for server in servers if server]
    allowed = frozenset[tuple[str, int]]().union(*(_addresses(*server) for server in reachable))
    sys.addaudithook(lambda event, arguments: _refuse(event, arguments, allowed))
    blocked = "sockets blocked in-process"
    if reachable:
        blocked += " but to the model server " + " and ".join(f"{host}:{port}" for host, port in reachable)
    return blocked if network_interfaces() else f"no network interface (namespace), and {blocked}"


def _addresses(host: str, port: int) -> frozenset[tuple[str, int]]:
    """The host by its name and by each of its addresses, with the port."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise NetworkAttemptError(
            f"The model server's name {host} has no address: {exc}.", fix="Correct the url in the model card."
        ) from exc
    return frozenset({(host, port), *((str(address[4][0]), port) for address in found)})


def _refuse(event: str, arguments: tuple[object, ...], allowed: frozenset[tuple[str, int]]) -> None:
    if event not in _EVENTS:
        return
    if arguments and isinstance(arguments[0], socket.socket) and arguments[0].family == socket.AF_UNIX:
        return  # does not leave the machine
    target = arguments[1] if len(arguments) > 1 and event.startswith("socket.conn") else arguments[:1]
    if event == "socket.connect" and isinstance(target, tuple) and target[:2] in allowed:
        return
    if event == "socket.getaddrinfo" and arguments[:2] in allowed:
        return
    raise NetworkAttemptError(
        f"Something tried to use the network during an offline run ({event}: {target}).",
        fix="A run reads only the bundle; please report this with --debug.",
    )
