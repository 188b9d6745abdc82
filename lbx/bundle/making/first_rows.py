"""Check of fetched datasets: read the first row of every task, with the same code that later reads the bundle."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from lbx.base.bundle_folder import BUNDLE_JSON, FILES, HUB, TAG_MANIFEST, Bundle, repo_folder
from lbx.base.errors import BundleError, NoDataError, UsageError
from lbx.base.inputs import SMALL, read_input
from lbx.base.outputs import link_files, write_file
from lbx.benchmarks.base.benchmark import Benchmark, needs_model
from lbx.benchmarks.registry import BENCHMARKS
from lbx.bundle.making.delta import BaseFile
from lbx.bundle.making.fetch import LocalFile
from lbx.bundle.making.file_plan import SourcePlan

log = logging.getLogger("lbx")

_READERS: dict[str, list[Benchmark]] = {}
for _family in BENCHMARKS.values():
    for _repository in _family.data.repositories:
        _READERS.setdefault(_repository, []).append(_family)


def unknown_datasets(plans: Sequence[SourcePlan]) -> list[str]:
    """List the datasets that no built-in benchmark reads."""
    return [name for name in _datasets(plans) if name not in _READERS]


def check_first_rows(plans: Sequence[SourcePlan], contents: Mapping[str, LocalFile | BaseFile]) -> None:
    """Read the first row of every task of the fetched datasets. Data from a base was checked when it was bundled.

    Families with samples that depend on a model are skipped, and families whose required file is missing.

    Args:
        contents: payload files by their path in the bag.

    Raises:
        UsageError: a row cannot be read, or a dataset has no usable data for its benchmark.
    """
    by_family: dict[Benchmark, list[str]] = {}
    for name in _datasets(plans):
        for family in _READERS.get(name, ()):
            required = family.data.required_file
            is_here = not required or isinstance(contents.get(f"{FILES}/{required}"), LocalFile)
            if is_here and not needs_model(family):
                by_family.setdefault(family, []).append(name)
    for family, names in by_family.items():
        files = {
            path: content
            for name in names
            for path, content in contents.items()
            if path.startswith(f"{HUB}/{repo_folder('dataset', name)}/")
        }
        local_paths = {path: content.path for path, content in files.items() if isinstance(content, LocalFile)}
        if len(local_paths) == len(files):
            if required := family.data.required_file:  # samples depend on official files and tokenizers
                prefixes = (f"{FILES}/{required.rpartition('/')[0]}/", f"{HUB}/models--")
                local_paths |= {
                    path: content.path
                    for path, content in contents.items()
                    if path.startswith(prefixes) and isinstance(content, LocalFile)
                }
            with _link_bundle(local_paths) as bundle:
                _read_rows(family, bundle, " and ".join(names))


def _datasets(plans: Sequence[SourcePlan]) -> list[str]:
    return [entry.record["repo"] for entry in plans if entry.record.get("type") == "dataset"]


@contextmanager
def _link_bundle(files: Mapping[str, Path]) -> Iterator[Bundle]:
    """Create a temporary bundle with links to the data files. Refs and official files must be inside and are copied."""
    tags = {BUNDLE_JSON: b"{}", TAG_MANIFEST: b""}
    inside = {path for path in files if "/refs/" in path or path.startswith(f"{FILES}/")}
    with TemporaryDirectory(prefix="lbx-") as name:  # the archive's disk may not support links
        folder = Path(name)
        for target, content in {**tags, **{path: read_input(files[path], SMALL) for path in inside}}.items():
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            write_file(folder / target, content)
        link_files(folder, {path: file for path, file in files.items() if path not in inside})
        yield Bundle(folder)


def _read_rows(family: Benchmark, bundle: Bundle, dataset: str) -> None:
    has_rows: dict[str, bool] = {}
    for task in family.catalogue.names:
        try:
            has_rows[task] = any(True for _ in family.samples(bundle, task))
        except NoDataError:
            continue
        except BundleError as exc:
            raise UsageError(
                f"Cannot read {family.name}/{task} from the dataset {dataset}: "
                + exc.cause.replace(f"{bundle.root}/", ""),
                fix="No bundle was written. Set another `revision`, or other `files`.",
            ) from exc
    if not any(has_rows.values()):
        cause = "its files have no rows" if has_rows else "none of its files has a supported layout"
        raise UsageError(
            f"{family.name} cannot use the dataset {dataset}: {cause}.",
            fix=f"Set `files` as in {family.data.recipe}, or to the parquet files listed in docs/bundling.md.",
        )
    if empty := [task for task, has_row in has_rows.items() if not has_row]:
        log.warning(f"The dataset {dataset} has no rows for {', '.join(f'{family.name}/{task}' for task in empty)}.")
