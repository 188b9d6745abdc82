"""The same pages in Debian's Chromium, beside a colleague's page on another port of this host, which means ill."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from lbx.web import Site
from tests.attacks import attack_parts  # noqa: F401  # makes the rooms' helpers importable
from tests.chromium import Opened, chromium, watched
from tests.web.sites import answered, site_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class Colleague:
    """A server that keeps what it was sent, and answers with what the test likes."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.body = "<p>harmless"
        self.cookies: list[str] = []
        colleague = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                colleague.asked.append(f"{self.requestline}\n{self.headers}")
                self.send_response(200)
                self.send_header("content-type", "text/html")
                for cookie in colleague.cookies:
                    self.send_header("set-cookie", cookie)
                self.end_headers()
                self.wfile.write(colleague.body.encode())

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.place = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def who(request: Request) -> Response:
    return PlainTextResponse(request.state.person)


def hostile(request: Request) -> Response:
    """As if a text of a model's had come through as it is."""
    place = request.query_params["place"]
    return HTMLResponse(
        f"<base href='http://{place}/base/'><script>owned = 1</script><script src='http://{place}/script'></script>"
        f"<script src='/static/lbx.js'></script><p id='here' onclick='owned = 2' style='color: red'>here</p>"
        f"<img src='http://{place}/image'><img src=x onerror='owned = 3'><iframe src='http://{place}/frame'></iframe>"
        f"<link rel='stylesheet' href='http://{place}/style'><style>@import 'http://{place}/import'</style>"
        f"<form action='http://{place}/form' method='post'><button id='send'>send</button></form>"
        f"<object data='http://{place}/object'></object><video src='http://{place}/video'></video>"
    )


@pytest.fixture
def site() -> Iterator[Site]:
    routes = [Route("/", who), Route("/hostile", hostile), Route("/item/0", who)]
    with site_of(routes) as made, answered(made):
        yield made


@pytest.fixture
def colleague() -> Iterator[Colleague]:
    made = Colleague()
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    with watched(browser) as (open_window, _, _):
        yield open_window


def secrets_of(site: Site) -> list[str]:
    people = site.app._people
    return [urlsplit(site.url).path[1:], *(person.token for person in people)]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_another_port_is_sent_nothing(opened: Opened, site: Site, colleague: Colleague, host: str) -> None:
    """Browsers send cookies to every port of a host."""
    page = opened()
    page.goto(site.links["ann"])
    assert page.inner_text("body") == "ann"
    for path in ("/", "/item/0", "/x/", "/?token=x"):
        page.goto(f"http://{host}:{colleague.port}{path}")
        page.goto(f"{site.url}/item/0")
        assert page.inner_text("body") == "ann", "the session is still there"
    page.evaluate(
        "place => fetch(place, {mode: 'no-cors', credentials: 'include'}).catch(() => null)",
        f"http://{colleague.place}",
    )
    assert len(colleague.asked) >= 4
    for secret in secrets_of(site):
        assert secret not in "".join(colleague.asked)
    assert "ookie" not in "".join(colleague.asked)


def test_another_port_sets_cookies_of_the_same_name(opened: Opened, site: Site, colleague: Colleague) -> None:
    """Its own session in place of the rater's, and what takes long to read."""
    colleague.cookies = ["lbx=evil; Path=/", 'a="' + "\\" * 3_000 + '"; Path=/', "lbx=worse; Path=/item"]
    page = opened()
    page.goto(f"http://{colleague.place}/")
    page.goto(site.links["ann"])
    page.goto(f"http://{colleague.place}/")
    page.goto(f"{site.url}/item/0")
    assert page.inner_text("body") == "ann"


@pytest.mark.parametrize("path", ["//{place}/", "/{root}//{place}/", "/{root}/\\{place}/", "/{root}/item/0"])
@pytest.mark.parametrize("clicked", ["", "127.0.0.1", "localhost"])
def test_a_changed_link_leads_elsewhere(
    opened: Opened, site: Site, colleague: Colleague, path: str, clicked: str
) -> None:
    """Typed, and clicked on a page of the same host or of another one, where a header refreshes."""
    link = urlsplit(site.links["ann"])
    path = path.format(place=colleague.place, root=link.path.strip("/"))
    address = f"{site.site_socket.url}{path}?{link.query}"
    page = opened()
    if clicked:
        colleague.body = f"<a href='{address}'>here</a>"
        page.goto(f"http://{clicked}:{colleague.port}/")
        page.click("a")
    else:
        page.goto(address)
    page.wait_for_timeout(300)
    assert urlsplit(page.url).netloc == link.netloc
    assert not any(link.query in asked for asked in colleague.asked)
    page.goto(site.links["ann"])
    assert page.inner_text("body") == "ann"


def test_what_the_policy_lets_a_page_do(opened: Opened, site: Site, colleague: Colleague) -> None:
    page = opened()
    page.goto(site.links["ann"])
    page.goto(f"{site.url}/hostile?place={colleague.place}")
    page.click("#here")
    page.click("#send")
    page.wait_for_timeout(300)
    assert page.evaluate("typeof owned") == "undefined"
    assert page.evaluate("document.baseURI").startswith(site.url)
    assert page.evaluate("getComputedStyle(document.querySelector('#here')).color") == "rgb(0, 0, 0)"
    assert page.evaluate("typeof swap") == "function", "lbx's own script runs"
    assert colleague.asked == []


def test_no_page_is_framed_or_reached_into(opened: Opened, site: Site, colleague: Colleague) -> None:
    page = opened()
    page.goto(site.links["ann"])
    colleague.body = f"<iframe src='{site.url}/'></iframe>"
    page.goto(f"http://{colleague.place}/")
    page.wait_for_timeout(300)
    assert [frame.inner_text("body") == "ann" for frame in page.frames[1:]] == [False]
    with page.expect_popup() as popup:
        page.evaluate("address => { other = open(address) }", f"{site.url}/")
    popup.value.wait_for_load_state()
    assert page.evaluate("(() => { try { return other.document.body.innerText } catch { return '' } })()") == ""
    assert popup.value.evaluate("window.opener") is None
