"""List the files of a hub repository at a revision; the only module that uses huggingface_hub.

The library provides only names, sizes and hashes. ``lbx.bundle.making.fetch`` downloads the contents, because
huggingface_hub 2.4 accepts a corrupt body of the right size and cannot resume a broken download later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lbx.base.errors import FetchError
from lbx.bundle.making.fetch import Download, Retry, TransientError, describe_error, parse_web_address, with_retries

_ENVIRONMENT = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
}
_WRONG_REPO = 'Correct repo or type ("dataset" or "model") in the recipe; set HF_TOKEN for a private one.'


@dataclass(frozen=True, slots=True)
class RepoFile:
    """File in a hub listing, with its size in bytes and the expected hash of its content."""

    path: str
    size: int
    algorithm: str
    digest: str


@dataclass(frozen=True, slots=True)
class RepoSnapshot:
    """Repository at a commit.

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
        endpoint: its address; None means HF_ENDPOINT or the public hub.

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
        """Resolve ``revision`` to a commit and list its files.

        Raises:
            FetchError: the repository or revision does not exist or may not be read, or the hub does not answer.
        """
        import httpx2

        def attempt() -> RepoSnapshot:
            try:
                return self._request_snapshot(repo, kind, revision)
            except (httpx2.HTTPError, OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
                raise self._translate(exc, repo, kind, revision) from exc

        return with_retries(self._retry, f"The {kind} {repo}", attempt)

    def download(self, snapshot: RepoSnapshot, file: RepoFile) -> Download:
        """Create the download of a snapshot's file."""
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

    def _request_snapshot(self, repo: str, kind: str, revision: str) -> RepoSnapshot:
        info = self._api.repo_info(repo, repo_type=kind, revision=revision, timeout=self._retry.read_s)
        entries = self._api.list_repo_tree(info.id, repo_type=kind, revision=info.sha, recursive=True)
        files = tuple(_file(entry) for entry in entries if hasattr(entry, "blob_id"))
        return RepoSnapshot(repo, kind, info.id, info.sha, _licence(info), bool(info.gated), files)

    def _translate(self, exc: Exception, repo: str, kind: str, revision: str) -> Exception:
        """Convert an exception of the library: to ``TransientError`` if another attempt may succeed."""
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


def _file(entry: Any) -> RepoFile:
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
