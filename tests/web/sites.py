"""Sites for tests: in this process, and answered over a real socket in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from starlette.routing import BaseRoute
from starlette.testclient import TestClient

from lbx.web import Site, listening
from lbx.web.serving import make_server

HOSTILE = "</script><script>owned=1</script><b onload=x>&amp;\0\x1b[31m\u202edrawkcab\u2066<!--]]>\ud800"
"""What a model may answer."""
SHOWN = "</script><script>owned=1</script><b onload=x>&amp;\\x00\\x1b[31m\\u202edrawkcab\\u2066<!--]]>\\ud800"


@contextmanager
def site_of(routes: Sequence[BaseRoute], people: Sequence[str] = ("ann", "bob")) -> Iterator[Site]:
    with listening("127.0.0.1", 0) as place:
        yield Site(place, routes, people)


def client_of(site: Site, person: str | None = "ann", **options: object) -> TestClient:
    """A browser that has opened somebody's link."""
    client = TestClient(site.app, base_url=site.url, headers={"origin": site.site_socket.url}, **options)  # type: ignore[arg-type]
    if person:
        assert client.get(site.links[person]).status_code == 200
    return client


@contextmanager
def answered(site: Site) -> Iterator[Site]:
    """Over its socket, for a browser."""
    server = make_server(site)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [site.site_socket.socket]})
    thread.start()
    try:
        yield site
    finally:
        server.should_exit = True
        thread.join(10)
