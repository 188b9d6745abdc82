"""Who gets in, who is turned away, and what every answer tells the browser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lbx.base.errors import UsageError
from lbx.web import Site, form_route, listening, page
from lbx.web.pages import HERE
from tests.web.sites import HOSTILE, SHOWN, client_of, site_of

SAVED: list[tuple[str, Mapping[str, str]]] = []


def who(request: Request) -> Response:
    return PlainTextResponse(request.state.person)


def save(request: Request, fields: Mapping[str, str]) -> str:
    SAVED.append((request.state.person, fields))
    return "/"


def refuse(_request: Request) -> Response:
    raise UsageError(f"No {HOSTILE}", fix="Do better.")


def stumble(_request: Request) -> Response:
    raise ZeroDivisionError("secret")


def root(site: Site) -> str:
    """The path that all its pages lie below."""
    return urlsplit(site.url).path


@pytest.fixture
def site() -> Iterator[Site]:
    SAVED.clear()
    routes = [Route("/", who), form_route("/save", save), Route("/refuse", refuse), Route("/stumble", stumble)]
    with site_of(routes) as made:
        yield made


def test_a_link_becomes_a_cookie_that_scripts_cannot_read(site: Site) -> None:
    client = client_of(site, None)
    answer = client.get(site.links["bob"], follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{root(site)}/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert f"Path={root(site)}/;" in cookie
    assert "SameSite=strict" in cookie
    assert cookie.startswith(f"lbx={site.links['bob'].partition('=')[2]};")
    assert client.get("/").text == "bob"


def test_a_link_in_a_mail_lets_in_too(site: Site) -> None:
    """A browser does not send a strict cookie along a redirection that another site began."""
    client = client_of(site, None)
    answer = client.get(site.links["bob"], headers={"sec-fetch-site": "cross-site"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["refresh"]) == (200, f"0; url={root(site)}/")
    assert client.get("/").text == "bob"


def test_the_path_of_the_pages_is_told_to_nobody(site: Site) -> None:
    """Who knows it can have a browser send the cookie to another port of this host."""
    client, known = client_of(site, None), client_of(site)
    for path in ("/", "/refuse", "/x", "/static/lbx.js", "/static/", "/favicon.ico", "/?token=x", root(site)):
        for one in (client, known):
            answer = one.get(f"{site.site_socket.url}{path}", follow_redirects=False)
            assert root(site)[1:] not in answer.text + str(answer.headers)
            assert answer.status_code in (403, 200 if path == "/static/lbx.js" else 404)
    with site_of([]) as other:
        assert root(other) != root(site)
        assert len(root(site)) == 17, "12 bytes in base64"


def test_links_are_long_and_differ(site: Site) -> None:
    tokens = {link.partition("token=")[2] for link in site.links.values()}
    assert len(tokens) == 2
    assert all(len(token) == 43 for token in tokens), "32 bytes in base64"
    with site_of([]) as other:
        assert not tokens & {link.partition("token=")[2] for link in other.links.values()}


@pytest.mark.parametrize("token", ["", "x", "x" * 43, "é", "%00"])
def test_a_wrong_token_is_refused(site: Site, token: str) -> None:
    answer = client_of(site, None).get(f"/?token={token}")
    assert answer.status_code == 403
    assert "This link is not valid" in answer.text
    assert "set-cookie" not in answer.headers


def test_nobody_gets_in_without_a_link(site: Site) -> None:
    client = client_of(site, None)
    for path in ("/", "/save", "/nothing"):
        assert client.get(path).status_code == 403
    assert client.post("/save", data={"a": "b"}).status_code == 403
    assert client.get("/", headers={"cookie": "lbx=x"}).status_code == 403
    static = f"{site.site_socket.url}/static"
    assert client.get(f"{static}/lbx.css").status_code == 200
    assert client.get(f"{static}/../site.py").status_code == 403
    assert client_of(site).get(f"{static}/%2e%2e/site.py").status_code == 404
    assert SAVED == []


def test_another_persons_link_is_refused_in_a_session(site: Site) -> None:
    client = client_of(site, "ann")
    answer = client.get(site.links["bob"])
    assert answer.status_code == 403
    assert "in another browser" in answer.text
    assert client.get("/").text == "ann"
    assert client.get(site.links["ann"]).text == "ann"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_another_host_is_refused(site: Site, host: str) -> None:
    answer = client_of(site).get("/", headers={"host": host})
    assert answer.status_code == 403
    assert "does not listen on this address" in answer.text


@pytest.mark.parametrize("host", ["localhost:{port}", "127.0.0.1:9", "[::1]:9", "LOCALHOST"])
def test_loopback_is_let_in_under_any_port(site: Site, host: str) -> None:
    """A tunnel may end at another port than it begins."""
    assert client_of(site).get("/", headers={"host": host.format(port=site.site_socket.port)}).text == "ann"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://127.0.0.1:1", "file://127.0.0.1", None])
def test_a_form_of_another_page_is_refused(site: Site, origin: str | None) -> None:
    client = client_of(site)
    del client.headers["origin"]
    headers = {} if origin is None else {"origin": origin}
    answer = client.post("/save", data={"a": "b"}, headers=headers)
    assert answer.status_code == 403
    assert "does not come from a page of lbx" in answer.text
    assert SAVED == []


def test_a_form_is_saved_for_whom_it_is(site: Site) -> None:
    answer = client_of(site, "bob").post("/save", data={"a": "b", "empty": "", "c": HOSTILE[:-1]})
    assert answer.text == "bob"
    assert [("bob", {"a": "b", "empty": "", "c": HOSTILE[:-1]})] == SAVED
    sent = client_of(site).post("/save", data={"a": "b"}, headers={"sec-fetch-site": "same-site"})
    assert sent.status_code == 403
    broken = client_of(site).post("/save", content=b"a=\xff", headers={"content-length": "3"})
    assert broken.status_code == 400
    long = client_of(site).post("/save", content=b"a", headers={"content-length": str(1 << 30)})
    assert long.status_code == 413
    # With both headers a server reads on for as long as pieces come.
    endless = client_of(site).post("/save", content=b"a=1", headers={"transfer-encoding": "chunked"})
    assert endless.status_code == 413
    assert len(SAVED) == 1


@pytest.mark.parametrize("path", ["/", "/static/lbx.js", "/refuse", "/nothing", "/stumble", "/?token=x"])
def test_every_answer_has_the_policy(site: Site, path: str) -> None:
    client = client_of(site, raise_server_exceptions=False)
    headers = client.get(f"{site.site_socket.url}{path}" if path.startswith("/static/") else path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "same-origin"
    assert "server" not in headers


def test_errors_are_pages(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    client = client_of(site)
    refused = client.get("/refuse")
    assert refused.status_code == 400
    assert HOSTILE[:10] not in refused.text
    assert "Do better." in refused.text
    assert client.get("/nothing").status_code == 404
    stumbled = client.get("/stumble")
    assert stumbled.status_code == 500
    assert "secret" not in stumbled.text
    assert "Traceback" not in stumbled.text
    assert "ZeroDivisionError" in caplog.text


def test_texts_are_escaped_and_made_visible() -> None:
    text = page("refused.html", cause=HOSTILE, fix=HOSTILE * 2).body.decode()
    escaped = SHOWN.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert text.count(escaped) == 3
    assert not set(text) & set("\0\x1b\u202e\u2066")


def test_no_page_has_a_script_or_style_of_its_own() -> None:
    for path in (HERE / "templates").iterdir():
        text = path.read_text("utf-8").lower()
        assert "style=" not in text, path
        assert "<style" not in text, path
        assert not re.search(r"<[^>]*\son\w+=", text), path
        assert "http" not in text, path
    small = sum(len(path.read_bytes()) for path in (HERE / "static").iterdir())
    assert small < 30_000
    script = (HERE / "static" / "lbx.js").read_text("utf-8")
    for word in ("innerHTML", "eval(", "http:", "https:", "document.write"):
        assert word not in script


def test_others_come_only_if_they_may() -> None:
    with pytest.raises(UsageError, match="Other machines"), listening("0.0.0.0", 0):
        pass
    with listening("0.0.0.0", 0, others=True) as place:
        assert place.answers_to("10.1.2.3:80")
        assert place.answers_to(f"localhost:{place.port}")
        assert not place.answers_to("evil.example")
    with pytest.raises(UsageError, match="no address"), listening("no such host", 0):
        pass


def test_a_taken_port_is_a_sentence() -> None:
    with (
        listening("127.0.0.1", 0) as place,
        pytest.raises(UsageError, match=f"Port {place.port} is already in use"),
        listening("127.0.0.1", place.port),
    ):
        pass


def test_a_socket_file_is_this_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "lbx.sock"
    with listening("127.0.0.1", 0, path) as place:
        assert path.stat().st_mode & 0o077 == 0
        assert f"-L 8765:{path}" in place.tunnel
        with pytest.raises(UsageError, match="listens on"), listening("127.0.0.1", 0, path):
            pass
        left = tmp_path / "left.sock"
        path.rename(left)
    with listening("127.0.0.1", 0, left):
        assert left.is_socket()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a socket"), listening("127.0.0.1", 0, tmp_path / "file"):
        pass
    with pytest.raises(UsageError, match="too long"), listening("127.0.0.1", 0, tmp_path / ("x" * 120)):
        pass
