"""Listing and downloading of files, with resumption and checked hashes.

The store names each complete file by its expected hash, and an incomplete file by the same hash and ``.part``. A later
attempt or run resumes an incomplete file with a Range request, if the server still reports the same ETag and size.

The files of a hub repository at a revision are listed by huggingface_hub, which no other module uses. It provides only
names, sizes and hashes. The contents are downloaded here, because huggingface_hub 2.4 accepts a corrupt body of the
right size and cannot resume a broken download later.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lbx.base.errors import FetchError, UsageError
from lbx.base.inputs import SMALL, read_input
from lbx.base.outputs import open_or_create, write_file
from lbx.bundle.disk import read_blocks

if TYPE_CHECKING:
    import httpx2


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retry:
    """Retry policy and timeouts of a download.

    Attributes:
        tries: maximum of consecutive attempts without progress; an attempt that resumed a broken download resets the
            count.
        delay_s: seconds before the second attempt; doubled each time, up to ``max_delay_s``.
        connect_s: timeout for a connection, seconds.
        read_s: timeout for the next bytes, seconds.
    """

    tries: int = 5
    delay_s: float = 1.0
    max_delay_s: float = 30.0
    connect_s: float = 15.0
    read_s: float = 60.0

    def __post_init__(self) -> None:
        if self.tries < 1 or min(self.delay_s, self.max_delay_s) < 0 or min(self.connect_s, self.read_s) <= 0:
            raise ValueError(f"invalid retry settings: {self}")


class TransientError(Exception):
    """Failure of a download attempt that may succeed when repeated.

    Args:
        cause: a clause for the message, e.g. "the connection broke".
        wait_s: delay requested by the server, seconds.
        has_progressed: whether the attempt resumed a broken download and got further, so that the next can resume, too.
    """

    def __init__(self, cause: str, *, wait_s: float = 0.0, has_progressed: bool = False) -> None:
        super().__init__(cause)
        self.wait_s = wait_s
        self.has_progressed = has_progressed


def with_retries(retry: Retry, what: str, attempt: Callable[[], T]) -> T:
    """Call ``attempt``, and repeat the call while it raises ``TransientError``.

    Args:
        what: name of the download in messages.

    Raises:
        FetchError: ``retry.tries`` consecutive attempts failed.
    """
    failed = 0
    while True:
        try:
            return attempt()
        except TransientError as exc:
            failed = 1 if exc.has_progressed else failed + 1
            if failed >= retry.tries:
                raise FetchError(
                    f"{what} could not be downloaded in {failed} attempts: {exc}.",
                    fix="Check the network and run the same command again; it continues from the downloaded parts.",
                ) from exc
            time.sleep(max(min(retry.delay_s * 2 ** (failed - 1), retry.max_delay_s), min(exc.wait_s, 120.0)))


_MISMATCHES = 2


@dataclass(frozen=True, slots=True)
class Download:
    """File to download, with the expected hash.

    Attributes:
        label: name in messages, e.g. "data.zip of dataset THUDM/LongBench".
        algorithm: "sha256", or "git" for a git blob's sha1.
        digest: expected hash, hex.
        size: bytes, or None if unknown before the download.
        headers: request headers, sent only to the host of ``url``.
    """

    label: str
    url: str
    algorithm: str
    digest: str
    size: int | None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LocalFile:
    """Verified local file: path, size in bytes and SHA-256 in hex."""

    path: Path
    size: int
    sha256: str


class Fetcher:
    """Downloader that keeps files, named by their hash, in the folder ``store``, created if missing."""

    def __init__(self, store: Path, retry: Retry) -> None:
        import httpx2

        self._store = store
        self.retry = retry
        self._restarted: set[str] = set()
        self._client = httpx2.Client(
            verify=_certificates(),
            follow_redirects=True,
            timeout=httpx2.Timeout(retry.read_s, connect=retry.connect_s),
            headers={"Accept-Encoding": "identity", "User-Agent": "lbx"},
        )
        store.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def size(self, download: Download) -> int | None:
        """Ask the server for a file's size in bytes, or return None if the server reports no size.

        Raises:
            FetchError: the server does not offer the file, or cannot be reached.
        """

        def attempt() -> int | None:
            with _translate_errors(download, progressed=lambda: False):
                response = self._client.head(download.url, headers=dict(download.headers))
            if response.status_code in (405, 501):
                return None
            _check_status(response, download)
            length = response.headers.get("Content-Length", "")
            return int(length) if length.isdigit() and "Content-Encoding" not in response.headers else None

        return with_retries(self.retry, download.label, attempt)

    def denied_status(self, download: Download) -> int:
        """Ask the server for access to a file, and return 401 or 403 if denied, or 0 for any other answer."""

        def attempt() -> int:
            with _translate_errors(download, progressed=lambda: False):
                # A redirect to a file store means that access was granted; the store may not support HEAD.
                response = self._client.head(download.url, headers=dict(download.headers), follow_redirects=False)
            status = response.status_code
            return status if status in (401, 403) else 0

        return with_retries(self.retry, download.label, attempt)

    def stored_bytes(self, download: Download) -> int:
        """Number of bytes of a file that earlier runs have left in the store."""
        for path in (self._store_path(download), self._store_path(download, ".part")):
            if path.exists():
                return path.stat().st_size
        return 0

    def fetch(self, download: Download, report: Callable[[int], None]) -> LocalFile:
        """Download a file, or take it from the store and hash it again.

        Args:
            report: called with the number of bytes available locally.

        Raises:
            FetchError: the download fails, or the hash differs from the expected one; names the file and both hashes.
        """
        final, part = self._store_path(download), self._store_path(download, ".part")
        if final.exists():
            digests = _Digests(download, final.stat().st_size)
            digests.read(final, report)
            if digests.is_match:
                return LocalFile(final, digests.count, digests.sha256)
            final.unlink()
        mismatches = 0

        def attempt() -> LocalFile:
            nonlocal mismatches
            digests = self._stream(download, part, report)
            if not digests.is_match:
                part.unlink()
                mismatches += 1
                problem = f"it has {download.algorithm} {digests.digest} instead of {download.digest}"
                if mismatches < _MISMATCHES:
                    raise TransientError(problem)
                raise FetchError(
                    f"{download.label} has the wrong hash: expected {download.algorithm} {download.digest}, got "
                    f"{digests.digest} ({digests.count:,} bytes) from {download.url}, {mismatches} times.",
                    fix="Either a proxy or mirror alters the file, or its source has changed. "
                    "Do not use the file; try another network or mirror.",
                )
            part.replace(final)
            self._store_path(download, ".etag").unlink(missing_ok=True)
            return LocalFile(final, digests.count, digests.sha256)

        return with_retries(self.retry, download.label, attempt)

    def _stream(self, download: Download, part: Path, report: Callable[[int], None]) -> _Digests:
        """Download the rest of the partial file ``part``, and return the hashes of the whole file."""
        digests = _Digests(download, download.size or 0)
        if part.exists() and not 0 < part.stat().st_size <= (download.size or 0):
            part.unlink()
        if part.exists():
            digests.read(part, report)
        if digests.count == download.size:
            os.close(open_or_create(part, os.O_WRONLY))  # creates an empty file if the size is 0
            return digests
        start = digests.count
        headers = {**download.headers, **({"Range": f"bytes={start}-"} if start else {})}
        with (
            _translate_errors(download, progressed=lambda: 0 < start < digests.count),
            self._client.stream("GET", download.url, headers=headers) as response,
        ):
            if response.status_code == 416:
                part.unlink(missing_ok=True)
                raise TransientError("the server has fewer bytes than expected")
            _check_status(response, download)
            if start and not (
                response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
            ):
                start, digests = 0, _Digests(download, download.size or 0)
            self._check_same(download, part, response, start)
            with os.fdopen(open_or_create(part, os.O_WRONLY | (os.O_APPEND if start else os.O_TRUNC)), "wb") as out:
                for block in response.iter_bytes():  # no fixed size: a break would lose a partial block
                    out.write(block)
                    digests.update(block)
                    if download.size is not None and digests.count > download.size:
                        break
                    report(digests.count)
        if download.size is not None and digests.count > download.size:
            part.unlink()
            raise TransientError(f"it is longer than the expected {download.size:,} bytes")
        if download.size is not None and digests.count < download.size:
            raise TransientError(
                f"it ended after {digests.count:,} of {download.size:,} bytes", has_progressed=0 < start < digests.count
            )
        return digests

    def _check_same(self, download: Download, part: Path, response: httpx2.Response, start: int) -> None:
        """Compare a response's size and ETag with the expected or partial file, before gigabytes are downloaded."""
        length, etag = response.headers.get("Content-Length", ""), response.headers.get("ETag", "")
        total = start + int(length) if length.isdigit() and "Content-Encoding" not in response.headers else None
        if None not in (download.size, total) and total != download.size:
            part.unlink(missing_ok=True)
            raise TransientError(f"the server has {total:,} bytes instead of the expected {download.size:,}")
        etag_file = self._store_path(download, ".etag")
        if not start:
            write_file(etag_file, etag)
            return
        stored_etag = read_input(etag_file, SMALL).decode("utf-8", "replace") if etag_file.exists() else ""
        # Servers that share a name may each have different ETags; the second time, the final hash must suffice.
        if etag and stored_etag and etag != stored_etag and download.digest not in self._restarted:
            self._restarted.add(download.digest)
            part.unlink()
            raise TransientError("the file on the server changed during the download (its ETag differs)")

    def _store_path(self, download: Download, suffix: str = "") -> Path:
        return self._store / f"{download.algorithm}-{download.digest}{suffix}"


@cache
def _certificates() -> ssl.SSLContext:
    """Load the trusted certificates, cached because loading takes a tenth of a second."""
    import httpx2

    return httpx2.create_ssl_context()


class _Digests:
    """Running SHA-256 of a file, and running git blob sha1 if that is the expected hash."""

    def __init__(self, download: Download, size: int) -> None:
        self._download = download
        self._sha256 = hashlib.sha256()
        # Not a signature: git names its blobs by sha1, and the hub has no stronger hash for small files.
        self._git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False) if download.algorithm == "git" else None
        self.count = 0

    def update(self, block: bytes) -> None:
        self._sha256.update(block)
        if self._git is not None:
            self._git.update(block)
        self.count += len(block)

    def read(self, path: Path, report: Callable[[int], None]) -> None:
        for block in read_blocks(path):
            self.update(block)
            report(self.count)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    @property
    def digest(self) -> str:
        return self._git.hexdigest() if self._git is not None else self.sha256

    @property
    def is_match(self) -> bool:
        return self.digest == self._download.digest and self._download.size in (None, self.count)


@contextmanager
def _translate_errors(download: Download, progressed: Callable[[], bool]) -> Iterator[None]:
    """Convert network exceptions to ``TransientError`` (transient) or ``FetchError`` (permanent)."""
    import httpx2

    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL) as exc:
        if isinstance(exc, httpx2.TransportError) and not isinstance(exc, httpx2.UnsupportedProtocol):
            raise TransientError(describe_error(exc), has_progressed=progressed()) from exc
        raise FetchError(
            f"{download.label} cannot be downloaded from {download.url}: {exc}.",
            fix="Correct the address in the recipe, or the mirror's (--hub, --mirror).",
        ) from exc
    except OSError as exc:
        raise FetchError(
            f"{download.label} cannot be stored: {exc}.", fix="Free some space, or choose another folder with -o."
        ) from exc


def describe_error(exc: Exception) -> str:
    """Format a network exception as a clause, without a full stop. Exceptions without text become their type's name."""
    text = str(exc).rstrip(".")
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def parse_web_address(url: str, option: str) -> str:
    """Parse an address from an option, without the final slash. Raises UsageError if it is not http(s)."""
    if not url.lower().startswith(("http://", "https://")):
        raise UsageError(
            f"{option} {url} is not an http or https address.",
            fix="Serve the mirror over HTTP; docs/bundling.md lists the paths that it needs.",
        )
    return url.rstrip("/")


def _check_status(response: httpx2.Response, download: Download) -> None:
    status = response.status_code
    if status in (200, 206):
        return
    if status in (408, 425, 429) or status >= 500:
        wait = 0.0
        with suppress(ValueError):
            wait = float(response.headers.get("Retry-After", "0"))
        raise TransientError(f"the server answered {status} for {download.url}", wait_s=wait)
    if status in (401, 403):
        raise FetchError(
            f"Access to {download.label} was denied: {download.url} answered {status}.",
            fix="Accept its licence on the source's page, and set HF_TOKEN to a token with read access.",
        )
    if status in (404, 410):
        raise FetchError(
            f"{download.label} does not exist: {download.url} answered {status}.",
            fix="Correct the recipe or the mirror's address.",
        )
    raise FetchError(
        f"{download.label} cannot be downloaded: {download.url} answered {status}.",
        fix="Open the address in a browser to see what it needs, or use a mirror (--hub, --mirror).",
    )


_ENVIRONMENT = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
}
_WRONG_REPO = 'Correct repo or type ("dataset" or "model") in the recipe; set HF_TOKEN for a private one.'


@dataclass(frozen=True, slots=True)
class RepoFile:
    """File of a hub repository: path, size in bytes and expected hash of the content."""

    path: str
    size: int
    algorithm: str
    digest: str


@dataclass(frozen=True, slots=True)
class RepoSnapshot:
    """Hub repository at a commit.

    Attributes:
        repo, type: as requested.
        resolved_repo: current name; differs from ``repo`` if the repository has moved.
        licence: licence stated on the hub, or "".
        gated: whether readers must first accept conditions.
    """

    repo: str
    type: str
    resolved_repo: str
    commit: str
    licence: str
    gated: bool
    files: tuple[RepoFile, ...]


class Hub:
    """Client of a Hugging Face hub.

    Args:
        endpoint: address of the hub; None means HF_ENDPOINT or the public hub.

    Raises:
        UsageError: the address is not http(s).
    """

    def __init__(self, endpoint: str | None, retry: Retry) -> None:
        self._endpoint = parse_web_address(endpoint, "--hub") if endpoint else None
        self._retry = retry

    @cached_property
    def _library(self) -> Any:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)  # read once, at import
        import huggingface_hub
        import huggingface_hub.errors
        import huggingface_hub.utils

        huggingface_hub.utils.logging.set_verbosity_error()
        return huggingface_hub

    @cached_property
    def _api(self) -> Any:
        return self._library.HfApi(endpoint=self._endpoint)

    @cached_property
    def _headers(self) -> Mapping[str, str]:
        headers: dict[str, str] = self._library.utils.build_hf_headers(library_name="lbx")
        return headers

    def snapshot(self, repo: str, kind: str, revision: str) -> RepoSnapshot:
        """Resolve ``revision`` of a repository to a commit, and list the files.

        Raises:
            FetchError: the repository or revision does not exist or may not be read, or the hub does not answer.
        """
        import httpx2

        def attempt() -> RepoSnapshot:
            try:
                info = self._api.repo_info(repo, repo_type=kind, revision=revision, timeout=self._retry.read_s)
                entries = self._api.list_repo_tree(info.id, repo_type=kind, revision=info.sha, recursive=True)
                files = tuple(_repo_file(entry) for entry in entries if hasattr(entry, "blob_id"))
                return RepoSnapshot(repo, kind, info.id, info.sha, _licence(info), bool(info.gated), files)
            except (httpx2.HTTPError, OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
                raise self._translate(exc, repo, kind, revision) from exc

        return with_retries(self._retry, f"The {kind} {repo}", attempt)

    def download(self, snapshot: RepoSnapshot, file: RepoFile) -> Download:
        """Create the download of a file in a snapshot."""
        url = self._library.hf_hub_url(
            snapshot.resolved_repo,
            file.path,
            repo_type=snapshot.type,
            revision=snapshot.commit,
            endpoint=self._api.endpoint,
        )
        label = f"{file.path} of the {snapshot.type} {snapshot.repo}"
        return Download(label, url, file.algorithm, file.digest, file.size, self._headers)

    def gated_error(self, repo: str, kind: str, licence: str = "") -> FetchError:
        """Create the error for a gated repository, with instructions to gain access."""
        page = f"{self._api.endpoint}/{'datasets/' if kind == 'dataset' else ''}{repo}"
        has_token = any(name.lower() == "authorization" for name in self._headers)
        why = "the current token has no access" if has_token else "no token is set"
        stated = f" (licence: {licence})" if licence else ""
        return FetchError(
            f"The {kind} {repo} is gated{stated}: readers must accept its conditions, and {why}.",
            fix=f"Accept them at {page}, and set HF_TOKEN to a token of that account with read access.",
            command="HF_TOKEN=hf_YOUR_TOKEN lbx bundle RECIPE... -o DIR",
        )

    def _translate(self, exc: Exception, repo: str, kind: str, revision: str) -> Exception:
        """Convert an exception of huggingface_hub, to ``TransientError`` if another attempt may succeed."""
        import httpx2

        errors, endpoint = self._library.errors, self._api.endpoint
        if isinstance(exc, errors.GatedRepoError):
            return self.gated_error(repo, kind)
        refusals = (
            (errors.RevisionNotFoundError, f"has no revision {revision}", "Correct the recipe's revision."),
            (errors.RepositoryNotFoundError, f"does not exist at {endpoint}, or is private", _WRONG_REPO),
            (errors.OfflineModeIsEnabled, "cannot be downloaded: HF_HUB_OFFLINE is set", "Unset it."),
        )
        for refused, cause, fix in refusals:
            if isinstance(exc, refused):
                return FetchError(f"The {kind} {repo} {cause}.", fix=fix)
        if isinstance(exc, errors.HfHubHTTPError) and exc.response is not None:
            status = exc.response.status_code
            if status == 429 or status >= 500:
                return TransientError(f"{endpoint} answered {status}")
            fix = "Check HF_TOKEN." if status in (401, 403) else ""
            return FetchError(f"The {kind} {repo} cannot be read: {endpoint} answered {status}.", fix=fix)
        if isinstance(exc, httpx2.TransportError) and not isinstance(exc, httpx2.UnsupportedProtocol):
            return TransientError(f"{endpoint} does not answer ({describe_error(exc)})")
        return FetchError(
            f"{endpoint} did not answer like a Hugging Face hub to a request for the {kind} {repo}: "
            f"{describe_error(exc)}.",
            fix="Check the hub's address (--hub or HF_ENDPOINT), and that no login page intercepts requests to it.",
        )


def _repo_file(entry: Any) -> RepoFile:
    if entry.lfs is not None:
        return RepoFile(entry.path, entry.lfs.size, "sha256", entry.lfs.sha256)
    return RepoFile(entry.path, entry.size, "git", entry.blob_id)


def _licence(info: Any) -> str:
    card = info.card_data.to_dict() if info.card_data is not None else {}
    licence = card.get("license")
    if isinstance(licence, list):
        return ", ".join(map(str, licence))
    tags = [tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")]
    return str(licence) if licence else ", ".join(tags)
