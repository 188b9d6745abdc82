"""Where a site listens, and by which names it may be called."""

from __future__ import annotations

import getpass
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from lbx.base.commands import as_command


@dataclass(frozen=True, slots=True)
class Place:
    """A bound socket, and by which names it may be called.

    Attributes:
        uds: the socket's file, where it is not TCP.
        others: whether other machines can reach it.
    """

    socket: socket.socket
    host: str
    port: int
    uds: Path | None = None
    others: bool = False

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it, or would behind ``tunnel``."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def tunnel(self) -> str:
        """What brings it to another machine's browser."""
        address = str(self.uds.absolute()) if self.uds else f"{self.host}:{self.port}"
        return as_command("ssh", "-L", f"{self.port}:{address}", f"{_user()}@{socket.gethostname()}")

    def answers_to(self, header: str) -> bool:
        """Whether a request's Host is this place, not a name that somebody made to point here.

        Any port will do: behind a tunnel it may be another one. Where others may come, numbers will do, too: only
        names can be made to point elsewhere.
        """
        name = header.rpartition(":")[0] if header.rpartition(":")[2].isdecimal() else header
        name = name.strip("[]").lower().rstrip(".")
        if name in ("localhost", "127.0.0.1", "::1"):
            return True
        return self.others and (name in _own_names() | {self.host.lower()} or _address(name) is not None)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's number without a name
        return "USER"


def _own_names() -> set[str]:
    return {socket.gethostname().lower(), socket.getfqdn().lower()}


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
