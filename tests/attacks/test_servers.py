"""Model servers that answer without end, or with what is no answer. A run says so in a sentence and goes no further."""

from __future__ import annotations

import gzip
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.attacks.attack_parts import Said, main, process, refused

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
MODELS = json.dumps({"data": [{"id": "m", "max_model_len": 100_000}]}).encode()


PACKED = gzip.compress(bytes(1 << 26), 1) * 64


class Hostile:
    """A server that lists one model, and whose other answers are up to the attack: bytes on a socket."""

    def __init__(self, attack: Callable[[socket.socket], None], first: bool) -> None:
        self._attack, self._first = attack, first
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._talk, args=(self._listener.accept()[0],), daemon=True).start()

    def _talk(self, peer: socket.socket) -> None:
        with suppress(OSError), peer:
            while request := self._request(peer):
                self.asked.append(request)
                if "/models" in request and not self._first:
                    peer.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(MODELS) + MODELS)
                else:
                    self._attack(peer)

    @staticmethod
    def _request(peer: socket.socket) -> str:
        data = b""
        while b"\r\n\r\n" not in data:
            more = peer.recv(1 << 16)
            if not more:
                return ""
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = int((re.search(rb"content-length: (\d+)", head, re.IGNORECASE) or [b"0", b"0"])[1])
        while len(body) < length:
            body += peer.recv(1 << 16)
        return head.split(b"\r\n")[0].decode()

    def close(self) -> None:
        self._listener.close()


def endless(peer: socket.socket) -> None:
    peer.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        peer.sendall(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")


def bomb(peer: socket.socket) -> None:
    """4 GB in some 20 MB."""
    peer.sendall(HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(PACKED) + PACKED)


def dripping_body(peer: socket.socket) -> None:
    peer.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
    while True:
        peer.sendall(b" ")
        time.sleep(0.2)


def dripping_head(peer: socket.socket) -> None:
    peer.sendall(HEAD)
    while True:
        peer.sendall(b"x")
        time.sleep(0.2)


def deep(peer: socket.socket) -> None:
    body = b'{"choices":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    peer.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def elsewhere(peer: socket.socket) -> None:
    peer.sendall(b"HTTP/1.1 307 There\r\nLocation: http://192.0.2.1/v1\r\nContent-Length: 0\r\n\r\n")


def huge_number(peer: socket.socket) -> None:
    body = b'{"choices": [{"text": "a", "index": ' + b"9" * 10_000 + b"}]}"
    peer.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def of_another_kind(peer: socket.socket) -> None:
    body = json.dumps(
        {"choices": [{"message": {"content": {"a": ["b"]}}, "text": [1], "finish_reason": {}}], "usage": 1}
    )
    peer.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body.encode())


WORDS = {
    endless: "has more than 64 MiB",
    bomb: "is compressed (gzip)",
    dripping_body: "no answer within the card's timeout_s",
    dripping_head: "no answer within the card's timeout_s",
    deep: "not JSON",
    elsewhere: "307",
    huge_number: "does not name a model",
}


def named(attack: object) -> str:
    return str(getattr(attack, "__name__", attack))


@pytest.fixture
def served() -> Iterator[Callable[..., Hostile]]:
    servers: list[Hostile] = []

    def serve(attack: Callable[[socket.socket], None], *, first: bool = False) -> Hostile:
        servers.append(Hostile(attack, first))
        return servers[-1]

    yield serve
    for server in servers:
        server.close()


def patience(attack: object) -> int:
    return 2 if attack in (dripping_body, dripping_head) else 60


def run(small: Path, folder: Path, server: Hostile, options: str, tokenizer: Path | None, seconds: int) -> Said:
    """A run of two samples, in 6 GB of address space; ``seconds`` for an answer."""
    options += f"\ntimeout_s = {seconds}"
    card = folder / "card.toml"
    place = f'context_window = 4096\n[tokenizer]\npath = "{tokenizer}"\n' if tokenizer else ""
    url = f"http://127.0.0.1:{server.port}/v1"
    card.write_text(f'backend = "endpoint"\n{place}[options]\nurl = "{url}"\nretries = 0\n{options}\n')
    lbx = f"{sys.executable} -P -m lbx.cli run -b {small / 'bundle'} -m {card} -t needle/single_en -n 2 --no-plan"
    return process("bash", "-c", f"ulimit -v 6000000; exec {lbx} -o {folder / 'r'}", seconds=60)


@pytest.mark.parametrize("attack", [dripping_head, elsewhere, huge_number], ids=named)
def test_the_first_answer_has_no_end_or_is_none(
    attack: Callable[[socket.socket], None], served: Callable[..., Hostile], small: Path, tmp_path: Path,
) -> None:  # fmt: skip
    """When the server is asked which models it has."""
    server = served(attack, first=True)
    said = run(small, tmp_path, server, 'api = "chat"\nconcurrency = 2', None, patience(attack))
    refused(said, WORDS[attack])


@pytest.mark.parametrize("attack", [endless, bomb, dripping_body, deep], ids=named)
def test_an_answer_has_no_end_or_is_none(
    attack: Callable[[socket.socket], None], served: Callable[..., Hostile], small: Path, tmp_path: Path,
) -> None:  # fmt: skip
    server = served(attack)
    said = run(
        small, tmp_path, server, 'api = "chat"\nmodel = "m"\nserver = "other"\nconcurrency = 2', None, patience(attack)
    )
    assert said.code in (0, 1, 3), said
    assert "Traceback" not in said.err and "did not expect" not in said.err, said
    assert any("POST" in line for line in server.asked)
    told = said.err if said.code == 1 else main("report", tmp_path / "r", "failures").out
    assert WORDS[attack].split()[-1] in " ".join(told.split()), told


@pytest.mark.parametrize("attack", [endless, of_another_kind], ids=named)
def test_a_completion_has_no_end_or_is_none(
    attack: Callable[[socket.socket], None], served: Callable[..., Hostile], small: Path, tmp_path: Path,
    demo_gguf: Path
) -> None:  # fmt: skip
    """Where lbx tokenizes, and sends token ids."""
    server = served(attack)
    said = run(
        small, tmp_path, server, 'api = "completions"\nmodel = "m"\nserver = "other"', demo_gguf, patience(attack)
    )
    assert said.code in (0, 1, 3), said
    assert "Traceback" not in said.err and "did not expect" not in said.err, said
    assert any("/completions" in line for line in server.asked), (server.asked, said)
