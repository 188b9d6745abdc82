"""``lbx bundle``: recipes to one archive.

Everything is fetched into ``OUT/.NAME.partial`` first, under the hash that was promised. A run that was killed
leaves the folder, and the next one goes on with it; the archive appears under its name only when it is whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lbx.bundle.bag import render_tags
from lbx.bundle.disk import sync_folder
from lbx.bundle.evidence import Evidence
from lbx.bundle.fetch import Fetched, Fetcher, Wanted, read_blocks
from lbx.bundle.formats import names_code, why_refused
from lbx.bundle.hub import Hub
from lbx.bundle.plan import Item, Planned, Planner, refusal
from lbx.bundle.progress import Meter, Progress, silent
from lbx.bundle.recipe import load_recipes
from lbx.bundle.retry import Retry
from lbx.bundle.tar import TarWriter, size_of_tar
from lbx.errors import FetchError, UsageError
from lbx.layout import TAG_MANIFEST


@dataclass(frozen=True)
class CreateResult(Evidence):
    """What ``create`` wrote.

    Attributes:
        archive, sums: NAME.tar, and NAME.SHA256SUMS for ``sha256sum -c``.
        digest: the bundle's digest, as ``lbx verify`` shows it.
        files, bytes: number and total size of the payload files.
        sources: as in bundle.json.
    """

    archive: Path
    sums: Path
    name: str
    digest: str
    files: int
    bytes: int
    sources: Sequence[Mapping[str, Any]]


def create(
    recipes: Sequence[Path],
    out_dir: Path,
    *,
    name: str | None = None,
    hub: str | None = None,
    mirror: str | None = None,
    progress: Progress | None = None,
    retry: Retry | None = None,
) -> CreateResult:
    """Fetch what the recipes list, check it, and write ``out_dir/NAME.tar`` and ``NAME.SHA256SUMS``.

    The archive's bytes depend on the recipes and the fetched contents alone (and SOURCE_DATE_EPOCH).

    Args:
        recipes: TOML files; see ``lbx.bundle.recipe``.
        name: of the bundle; the recipes' own names joined by "+" when None.
        hub: address of a Hugging Face hub instead of the public one (or HF_ENDPOINT).
        mirror: address that stands for scheme and host of every https source: ``mirror`` + the url's path.
        progress: see ``lbx.bundle.progress.Progress``.
        retry: how patient to be with the network.

    Raises:
        UsageError: a recipe is wrong, a local source missing, an unsafe format not allowed, the disk too small.
        FetchError: a source cannot be had, or is not what was promised.
    """
    progress, retry = progress or silent, retry or Retry()
    recipe = load_recipes(recipes, name)
    epoch = _source_date_epoch()
    with _workshop(out_dir, recipe.name) as work, Fetcher(work / "files", retry) as fetcher:
        planned = Planner(Hub(hub, retry), mirror, fetcher, progress).plan(recipe.sources)
        items = [item for entry in planned for item in entry.items]
        _require_space(items, fetcher, out_dir)
        contents = _fetch_all(planned, fetcher, work, progress)
        sources = [_described(entry, contents) for entry in planned]
        tags = render_tags(recipe.name, recipe.description, sources, epoch)
        draft = work / "archive.tar"
        payload = sum(file.size for file in contents.values())
        meter = Meter(progress, "pack", payload)
        archive_sha256 = _write_archive(draft, recipe.name, tags, contents, epoch=epoch, meter=meter)
        archive, sums = _publish(draft, out_dir, recipe.name, archive_sha256)
    digest = hashlib.sha256(tags[TAG_MANIFEST]).hexdigest()
    return CreateResult(archive, sums, recipe.name, digest, len(contents), payload, sources)


def _source_date_epoch() -> int:
    value = os.environ.get("SOURCE_DATE_EPOCH", "0") or "0"
    if not value.isascii() or not value.isdigit() or len(value) > 11:
        raise UsageError(
            f"SOURCE_DATE_EPOCH={value!r} is not a number of seconds since 1970.", fix="Unset or correct it."
        )
    return int(value)


@contextmanager
def _workshop(out_dir: Path, name: str) -> Iterator[Path]:
    """The folder where a bundle is made: locked while in use, kept after a failure, removed after success."""
    work = out_dir / f".{name}.partial"
    try:
        work.mkdir(parents=True, exist_ok=True)
        lock = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as exc:
        raise UsageError(
            f"Nothing can be written to {out_dir}: {exc.strerror}.", fix="Give another folder with -o."
        ) from exc
    try:
        _lock(lock, work)
        try:
            yield work
            shutil.rmtree(work)
        except OSError as exc:
            raise UsageError(f"Writing the bundle failed: {exc}.", fix="Give the same command again to go on.") from exc
    finally:
        os.close(lock)


def _lock(folder: int, work: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise UsageError(
            f"Another `lbx bundle` is writing this bundle right now ({work}).",
            fix="Wait for it, or give another --name.",
        ) from exc
    except OSError:
        return  # a network file system without locks: two runs at once are then the user's own care


def _require_space(items: Sequence[Item], fetcher: Fetcher, out_dir: Path) -> None:
    """Refuse before the first download when the files and the archive made of them will not fit.

    Raises:
        UsageError: with what is needed and what is there, in bytes.
    """
    missing = sum(
        max((item.size or 0) - fetcher.kept(item.origin), 0) for item in items if isinstance(item.origin, Wanted)
    )
    archive = size_of_tar((item.path, item.size or 0) for item in items)
    tags = sum(4 * len(item.path) + 400 for item in items)
    free = shutil.disk_usage(out_dir).free
    if missing + archive + tags > free:
        raise UsageError(
            f"The disk of {out_dir} is too small: {missing:,} bytes are to be fetched and the archive takes "
            f"{archive + tags:,}, but {free:,} are free.",
            fix="Free some space, or give a folder on a larger disk with -o.",
        )


def _fetch_all(planned: Sequence[Planned], fetcher: Fetcher, work: Path, progress: Progress) -> dict[str, Fetched]:
    """Every payload file by its path in the bag. Small ones first: a refusal then costs little."""
    jobs = sorted(
        ((entry, item) for entry in planned for item in entry.items), key=lambda job: (job[1].size or 0, job[1].path)
    )
    meter = Meter(progress, "fetch", sum(item.size or 0 for _, item in jobs))
    contents: dict[str, Fetched] = {}
    for entry, item in jobs:
        file = _fetch_one(item, fetcher, work, partial(meter.at, item.name))
        if names_code(item.name, file.path) and not entry.allows(item):
            raise refusal(entry.source, item, "a configuration that names code to run (auto_map)")
        contents[item.path] = file
        meter.finish(item.name, file.size)
    return contents


def _fetch_one(item: Item, fetcher: Fetcher, work: Path, report: Callable[[int], None]) -> Fetched:
    if isinstance(item.origin, Wanted):
        return fetcher.fetch(item.origin, report)
    if isinstance(item.origin, Fetched):
        return item.origin
    digest = hashlib.sha256(item.origin).hexdigest()
    path = work / f"made-{digest}"
    path.write_bytes(item.origin)
    return Fetched(path, len(item.origin), digest)


def _described(planned: Planned, contents: Mapping[str, Fetched]) -> dict[str, Any]:
    """A source as bundle.json gives it: what was asked, what it resolved to, its files, what was let through."""
    files = [
        {"path": path, "size": contents[path].size, "sha256": contents[path].sha256}
        for path in sorted(item.path for item in planned.items)
    ]
    unsafe = [
        item.path for item in planned.items if why_refused(item.name) or names_code(item.name, contents[item.path].path)
    ]
    return {**planned.record, "allowed": sorted(unsafe), "files": files}


def _write_archive(
    draft: Path, top: str, tags: Mapping[str, bytes], contents: Mapping[str, Fetched], *, epoch: int, meter: Meter
) -> str:
    """The tar, tag files first, on disk for good; its SHA-256."""
    with draft.open("wb") as out:
        tar = TarWriter(out, epoch)
        for path, content in sorted(tags.items()):
            tar.add(f"{top}/{path}", len(content), [content])
        for path, file in sorted(contents.items()):
            try:
                tar.add(f"{top}/{path}", file.size, _unchanged(file, partial(meter.at, path)))
            except ValueError as exc:
                raise _changed(file) from exc
            meter.finish(path, file.size)
        sha256 = tar.close()
        out.flush()
        os.fsync(out.fileno())
    return sha256


def _unchanged(file: Fetched, report: Callable[[int], None]) -> Iterator[bytes]:
    """A file's blocks; raises where they are not those that the manifest was made of."""
    digest = hashlib.sha256()
    count = 0
    for block in read_blocks(file.path):
        digest.update(block)
        yield block
        count += len(block)
        report(count)
    if digest.hexdigest() != file.sha256:
        raise _changed(file)


def _changed(file: Fetched) -> FetchError:
    return FetchError(
        f"{file.path} changed while it was being packed.", fix="Leave it alone and give the command again."
    )


def _publish(draft: Path, out_dir: Path, name: str, sha256: str) -> tuple[Path, Path]:
    """Put archive and sums in place. The old sums go first: a kill in between must leave no wrong ones."""
    archive, sums = out_dir / f"{name}.tar", out_dir / f"{name}.SHA256SUMS"
    sums.unlink(missing_ok=True)
    draft.replace(archive)
    listing = draft.with_name("sums")
    listing.write_text(f"{sha256}  {archive.name}\n", "utf-8")
    listing.replace(sums)
    sync_folder(out_dir)
    return archive, sums
