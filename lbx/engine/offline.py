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


def block_network() -> str:
    """Refuse every connection and name look-up of this process from now on, and tell libraries to stay offline.

    Returns:
        How the run is kept offline, in words, for the terminal and the results file.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    sys.addaudithook(_refuse)
    if network_interfaces():
        return "sockets blocked in-process"
    return "no network interface (namespace), and sockets blocked in-process"


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event not in _EVENTS:
        return
    if arguments and isinstance(arguments[0], socket.socket) and arguments[0].family == socket.AF_UNIX:
        return  # does not leave the machine
    target = arguments[1] if len(arguments) > 1 and event.startswith("socket.conn") else arguments[:1]
    raise NetworkAttemptError(
        f"Something tried to use the network during an offline run ({event}: {target}).",
        fix="A run reads only the bundle; please report this with --debug.",
    )
