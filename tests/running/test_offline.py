"""An offline run refuses the network, whoever asks."""

from __future__ import annotations

import subprocess
import sys

import pytest

TRY = """
import socket, sys
from lbx.running.offline import block_network
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


ALLOWED = """
import socket, sys, threading
from lbx.running.offline import block_network
server, other = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
port, closed = server.getsockname()[1], other.getsockname()[1]
print(block_network((sys.argv[1], port)))
datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for attempt in (
    lambda: socket.create_connection((sys.argv[1], port), timeout=5).close(),
    lambda: __import__("httpx2").Client(trust_env=False, timeout=0.5).get(f"http://{sys.argv[1]}:{port}/"),
    lambda: socket.create_connection(("127.0.0.1", closed), timeout=1),
    lambda: socket.create_connection(("127.0.0.2", port), timeout=1),
    lambda: socket.socket().connect(("127.0.0.2", port)),
    lambda: socket.getaddrinfo("another-host", port),
    lambda: socket.gethostbyname(sys.argv[1]),
    lambda: datagram.sendto(b"x", ("127.0.0.1", port)),
    lambda: datagram.sendmsg([b"x"], [], 0, ("127.0.0.1", port)),
):
    try:
        attempt()
        print("reached")
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_one_model_server_may_be_reached_and_nothing_else(host: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", ALLOWED, host]
    said, *tries = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "lbx refuses network connections but to the model server" in said
    assert tries[:2] == ["reached", "ReadTimeout"], "the server accepts, and never answers"
    assert tries[2:] == ["NetworkAttemptError"] * 7


def test_a_server_without_an_address_is_named() -> None:
    code = "from lbx.running.offline import block_network; block_network(('no-such-host.invalid', 80))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "The model server's host no-such-host.invalid cannot be resolved" in done.stderr


def attempts(*prefix: str) -> list[str]:
    command = [*prefix, sys.executable, "-W", "ignore", "-c", TRY]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_every_way_out_is_refused_and_none_inside() -> None:
    said, *tries, inside = attempts()
    assert "lbx refuses network connections" in said
    assert tries == ["NetworkAttemptError"] * 4
    assert inside == "ok"


def test_a_namespace_without_network_is_recognised() -> None:
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a network namespace")
    assert attempts("unshare", "-n")[0].startswith("no network interface")
