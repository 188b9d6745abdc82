"""An offline run refuses the network, whoever asks."""

from __future__ import annotations

import subprocess
import sys

import pytest

TRY = """
import socket, sys
from lbx.engine.offline import block_network
print(block_network())
for attempt in (
    lambda: socket.create_connection(("127.0.0.1", 9), timeout=1),
    lambda: socket.getaddrinfo("localhost", 80),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)),
    lambda: __import__("urllib.request").request.urlopen("http://127.0.0.1:9/"),
):
    try:
        attempt()
        print("reached")
    except Exception as error:
        print(type(error).__name__)
left, right = socket.socketpair(socket.AF_UNIX)
left.sendall(b"ok")
print(right.recv(2).decode())
"""


def attempts(*prefix: str) -> list[str]:
    command = [*prefix, sys.executable, "-W", "ignore", "-c", TRY]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_every_way_out_is_refused_and_none_inside() -> None:
    said, *tries, inside = attempts()
    assert "sockets blocked in-process" in said
    assert tries == ["NetworkAttemptError"] * 4
    assert inside == "ok"


def test_a_namespace_without_network_is_recognised() -> None:
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a network namespace")
    assert attempts("unshare", "-n")[0].startswith("no network interface")
