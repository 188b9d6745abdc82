"""Any request at all: an answer below 500, or none; and never a traceback."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lbx.web
from lbx.exchange.annotation.dataset import Dataset
from lbx.opinions.journal import Journal, journal_of
from lbx.opinions.rating_site import RatingPages
from lbx.web import Documents, Site, limits
from lbx.web.annotating import AnnotationPages
from lbx.web.browsing import BrowsingPages
from tests.opinions.rated_file import answers_file, book_of
from tests.web.browsed_file import browsed_file
from tests.web.sites import answered, client_of, site_of

Headers = Sequence[tuple[bytes, bytes]]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Site, Headers]]]:
    """Pages of all three kinds, and the headers of somebody who has opened the link."""
    folder = tmp_path_factory.mktemp("sites")
    (folder / "data.jsonl").write_text('{"input": "a", "instructions": ["b"], "outputs": ["c"]}\n')
    with ExitStack() as stack:
        enter = stack.enter_context
        path = answers_file(folder / "r.duckdb")
        pages = RatingPages(book_of(path, enter(Journal(journal_of(path))), ("you",)), Documents({}.get))
        dataset = enter(Dataset(folder / "data.jsonl", folder / "out.jsonl"))
        kinds = (pages, AnnotationPages(dataset, 1), BrowsingPages(browsed_file(folder / "b.duckdb")))
        made = [enter(site_of(kind.routes, ["you"])) for kind in kinds]
        opened = [(site, _headers(site)) for site in made]
        for site, own in opened:
            assert _asked(site, "GET", urlsplit(site.url).path + "/", b"", own) in (200, 303)
        yield opened


def _headers(site: Site) -> Headers:
    client = client_of(site, "you")
    cookie = "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar)
    return ((b"host", urlsplit(site.url).netloc.encode()), (b"origin", site.site_socket.url.encode()),
            (b"cookie", cookie.encode()))  # fmt: skip


def _asked(site: Site, method: str, path: str, query: bytes, headers: Headers, body: bytes = b"") -> int:
    """The status of what the site answers to this, as the server would hand it over."""
    statuses = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http", "method": method, "path": path, "raw_path": quote(path).encode(), "query_string": query,
        "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 1), "client": None,
        "root_path": "", "state": {},
    }  # fmt: skip
    asyncio.run(site.app(scope, receive, send))
    (status,) = statuses
    return int(status)


LATIN = st.binary(max_size=60)
NAMES = st.sampled_from(
    [b"host", b"origin", b"cookie", b"content-length", b"transfer-encoding", b"sec-fetch-site", b"x"]
)
COOKIES = st.lists(st.sampled_from([b"lbx", b"=", b";", b'"', b"\\", b" ", b"\xff", b"a"]), max_size=40).map(b"".join)
ORIGINS = st.text("htp:/[]@.%#?\u2100 1a", max_size=20).map(lambda text: text.encode("latin-1", "replace"))
PIECES = ["/", "//", "\\", "item", "document", "pair", "documents", "find", "answer", "question", "progress",
          "state", "static", "overview", "undo",
          "..", "0", "1", "9" * 15, "9" * 4400, "\0", "\x1b", "\u202e", "é", "%", "?", "[", "]", "@", "x" * 300,
          ]  # fmt: skip
PATHS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.sampled_from(
    [f"/item/{number}" for number in ("0", "3", "9" * 15, "9" * 16, "9" * 4400)]
    + [f"/document/{number}" for number in ("0", "1", "2", "9" * 15, "9" * 4400)]
    + [
        "/answer",
        "/question",
        "/progress",
        "/state",
        "/overview",
        "/documents/1/find",
        "/documents/\0/find",
        "/static/\0",
        f"/static/{'x' * 300}",
        "/",
    ]
)
NUMBERS = st.sampled_from(["9" * 4400, "9" * 15, "-1", "0", "\u0663", "nan", "inf", "1e999", "²", "", "\0", "\ud800"])
QUERIES = st.dictionaries(
    st.sampled_from(
        [
            "q",
            "at",
            "from",
            "run",
            "benchmark",
            "task",
            "sample",
            "iteration",
            "against",
            "mark",
            "least",
            "most",
            "judges",
            "sort",
            "list-run",
            "list-q",
            "list-sort",
            "list-least",
            "show",
            "new",
            "token",
        ]
    ),
    NUMBERS
    | st.text(max_size=20)
    | st.sampled_from(["prompt", "any", "failed", "one", "longbench", "qasper", "s0", "-score", "run", "%", "'; --"]),
    max_size=4,
).map(lambda asked: "&".join(f"{k}={quote(v, errors='surrogatepass')}" for k, v in asked.items()).encode())


@given(
    st.lists(st.tuples(NAMES, LATIN | COOKIES | ORIGINS), max_size=6),
    st.sampled_from(["GET", "POST", "HEAD", "PUT"]),
    st.booleans(),
)
def test_any_headers(sites: list[tuple[Site, Headers]], headers: Headers, method: str, linked: bool) -> None:
    for site, own in sites:
        held = [pair for pair in own if pair[0] not in dict(headers)] if linked else []
        for path in ("/", urlsplit(site.url).path + "/item/0"):
            assert _asked(site, method, path, b"", [*headers, *held]) < 500


@given(PATHS, QUERIES | LATIN, st.booleans())
def test_any_address(sites: list[tuple[Site, Headers]], path: str, query: bytes, inside: bool) -> None:
    for site, own in sites:
        root = urlsplit(site.url).path if inside else ""
        assert _asked(site, "GET", root + path, query, own) < 500


@given(
    st.sampled_from(["/item/0", "/item/1", "/document/1/pair/0", "/document/1/pair/7", "/undo", "/write"]),
    st.dictionaries(
        st.sampled_from(["do", "shape", "number", "outputs", "instructions", "comment-0", "comment-9"]),
        NUMBERS
        | st.sampled_from(["save", "rate-0-1", "rate-0-999999", "rate-999-0", "skip", "undo", "back", "remove"]),
    ).map(lambda fields: "&".join(f"{k}={quote(v, errors='surrogatepass')}" for k, v in fields.items()).encode())
    | LATIN,
)
def test_any_form(sites: list[tuple[Site, Headers]], path: str, body: bytes) -> None:
    for site, own in sites:
        headers = [*own, (b"content-length", str(len(body)).encode())]
        assert _asked(site, "POST", urlsplit(site.url).path + path, b"", headers, body) < 500


@pytest.fixture(scope="module")
def listening(sites: list[tuple[Site, Headers]]) -> Iterator[Site]:
    with answered(sites[0][0]) as site:
        yield site


@given(
    st.lists(
        st.sampled_from(
            [b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\n", b"Host: localhost\r\n", b"\r\n", b"Content-Length: 3\r\n",
             b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n", b"abc", b"zz\r\n", b"0\r\n\r\n", b"\0", b"\r",
             b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"Upgrade: websocket\r\nConnection: upgrade\r\n",
             b"GET http://[ HTTP/1.1\r\n", b"GET * HTTP/1.0\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01"]
        ) | LATIN,
        max_size=12,
    ),
    st.booleans(),
)  # fmt: skip
def test_any_bytes(listening: Site, pieces: list[bytes], at_once: bool) -> None:
    """On the socket: whatever comes, each answer is below 500, and the terminal is told nothing."""
    told: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = told.append  # type: ignore[method-assign]
    names = ("asyncio", "uvicorn.error", "lbx.web")
    for name in names:
        logging.getLogger(name).addHandler(handler)
    said = b""
    with socket.create_connection(("127.0.0.1", listening.site_socket.port), timeout=20) as peer:
        try:
            for piece in [b"".join(pieces)] if at_once else pieces:
                peer.sendall(piece)
            peer.shutdown(socket.SHUT_WR)
            while more := peer.recv(1 << 16):
                said += more
        except (ConnectionError, OSError) as error:
            assert not isinstance(error, TimeoutError)
    for name in names:
        logging.getLogger(name).removeHandler(handler)
    assert [one.getMessage() for one in told if one.levelno >= logging.ERROR] == []
    assert not re.search(rb"HTTP/1\.1 5", said)


def test_answers_wait_for_no_timer(sites: list[tuple[Site, Headers]]) -> None:
    """Nagle's delay held each answer on a kept connection until the browser's system acknowledged the one before."""
    site = sites[1][0]
    with site.site_socket.socket.dup() as listener, socket.create_connection(listener.getsockname()):
        assert listener.proto == socket.IPPROTO_TCP, "without it asyncio does not set TCP_NODELAY"


def test_bodies_and_cookies_are_read_in_one_place() -> None:
    """Where their limits are."""
    for path in Path(lbx.web.__file__).parent.glob("*.py"):
        text = path.read_text("utf-8")
        assert not re.search(r"\.cookies\b|http\.cookies|\.form\(|\.stream\(|\.json\(\)|int\(request", text), path
        assert len(re.findall(r"\.body\(\)", text)) == (path.name == "pages.py"), path
        assert not re.search(r"(?<!\w)(\d+ << \d+|\d_\d{3})", text) or path.name in ("limits.py", "documents.py"), path


def test_the_limits_have_an_order() -> None:
    assert limits.FORM_BYTES < limits.PAIR_BYTES
    assert 9 * limits.SEARCH_CHARACTERS * 2 < limits.HEADER_BYTES, "a search in the address and in the Referer"
