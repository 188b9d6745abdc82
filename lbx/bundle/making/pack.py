"""Packing of an archive from recipes (``lbx bundle``).

All sources are first downloaded to ``OUT/.NAME.partial``, under their expected hashes. A killed run leaves this folder
for the next run to continue from; the archive gets its final name only when it is complete. A downloaded byte is
written twice (download, archive) and read once in between; a local byte is read twice and written once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

from lbx.base.bundle_folder import SBOM, TAG_MANIFEST
from lbx.base.errors import FetchError, UsageError
from lbx.base.inputs import open_input
from lbx.base.outputs import open_folder, write_file
from lbx.base.processes import try_lock
from lbx.bundle import compression
from lbx.bundle.disk import BackgroundSha256, ByteMeter, Progress, read_blocks, silent
from lbx.bundle.making.delta import BaseBundle, BaseFile, read_base
from lbx.bundle.making.fetch import Download, Fetcher, Hub, LocalFile, Retry
from lbx.bundle.making.file_plan import PlannedFile, Planner, SourcePlan, unsafe_file_error
from lbx.bundle.making.first_rows import check_first_rows, unknown_datasets
from lbx.bundle.making.outline import Outline, SourceSummary, require_space, source_label
from lbx.bundle.making.recipe import ImageSource, Recipe, load_recipes
from lbx.bundle.making.sbom import render_sbom
from lbx.bundle.manifest import TAG_SIGNATURE, Evidence, render_tags
from lbx.bundle.names import NAMES_CODE, find_unsafe_content, needs_content_check, unsafe_format
from lbx.bundle.signing import signature
from lbx.bundle.signing.signature import sign
from lbx.bundle.tar import TarWriter, tar_size
from lbx.bundle.volumes import MAX_VOLUME, Volume, VolumeWriter, publish, render_sums


@dataclass(frozen=True, slots=True)
class WorkFolders:
    """Working folders of an incomplete bundle.

    Attributes:
        store: downloads, named by their expected hash; a later run resumes them.
        drafts: unfinished archive, on its final disk.
    """

    store: Path
    drafts: Path


@contextmanager
def lock_work_folders(out_dir: Path, name: str, work_dir: Path | None = None) -> Iterator[WorkFolders]:
    """Create and lock ``OUT/.NAME.partial``, and ``WORK/.NAME.partial`` for downloads in another folder.

    Raises:
        UsageError: a folder cannot be written, or another ``lbx bundle`` is using it.
    """
    with ExitStack() as stack:
        drafts = stack.enter_context(_lock_folder(out_dir, name))
        elsewhere = work_dir is not None and work_dir.resolve() != out_dir.resolve()
        store = stack.enter_context(_lock_folder(work_dir, name)) if elsewhere and work_dir is not None else drafts
        try:
            for leftover in drafts.iterdir():
                if leftover.is_file():  # from a run that was killed while packing; frees its space
                    leftover.unlink()
            (store / "files").mkdir(exist_ok=True)
            yield WorkFolders(store / "files", drafts)
        except OSError as exc:
            raise UsageError(
                f"Could not write the bundle: {exc}.", fix="Run the same command again to continue."
            ) from exc


def remove_work_folders(folders: WorkFolders) -> None:
    """Remove the working folders of a complete bundle, with all contents."""
    for folder in {folders.drafts, folders.store.parent}:
        shutil.rmtree(folder)


def remove_empty_work_folders(folders: WorkFolders) -> None:
    """Remove the working folders that are empty, i.e. without downloads for a later run."""
    for folder in (folders.store, folders.store.parent, folders.drafts):
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def _lock_folder(parent: Path, name: str) -> Iterator[Path]:
    folder = parent / f".{name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_folder(folder)
    except OSError as exc:
        raise UsageError(
            f"Cannot write to {parent}: {exc.strerror}.", fix="Choose another folder with -o or --work."
        ) from exc
    try:
        # On a network file system without locks, the user must avoid simultaneous runs.
        if not try_lock(lock):
            raise UsageError(
                f"Another `lbx bundle` is writing this bundle ({folder}).",
                fix="Wait until it has finished, or pass another --bundle-name.",
            )
        yield folder
    finally:
        os.close(lock)


@dataclass(frozen=True, slots=True)
class ArchiveFormat:
    """Format of an archive: volumes, compression, signature.

    Attributes:
        volume_size: bytes per volume, except for the last.
        zstd: whether to compress the archive.
        key: SSH key for signing: a private key, or a public key if an agent has its private half; None: unsigned.
    """

    volume_size: int = MAX_VOLUME
    zstd: bool = False
    key: Path | None = None

    def require(self) -> None:
        """Raise UsageError if signing fails or zstd is missing. Called before hours of download."""
        if self.zstd:
            compression.require_zstd()
        if self.key is not None:
            signature.sign(b"", self.key)


def write_archive(
    drafts: Path,
    name: str,
    tags: Mapping[str, bytes],
    contents: Mapping[str, LocalFile],
    archive_format: ArchiveFormat,
    *,
    epoch: int,
    meter: ByteMeter,
) -> list[Volume]:
    """Write the volumes of an archive to ``drafts``, tag files first, and sync them to disk.

    Raises:
        FetchError: a file has changed since it was hashed.
    """
    if archive_format.key is not None:
        tags = {**tags, TAG_SIGNATURE: signature.sign(tags[TAG_MANIFEST], archive_format.key)}
    suffix = compression.SUFFIX if archive_format.zstd else ""
    volumes = VolumeWriter(drafts, f"{name}.tar{suffix}", archive_format.volume_size)
    try:
        out = compression.Compressor(volumes) if archive_format.zstd else volumes
        tar = TarWriter(out, epoch)
        for path, content in sorted(tags.items()):
            tar.add(f"{name}/{path}", len(content), [content])
        for path, file in sorted(contents.items()):
            try:
                tar.add(f"{name}/{path}", file.size, _read_checked(file, partial(meter.report, path)))
            except ValueError as exc:
                raise _change_error(file) from exc
            meter.finish(path, file.size)
        tar.close()
        if isinstance(out, compression.Compressor):
            out.close()
        return volumes.close()
    except BaseException:
        volumes.abort()
        raise


def _read_checked(file: LocalFile, report: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the blocks of a file. Raises FetchError at the end if the file's hash has changed."""
    digest = BackgroundSha256()
    count = 0
    try:
        for block in read_blocks(file.path):
            digest.update(block)
            yield block
            count += len(block)
            report(count)
    finally:
        digest.close()
    if digest.hexdigest() != file.sha256:
        raise _change_error(file)


def _change_error(file: LocalFile) -> FetchError:
    return FetchError(
        f"{file.path} changed while it was being packed.", fix="Do not change it, and run the command again."
    )


OnOutline = Callable[[Outline], None]
PayloadContent = LocalFile | BaseFile


@dataclass(frozen=True)
class CreateResult(Evidence):
    """Result of ``create``.

    Attributes:
        archive, sums: NAME.tar, or its first volume, and NAME.SHA256SUMS for ``sha256sum -c``.
        volumes: all files of the archive, in order; ``archive`` is the first.
        signature: NAME.SHA256SUMS.sig, or None if no key was given.
        digest: digest of the bundle, as in ``lbx verify``.
        files, bytes: number and total size of the payload files.
        held_files, held_bytes: number and size of the payload files that only the base contains.
        sources: as in bundle.json.
    """

    archive: Path
    volumes: Sequence[Path]
    sums: Path
    signature: Path | None
    name: str
    digest: str
    files: int
    bytes: int
    held_files: int
    held_bytes: int
    sources: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class BundleJob:
    """Bundle in the making: recipe, plans, working folders and fetcher."""

    recipe: Recipe
    base: BaseBundle | None
    folders: WorkFolders
    fetcher: Fetcher
    plans: Sequence[SourcePlan]
    outline: Outline


class BundleInputs(TypedDict, total=False):
    """Options of ``create`` for the inputs of a bundle: name, locations of the sources, base.

    Attributes:
        name: name of the bundle; by default the names of the recipes, joined by "+".
        hub: address of a Hugging Face hub instead of HF_ENDPOINT or the public hub.
        mirror: address that replaces scheme and host of every https source: ``mirror`` + the url's path.
        work: folder for downloads, to store them on another disk than the archive.
        base: bundle already present on the receiving machine, see ``lbx.bundle.making.delta``; its files are neither
            fetched nor packed.
        images: OCI archives to include.
        retry: retry policy and timeouts of the network.
    """

    name: str | None
    hub: str | None
    mirror: str | None
    work: Path | None
    base: Path | None
    images: Sequence[Path]
    retry: Retry


def create(
    recipes: Sequence[Path],
    out_dir: Path,
    *,
    archive_format: ArchiveFormat | None = None,
    on_outline: OnOutline | None = None,
    progress: Progress = silent,
    **options: Unpack[BundleInputs],
) -> CreateResult:
    """Create an archive from recipes: ``out_dir/NAME.tar`` (or volumes) and ``NAME.SHA256SUMS``.

    The bytes of the archive depend only on the recipes, the fetched contents and SOURCE_DATE_EPOCH.

    Args:
        recipes: recipes or model cards, see ``lbx.bundle.making.recipe``.
        archive_format: volumes, compression, signature.
        on_outline: called with the outline of the bundle before the first download.

    Raises:
        UsageError: a recipe is wrong, a local source missing, an unsafe format not allowed, a disk too small.
        FetchError: a source cannot be fetched, or differs from the expected hash.
    """
    value = os.environ.get("SOURCE_DATE_EPOCH", "0") or "0"
    if not value.isascii() or not value.isdigit() or len(value) > 11:
        raise UsageError(
            f"SOURCE_DATE_EPOCH={value!r} is not a number of seconds since 1970.", fix="Correct or unset it."
        )
    epoch, archive_format = int(value), archive_format or ArchiveFormat()
    archive_format.require()
    with _open_job(recipes, out_dir, progress, options) as job:
        if on_outline:
            on_outline(job.outline)
        require_space(job.outline)
        contents, code_paths = _fetch_all(job, progress)
        check_first_rows(job.plans, contents)
        sources: list[dict[str, Any]] = []
        for entry in job.plans:
            files = [
                {"path": item.path, "size": contents[item.path].size, "sha256": contents[item.path].sha256}
                | ({"git_sha1": item.git_sha1} if item.git_sha1 else {})
                for item in sorted(entry.items, key=lambda item: item.path)
            ]
            unsafe = [item.path for item in entry.items if unsafe_format(item.name) or item.path in code_paths]
            sources.append({**entry.record, "allowed": sorted(unsafe), "files": files})
        result = _write(job, sources, contents, archive_format, out_dir, epoch=epoch, progress=progress)
        remove_work_folders(job.folders)
    return result


def survey(
    recipes: Sequence[Path], out_dir: Path, *, progress: Progress = silent, **options: Unpack[BundleInputs]
) -> Outline:
    """Return the outline of the bundle that ``create`` would make, without downloading its files.

    Raises:
        UsageError, FetchError: as ``create``, except for a disk that is too small; the outline contains the sizes.
    """
    with _open_job(recipes, out_dir, progress, options) as job:
        remove_empty_work_folders(job.folders)
    return job.outline


@contextmanager
def _open_job(recipes: Sequence[Path], out_dir: Path, progress: Progress, options: BundleInputs) -> Iterator[BundleJob]:
    base_path = options.get("base")
    recipe, base = load_recipes(recipes, options.get("name")), None if base_path is None else read_base(base_path)
    try:
        extra = tuple(ImageSource(image, origin="--include-image") for image in options.get("images", ()))
    except ValueError as exc:
        raise UsageError(f"The image cannot go into the bundle: {exc}", fix="Rename it.") from exc
    recipe = replace(recipe, sources=(*recipe.sources, *extra))
    retry = options.get("retry", Retry())
    with (
        lock_work_folders(out_dir, recipe.name, options.get("work")) as folders,
        Fetcher(folders.store, retry) as fetcher,
    ):
        planner = Planner(Hub(options.get("hub"), retry), options.get("mirror"), fetcher, progress, base)
        plans = planner.plan(recipe.sources)
        items = [item for entry in plans for item in entry.items]
        packed = [item for item in items if not isinstance(item.origin, BaseFile)]
        fetched = [
            (item.size or 0) - fetcher.stored_bytes(item.origin) for item in packed if isinstance(item.origin, Download)
        ]
        lines: list[SourceSummary] = []
        for entry in plans:
            record = entry.record
            lines.append(
                SourceSummary(
                    source=source_label(record),
                    kind=record["kind"],
                    revision=record.get("commit", ""),
                    licence=record.get("licence", ""),
                    gated=record.get("gated", False),
                    files=len(entry.items),
                    bytes=sum(item.size or 0 for item in entry.items),
                    held_bytes=sum(item.size or 0 for item in entry.items if isinstance(item.origin, BaseFile)),
                    links=entry.links,
                )
            )
        outline = Outline(
            name=recipe.name,
            lines=lines,
            files=len(items),
            bytes=sum(line.bytes for line in lines),
            held_bytes=sum(line.held_bytes for line in lines),
            fetch_bytes=sum(max(missing, 0) for missing in fetched),
            # The tag files list every file four times: in two lists, in bundle.json and in the bill of materials.
            archive_bytes=tar_size((item.path, item.size or 0) for item in packed)
            + sum(6 * len(item.path) + 900 for item in items),
            work=folders.store,
            work_free=shutil.disk_usage(folders.store).free,
            out=folders.drafts,
            out_free=shutil.disk_usage(folders.drafts).free,
            one_disk=folders.store.stat().st_dev == folders.drafts.stat().st_dev,
            unread=unknown_datasets(plans),
        )
        yield BundleJob(recipe, base, folders, fetcher, plans, outline)


def _fetch_all(job: BundleJob, progress: Progress) -> tuple[dict[str, PayloadContent], set[str]]:
    """Fetch all payload files. Returns {path in the bag: file}, and the paths of configurations that name code.

    Small files come first, so that a unsafe_file_error costs little.
    """
    jobs = sorted(
        ((entry, item) for entry in job.plans for item in entry.items),
        key=lambda pair: (pair[1].size or 0, pair[1].path),
    )
    meter = ByteMeter(progress, "fetch", sum(item.size or 0 for _, item in jobs))
    contents: dict[str, PayloadContent] = {}
    code_paths: set[str] = set()
    for entry, item in jobs:
        file: LocalFile | BaseFile
        if isinstance(item.origin, Download):
            file = job.fetcher.fetch(item.origin, partial(meter.report, item.name))
        elif isinstance(item.origin, (LocalFile, BaseFile)):
            file = item.origin
        else:
            digest = hashlib.sha256(item.origin).hexdigest()
            path = job.folders.drafts / f"made-{digest}"
            write_file(path, item.origin)
            file = LocalFile(path, len(item.origin), digest)
        if _names_code(entry, item, file):
            code_paths.add(item.path)
        # Small files of the hub have no SHA-256 before the download, so the base can be searched only now.
        base_file = job.base.find("sha256", file.sha256, file.size, item.path) if job.base else None
        contents[item.path] = base_file or file
        meter.finish(item.name, file.size)
    return contents, code_paths


def _names_code(entry: SourcePlan, item: PlannedFile, file: PayloadContent) -> bool:
    """Refuse a file that ``lbx unpack`` would refuse. Returns whether it is allowed and names code."""
    unsafe = NAMES_CODE if isinstance(file, BaseFile) and file.allowed else None
    if isinstance(file, LocalFile) and needs_content_check(item.name):
        with open_input(file.path) as content:
            unsafe = find_unsafe_content(item.name, file.size, content)
    if unsafe is None:
        return False
    if not unsafe.can_allow:
        raise UsageError(
            f"{entry.source.origin}: {item.name} is unsafe: {unsafe.reason}.",
            fix="Narrow `files` to exclude it, or correct the source.",
        )
    if not entry.allows(item):
        raise unsafe_file_error(entry.source, item, f"a configuration, and {unsafe.reason}")
    return True


def _write(
    job: BundleJob,
    sources: Sequence[Mapping[str, Any]],
    contents: Mapping[str, PayloadContent],
    archive_format: ArchiveFormat,
    out_dir: Path,
    *,
    epoch: int,
    progress: Progress,
) -> CreateResult:
    """Write the archive, sign it, and move all files to ``out_dir``."""
    name, description = job.recipe.name, job.recipe.description
    base_files = {path: content for path, content in contents.items() if isinstance(content, BaseFile)}
    packed = {path: content for path, content in contents.items() if isinstance(content, LocalFile)}
    tags = render_tags(
        name,
        description,
        sources,
        epoch,
        extra={SBOM: render_sbom(name, description, sources, epoch)},
        base={"name": job.base.name, "digest": job.base.digest} if job.base and base_files else None,
        base_paths={path: content.path for path, content in base_files.items()},
    )
    meter = ByteMeter(progress, "pack", sum(file.size for file in packed.values()))
    drafts = job.folders.drafts
    volumes = write_archive(drafts, name, tags, packed, archive_format, epoch=epoch, meter=meter)
    signed = sign(render_sums(volumes), archive_format.key) if archive_format.key else None
    paths, sums = publish(drafts, out_dir, name, volumes, signed)
    return CreateResult(
        archive=paths[0],
        volumes=paths,
        sums=sums,
        signature=sums.with_name(f"{sums.name}.sig") if archive_format.key else None,
        name=name,
        digest=hashlib.sha256(tags[TAG_MANIFEST]).hexdigest(),
        files=len(contents),
        bytes=sum(content.size for content in contents.values()),
        held_files=len(base_files),
        held_bytes=sum(content.size for content in base_files.values()),
        sources=sources,
    )
