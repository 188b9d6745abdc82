"""The servers of `lbx rate`, `annotate` and `browse`, by whoever reaches their port: without a link, or with one.

Nothing here waits for a deadline of its real length: tests shorten the table of limits.
"""

from __future__ import annotations

import http.cookies
import json
import re
import resource
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lbx.base.errors import UsageError
from lbx.exchange.annotation.dataset import Dataset
from lbx.opinions.journal import Journal, journal_of
from lbx.opinions.rating_pages import read_pages
from lbx.opinions.rating_site import RatingPages
from lbx.web import Documents, Site, limits, listening, pages
from lbx.web.annotating import AnnotationPages
from tests.attacks import attack_parts  # noqa: F401  # makes the rooms' helpers importable
from tests.cli.page_process import page_process
from tests.opinions.rated_file import answers_file, book_of
from tests.web.sites import HOSTILE, answered, client_of, site_of

TOO_LONG = (414, 431, 400, 0)
"""The last one where the connection was closed before all was sent."""
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@contextmanager
def rating(folder: Path) -> Iterator[Site]:
    path = answers_file(folder / "r.duckdb")
    with Journal(journal_of(path)) as journal:
        book = book_of(path, journal, ("ann", "bob"))
        with site_of(RatingPages(book, Documents({}.get)).routes, ("ann", "bob")) as site:
            yield site


@pytest.fixture
def rated(tmp_path: Path) -> Iterator[Site]:
    """Raters' pages, over their socket."""
    with rating(tmp_path) as site, answered(site):
        yield site


def connected(site: Site) -> socket.socket:
    return socket.create_connection(("127.0.0.1", site.site_socket.port), timeout=8)


def status(peer: socket.socket) -> int:
    """Of the next answer, which is read to its end and no further; 0 where the other side is gone."""
    said = b""
    try:
        while not said.endswith(b"\r\n\r\n"):
            more = peer.recv(1)
            if not more:
                return 0
            said += more
        length = re.search(rb"content-length: (\d+)", said)
        missing = int(length[1]) if length else 1 << 16
        while missing > 0 and (more := peer.recv(missing)):
            missing -= len(more)
    except ConnectionResetError:
        return 0
    return int(said.split()[1])


def asked(site: Site, request: bytes) -> int:
    with connected(site) as peer:
        peer.sendall(request)
        return status(peer)


def gone(peer: socket.socket) -> bool:
    """Once the server has closed this connection, without a word or with one; never while it is kept."""
    return status(peer) in (0, 400) and status(peer) == 0


def is_served(site: Site) -> bool:
    """Whether a rater who comes now gets in."""
    link = urlsplit(site.links["ann"])
    return asked(site, f"GET {link.path}?{link.query} HTTP/1.1\r\nHost: {link.netloc}\r\n\r\n".encode()) == 303


# Headers


@pytest.mark.parametrize("backslashes", [4_000, 15_000, 64_000, 200_000])
def test_a_cookie_of_backslashes(rated: Site, backslashes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's reader of cookies takes time by the square of them, and any page of the browser can set one."""

    def unquoted(text: str) -> str:
        raise AssertionError("the cookie was read by http.cookies")

    monkeypatch.setattr(http.cookies, "_unquote", unquoted)
    cookie = b'Cookie: a="' + b"\\" * backslashes + b'"\r\n\r\n'
    assert asked(rated, GET + cookie) in ((403,) if backslashes < limits.HEADER_BYTES else TOO_LONG)
    client = client_of(rated)
    beside = 'a="' + "\\" * 4_000 + f'"; {cookie_of(client)}'
    assert client.get("/overview", headers={"cookie": beside}).status_code == 200


def cookie_of(client: object) -> str:
    return "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar)  # type: ignore[attr-defined]


@pytest.mark.parametrize("header", [b"Cookie: ", b"X: ", b"Origin: ", b"Referer: "], ids=repr)
def test_headers_without_end(rated: Site, header: bytes) -> None:
    """All at once, too, where a parser sees them whole before it counts."""
    for size in (limits.HEADER_BYTES, 100_000, 240_000):
        assert asked(rated, GET + header + b"a" * size + b"\r\n\r\n") in TOO_LONG
        many = header + b"a" * 90 + b"\r\n"
        assert asked(rated, GET + many * (size // len(many) + 1) + b"\r\n") in TOO_LONG
        assert asked(rated, b"GET /?q=" + b"a" * size + b" HTTP/1.1\r\nHost: localhost\r\n\r\n") in TOO_LONG
    assert is_served(rated)


@pytest.mark.parametrize("origin", ["http://[", "http://]", "http://[::1", "//", "http://a:b:c", "http://\u2100", "é"])
def test_an_origin_that_is_none(rated: Site, origin: str, capfd: pytest.CaptureFixture[str]) -> None:
    client = client_of(rated)
    sent = client.post("/item/0", data={"do": "rate-0-3"}, headers={"origin": origin.encode()})
    assert sent.status_code == 403
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("length", ["9" * 5000, "-1", "+1", "1_0", " ", "1e3", "\u0663"])
def test_a_length_that_is_none(rated: Site, length: str) -> None:
    client = client_of(rated)
    sent = client.post("/item/0", content=b"do=save", headers={"content-length": length.encode()})
    assert sent.status_code == 413


# Addresses


@pytest.mark.parametrize(
    "path",
    ["/item/{}", "/document/{}", "/document/{}/pair/1", "/document/1/pair/{}", "/?at={}", "/?from={}", "/answer?at={}"],
)
def test_a_number_of_4400_digits(tmp_path: Path, path: str) -> None:
    """And one that no table holds."""
    data = tmp_path / "data.jsonl"
    data.write_text('{"input": "a", "instructions": ["b"], "outputs": ["c"]}\n')
    with rating(tmp_path) as site, Dataset(data, tmp_path / "out.jsonl") as dataset:
        for routes in (site, AnnotationPages(dataset).routes):
            with ExitStack() as stack:
                one = site if routes is site else stack.enter_context(site_of(routes))
                for digits in ("9" * 4400, "9" * 15, "9" * 16, "0" * 4400):
                    client = client_of(one, raise_server_exceptions=False)
                    for ask in (client.get, client.post):
                        assert ask(path.format(digits)).status_code < 500, (path, digits[:20])


ADDRESSES = {
    "settings": "?" + "&".join(f"a{at}=1" for at in range(4_000)),
    "one setting again and again": "?" + "q=a&" * 6_000,
    "signs": "?" + "&" * 24_000,
    "bytes that are no text": "?q=" + "%ff" * 8_000,
    "folders": "a/" * 12_000,
    "ways up": "../" * 8_000,
    "ways up, encoded": "%2e%2e/" * 3_400,
    "signs of a path": "%2f" * 8_000,
}


@pytest.mark.parametrize("case", ADDRESSES)
@pytest.mark.parametrize("place", ["", "item/0", "documents/x/find", "/static/"])
def test_an_address_of_many_parts(rated: Site, case: str, place: str) -> None:
    """It is read or refused at once, and the others are served."""
    link = urlsplit(rated.links["ann"])
    path = place if place.startswith("/") else link.path + place
    cookie = f"Host: {link.netloc}\r\nCookie: {cookie_of(client_of(rated))}\r\n\r\n".encode()
    for address in (path + ADDRESSES[case], path + 4 * ADDRESSES[case]):
        assert asked(rated, f"GET {address} HTTP/1.1\r\n".encode() + cookie) in (*TOO_LONG, 200, 303, 307, 403, 404)
    assert is_served(rated)


def test_too_long_an_address_is_refused_by_name(rated: Site) -> None:
    answer = client_of(rated).get("/?q=" + "a" * limits.ADDRESS_BYTES)
    assert answer.status_code == 414
    assert "The address of this page is too long." in answer.text


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example/", "///evil.example", "/%2f/evil.example/", "/x"])
@pytest.mark.parametrize("site_of_it", ["same-origin", "cross-site"])
def test_a_link_leads_elsewhere(rated: Site, path: str, site_of_it: str) -> None:
    """A valid link in which somebody has changed the path."""
    link = urlsplit(rated.links["ann"])
    inside = link.path.rstrip("/")
    for changed in (path, inside + path):
        client = client_of(rated, None)
        address = f"{rated.site_socket.url}{changed}?{link.query}"
        answer = client.get(address, headers={"sec-fetch-site": site_of_it}, follow_redirects=False)
        leads = answer.headers.get("location") or answer.headers.get("refresh", "").partition("url=")[2]
        assert leads in ("", f"{inside}/"), leads


# Connections


@pytest.mark.parametrize("files", [256, 100])
def test_silent_connections_shut_nobody_out(tmp_path: Path, files: int) -> None:
    """400 of them, and fewer files than that which the process may open: as few as are kept, and fewer."""
    path = answers_file(tmp_path / "r.duckdb")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, before[1]))
    try:
        started = page_process("rate", path)
        process, client = started.__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    port = client.base_url.port
    with ExitStack() as stack:
        stack.callback(started.__exit__, None, None, None)
        for _ in range(400):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        client.close()
        with type(client)(base_url=client.base_url, cookies=client.cookies, trust_env=False, timeout=20) as other:
            for _ in range(3):
                assert other.get("overview").status_code == 200
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert "Traceback" not in said and "socket.accept()" not in said, said


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET", GET, b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\na", GET + b"\r\n" + GET],
    ids=repr,
)
def test_slow_requests_are_not_kept(tmp_path: Path, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent, in the middle of the headers, of a body that nobody will read, of the second request."""
    monkeypatch.setattr(limits, "REQUEST_S", 0.2)
    with rating(tmp_path) as site, answered(site), connected(site) as peer:
        peer.sendall(sent)
        if b"\r\n\r\n" in sent:
            assert status(peer) == 403
        done = threading.Event()

        def drip() -> None:
            try:
                while not done.wait(0.05):
                    peer.sendall(b"a" if sent else b"")
            except OSError:
                return

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert gone(peer)
        done.set()
        dripping.join()
        assert is_served(site)


def test_a_raters_own_slow_forms_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUEST_S", 0.2)
    with rating(tmp_path) as site, answered(site), connected(site) as peer:
        peer.sendall(form(site, b"", 90))
        assert gone(peer)


def form(site: Site, body: bytes, length: int | None = None) -> bytes:
    """A form of ann's, whole or begun."""
    place = urlsplit(site.links["ann"])
    head = (
        f"POST {place.path}item/0 HTTP/1.1\r\nHost: {place.netloc}\r\nOrigin: http://{place.netloc}\r\n"
        f"Cookie: {cookie_of(client_of(site))}\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n"
    )
    return head.encode() + body


@pytest.mark.parametrize("linked", [False, True])
def test_so_many_connections(tmp_path: Path, linked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those without a link, and of one person: the oldest go, and nobody else loses one."""
    monkeypatch.setattr(limits, "STRANGER_CONNECTIONS", 8)
    monkeypatch.setattr(limits, "CONNECTIONS_PER_PERSON", 8)
    with rating(tmp_path) as site, answered(site), ExitStack() as stack:
        bob = urlsplit(site.links["bob"])
        cookie = cookie_of(client_of(site, "bob"))
        page = f"GET {bob.path}overview HTTP/1.1\r\nHost: {bob.netloc}\r\nCookie: {cookie}\r\n\r\n".encode()
        his = stack.enter_context(connected(site))
        his.sendall(page)
        assert status(his) == 200
        begun = form(site, b"", 90) if linked else GET
        peers = []
        for _ in range(40):
            peers.append(stack.enter_context(connected(site)))
            peers[-1].sendall(begun)
        while len(peers) > 16:
            readable = select.select(peers, [], [], 20)[0]
            assert readable, f"{len(peers)} are kept"
            peers = [peer for peer in peers if peer not in readable or status(peer)]
        assert is_served(site)
        his.sendall(page)
        assert status(his) == 200, "a rater's connection is kept"


@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n"], ids=repr)
def test_an_end_with_unfinished_requests(tmp_path: Path, sent: bytes) -> None:
    """Ctrl-C, while ten forms are half there: of somebody's without a link, and of the rater's own."""
    with page_process("rate", answers_file(tmp_path / "r.duckdb")) as (process, client), ExitStack() as stack:
        own = (
            f"POST {client.base_url.path}item/0 HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
            f"Cookie: {cookie_of(client)}\r\nContent-Length: 90\r\n\r\ndo="
        ).encode()
        for _ in range(10):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", client.base_url.port)))
            peer.sendall(sent or own)
        assert client.get("overview").status_code == 200
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 0
    assert "Traceback" not in said and "Cancel" not in said, said
    assert "There are no new ratings." in said


def test_bytes_that_are_no_request(rated: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Also behind a request whose answer is on its way, where a server has no place for a second one."""
    chunked = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    for request in (b"\0\r\n\r\n", b"GET", chunked + b"zz\r\n", GET + b"\r\n\0\r\n\r\n", b"\x16\x03\x01" * 90):
        for pieces in ([request], [request[:-4], request[-4:]]):
            with connected(rated) as peer:
                with suppress(OSError):  # it may be closed by now
                    for piece in pieces:
                        peer.sendall(piece)
                    peer.shutdown(socket.SHUT_WR)
                while status(peer):
                    pass
    with connected(rated) as peer:
        peer.sendall(chunked)
        assert status(peer) == 403
        peer.sendall(b"zz\r\n\r\n")
        assert gone(peer)
    assert is_served(rated)
    assert [one.getMessage() for one in caplog.records if one.exc_info] == []


# Forms


def test_a_raters_form_is_small(rated: Site) -> None:
    client = client_of(rated)
    body = b"do=save&comment-0=" + b"a" * limits.FORM_BYTES
    sent = client.post("/item/0", content=body)
    assert sent.status_code == 413
    with connected(rated) as peer:
        peer.sendall(form(rated, b"a", 15_000_000))
        assert status(peer) == 413, "it is not read first"


def test_forms_are_taken_apart_beside_the_others(rated: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds up the one thread that answers holds up every rater."""
    where = []
    parse = pages.parse_qsl  # type: ignore[attr-defined]
    monkeypatch.setattr(
        pages,
        "parse_qsl",
        lambda *given, **named: (where.append(threading.current_thread()), parse(*given, **named))[1],
    )
    assert asked(rated, form(rated, b"do=save")) == 303
    assert [thread.name.startswith("AnyIO") for thread in where] == [True]


@pytest.mark.parametrize("body", [b"&" * 100_000, b"a=b&" * 50_000, b"%" * 200_000, b"a=%80", b"=" * 200_000, b"\0"])
def test_forms_that_no_page_sends(rated: Site, body: bytes) -> None:
    assert client_of(rated, raise_server_exceptions=False).post("/item/0", content=body).status_code in (200, 303, 400)
    assert is_served(rated)


def test_a_pair_may_be_long(tmp_path: Path) -> None:
    """What annotators type is as long as their data's, and in every script."""
    data = tmp_path / "data.jsonl"
    data.write_text('{"input": "a", "instructions": ["b"], "outputs": ["c"]}\n')
    with Dataset(data, tmp_path / "out.jsonl") as dataset, site_of(AnnotationPages(dataset).routes) as site:
        sent = client_of(site).post("/document/1/pair/0", data={"shape": "0", "outputs": "港" * 1_000_000})
        assert "Pair 1 saved" in sent.text
        assert client_of(site).post("/undo", content=b"a" * (limits.FORM_BYTES + 1)).status_code == 413


def test_a_path_that_fails_is_told_without_control_sequences(caplog: pytest.LogCaptureFixture) -> None:
    def stumble(_request: object) -> None:
        raise ZeroDivisionError(HOSTILE[:-1])

    def stand(_request: object) -> Response:
        return PlainTextResponse("")

    with site_of([Route("/", stand), Route("/{any}", stumble)]) as site:
        assert client_of(site, raise_server_exceptions=False).get("/%1b[31mred%e2%80%ae").status_code == 500
    assert "ZeroDivisionError" in caplog.text
    assert not set(caplog.text) & set("\0\x1b\u202e\u2066")


# The socket's file


@pytest.mark.parametrize("kind", ["full", "datagrams", "folder", "gone"])
def test_another_socket_lies_there(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s.sock"
    with ExitStack() as stack:
        if kind == "folder":
            path.mkdir()
        elif kind == "gone":
            path.symlink_to(tmp_path / "nothing")
        else:
            kind_of_it = socket.SOCK_DGRAM if kind == "datagrams" else socket.SOCK_STREAM
            other = stack.enter_context(socket.socket(socket.AF_UNIX, kind_of_it))
            other.bind(str(path))
            if kind == "full":
                other.listen(0)
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.connect(str(path))
        with (
            pytest.raises(UsageError, match=r"listens on|Cannot create a socket|not a socket"),
            listening("127.0.0.1", 0, path),
        ):
            pass
        assert path.is_symlink() or path.exists(), "what is not lbx's stays"


# L-Eval's rating pages


@pytest.mark.parametrize("key", ["#" + "9" * 5000, "#9999999", "#-1", "#\u0663", "#1.5", "#", "#\u00b2", "#x"])
def test_a_rating_page_with_such_a_number(tmp_path: Path, key: str) -> None:
    page = {"instructions #0": "q", "outputs #0": "a", "m_pred #0": "b\n", "input": "d", "source": "s"}
    page |= {"evaluation": "human", f"m_pred {key}": "c", f"instructions {key}": "c", f"outputs {key}": "c"}
    (tmp_path / "0_evaled.json").write_text(json.dumps(page))
    with pytest.raises(UsageError, match=r"0_evaled\.json"):
        read_pages(tmp_path, "ann")
