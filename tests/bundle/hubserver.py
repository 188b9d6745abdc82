"""A hub on loopback: serves folders the way the Hugging Face hub serves repositories, and lies when told to.

    python tests/bundle/hubserver.py --hub ../shared/data/hub --upstream ../shared/data/upstream{,_more} --port 0

prints its address; ``HUB/{datasets,models}/org/name/...`` become repositories at revision "main", and
``UPSTREAM/owner/repo/commit/...`` of several folders is served as one below /upstream, for ``lbx bundle --hub URL
--mirror URL/upstream``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit

BLOCK = 64 * 1024
BRANCHES = ("main", "refs/convert/parquet")
"""All of them have the same files."""


@dataclass
class Faults:
    """What goes wrong, by the end of the path asked for ("data.zip").

    Attributes:
        corrupt: the body has the right size and one wrong byte; the number says how many times.
        truncate: the body ends early and the connection closes; the number says how many times.
        missing: 404 although the tree lists it.
        failing: 500, the number says how many times.
        stall: after half the body nothing more comes, until ``release`` is set.
        renamed: old repository name -> new one, by redirect as the hub does it.
        sizes: the tree claims another size.
        gated: repositories that may not be read.
        guarded: repository -> the one token that may read its files; everybody sees what it lists.
        drop: the connection closes before any answer; the number says how many times.
        etags: another ETag than the content's hash.
        ranges: False ignores Range, as some mirrors do.
        page_size: entries on a page of the tree.
        lfs_from: bytes from which a file is listed with a sha256, as LFS files are.
    """

    corrupt: dict[str, int] = field(default_factory=dict)
    truncate: dict[str, int] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    failing: dict[str, int] = field(default_factory=dict)
    stall: str = ""
    renamed: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    guarded: dict[str, str] = field(default_factory=dict)
    drop: dict[str, int] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    page_size: int = 1000
    lfs_from: int = 1 << 20
    release: threading.Event = field(default_factory=threading.Event)

    def strikes(self, kind: str, path: str) -> bool:
        """Whether this fault happens now; counts it down."""
        left: dict[str, int] = getattr(self, kind)
        for suffix, times in left.items():
            if path.endswith(suffix) and times > 0:
                left[suffix] = times - 1
                return True
        return False


class HubServer(ThreadingHTTPServer):
    """The server, its faults, what was asked (method, path, Range), and the paths that came with a token."""

    daemon_threads = True

    def __init__(self, hub: Path, upstreams: Sequence[Path], faults: Faults, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.hub, self.upstreams, self.faults = hub, upstreams, faults
        self.log: list[tuple[str, str, str]] = []
        self.authorised: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def mirror(self) -> str:
        return f"{self.url}/upstream"

    def fetched(self, suffix: str) -> list[str]:
        """The Range headers of the GETs for a path's end."""
        return [ranged for method, path, ranged in self.log if method == "GET" and path.endswith(suffix)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer
    timeout = 30
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with suppress(ConnectionError):  # a client that was killed
            super().handle()

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *args: object) -> None:
        pass

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.log.append((self.command, path, self.headers.get("Range", "")))
        if "Authorization" in self.headers:
            self.server.authorised.append(path)
        if self.server.faults.strikes("drop", path):
            self.close_connection = True
            return
        if self.server.faults.strikes("failing", path):
            self._error(500, "")
            return
        parts = path.strip("/").split("/")
        if parts[0] == "upstream":
            places = [folder / "/".join(parts[1:]) for folder in self.server.upstreams]
            self._file(next((place for place in places if place.is_file()), places[0]), path, "")
            return
        if parts[0] == "api" and parts[1] in ("datasets", "models"):
            self._api(parts[1], "/".join(parts[2:4]), parts[4], "/".join(parts[5:]))
            return
        kind, rest = (parts[0], parts[1:]) if parts[0] == "datasets" else ("models", parts)
        if len(rest) > 4 and rest[2] == "resolve":
            self._resolve(kind, "/".join(rest[:2]), rest[3], "/".join(rest[4:]))
            return
        self._error(404, "EntryNotFound")
        return

    def _api(self, kind: str, repo: str, verb: str, revision: str) -> None:
        folder = self._repository(kind, repo)
        if folder is None:
            return
        commit = commit_of(folder)
        if revision not in (*BRANCHES, commit):
            self._error(404, "RevisionNotFound")
            return
        if verb == "revision":
            card = folder / ".hub.json"
            told = json.loads(card.read_text()) if card.is_file() else {"cardData": {"license": "mit"}, "gated": False}
            if repo in self.server.faults.guarded:
                told["gated"] = "manual"
            self._json({"_id": "0" * 24, "id": repo, "sha": commit, "private": False, "tags": [], **told})
            return
        self._tree(kind, repo, commit, folder)

    def _tree(self, kind: str, repo: str, commit: str, folder: Path) -> None:
        faults = self.server.faults
        entries = [dict(entry) for entry in tree_of(folder, faults.lfs_from)]
        for entry in entries:
            for suffix, size in faults.sizes.items():
                if entry["path"].endswith(suffix):
                    entry["size"] = size
                    if "lfs" in entry:
                        entry["lfs"] = {**entry["lfs"], "size": size}
        start = int(parse_qs(urlsplit(self.path).query).get("cursor", ["0"])[0])
        page = entries[start : start + faults.page_size]
        link = {}
        if start + faults.page_size < len(entries):
            base = f"{self.server.url}/api/{kind}/{repo}/tree/{commit}?recursive=true"
            link = {"Link": f'<{base}&cursor={start + faults.page_size}>; rel="next"'}
        self._json(page, link)

    def _resolve(self, kind: str, repo: str, revision: str, path: str) -> None:
        folder = self._repository(kind, repo)
        if folder is None:
            return
        if revision not in (*BRANCHES, commit_of(folder)):
            self._error(404, "RevisionNotFound")
            return
        token = self.server.faults.guarded.get(repo, "")
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and given != token:
            self._error(403 if given else 401, "GatedRepo")
            return
        self._file(folder / path, f"/{path}", commit_of(folder))

    def _repository(self, kind: str, repo: str) -> Path | None:
        faults = self.server.faults
        if repo in faults.renamed:
            self.send_response(307)
            self.send_header("Location", self.path.replace(repo, faults.renamed[repo], 1))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        if repo in faults.gated:
            self._error(403, "GatedRepo")
            return None
        folder = self.server.hub / kind / repo
        if not folder.is_dir():
            self._error(401, "RepoNotFound")
            return None
        return folder

    def _file(self, file: Path, path: str, commit: str) -> None:
        if not file.is_file() or any(path.endswith(suffix) for suffix in self.server.faults.missing):
            self._error(404, "EntryNotFound")
            return
        size = file.stat().st_size
        start, status = 0, 200
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and self.server.faults.ranges:
            start, status = int(asked[6:].split("-")[0]), 206
            if start >= size:
                self._error(416, "")
                return
        self.send_response(status)
        self.send_header("Content-Length", str(size - start))
        own = next((etag for suffix, etag in self.server.faults.etags.items() if path.endswith(suffix)), "")
        self.send_header("ETag", f'"{own or _hashes(file, file.stat().st_mtime_ns)[1]}"')
        if commit:
            self.send_header("X-Repo-Commit", commit)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.end_headers()
        if self.command == "GET":
            with file.open("rb") as content:
                content.seek(start)
                self._body(content, size - start, path)

    def _body(self, content: BinaryIO, size: int, path: str) -> None:
        """``size`` bytes, a block at a time: model weights are served, too."""
        faults = self.server.faults
        with suppress(ConnectionError):
            if size and faults.strikes("corrupt", path):
                self.wfile.write(bytes([content.read(1)[0] ^ 1]))
                size -= 1
            half = size // 2
            if faults.strikes("truncate", path):
                self._send(content, half)
                self.close_connection = True
                return
            if faults.stall and path.endswith(faults.stall):
                self._send(content, half)
                self.wfile.flush()
                faults.release.wait()
                size -= half
            self._send(content, size)

    def _send(self, content: BinaryIO, size: int) -> None:
        while size and (block := content.read(min(size, BLOCK))):
            self.wfile.write(block)
            size -= len(block)

    def _json(self, value: object, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


def tree_of(folder: Path, lfs_from: int) -> list[dict]:
    """A repository's files as the hub's tree lists them."""
    entries = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir():
            entries.append(
                {"type": "directory", "oid": hashlib.sha1(name.encode()).hexdigest(), "size": 0, "path": name}
            )
        elif path.name != ".hub.json":
            entries.append(_listed(name, _hashes(path, path.stat().st_mtime_ns), path.stat().st_size, lfs_from))
    return entries


def _listed(name: str, hashes: tuple[str, str], size: int, lfs_from: int) -> dict:
    git, sha256 = hashes
    if size < lfs_from:
        return {"type": "file", "oid": git, "size": size, "path": name}
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
    oid = hashlib.sha1(b"blob %d\0" % len(pointer) + pointer).hexdigest()
    lfs = {"oid": sha256, "size": size, "pointerSize": len(pointer)}
    return {"type": "file", "oid": oid, "size": size, "path": name, "lfs": lfs}


@lru_cache(maxsize=4096)
def _hashes(path: Path, changed: int) -> tuple[str, str]:
    git, sha256 = hashlib.sha1(b"blob %d\0" % path.stat().st_size), hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            git.update(block)
            sha256.update(block)
    return git.hexdigest(), sha256.hexdigest()


def commit_of(folder: Path) -> str:
    """The repository's commit: changes with its files."""
    listing = json.dumps(tree_of(folder, 0), sort_keys=True)
    return hashlib.sha1(listing.encode()).hexdigest()


@contextmanager
def serve(
    hub_root: Path, upstream_roots: Sequence[Path], faults: Faults | None = None, port: int = 0
) -> Iterator[HubServer]:
    """The server, running in a thread."""
    server = HubServer(hub_root, upstream_roots, faults or Faults(), port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.faults.release.set()
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hub", type=Path, required=True)
    parser.add_argument("--upstream", type=Path, nargs="+", required=True)
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    with serve(args.hub, args.upstream, port=args.port) as server:
        print(server.url, flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
