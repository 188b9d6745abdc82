"""Unpacked bundles in temporary folders: of the real data beside the checkout, or of made-up files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.inputs import link_tree
from lbx.base.bundle_folder import BUNDLE_JSON, FILES, HUB, TAG_MANIFEST, Bundle, repo_folder

COMMIT = "0" * 40

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]


@pytest.fixture
def make_bundle(tmp_path: Path) -> MakeBundle:
    """Makes a bundle of {place: content}; a place is "hub:org/name/path" or "files/path", a Path is linked."""

    def make(content: dict[str, bytes | Path]) -> Bundle:
        return _write_bundle(tmp_path / "bundle", content)

    return make


@pytest.fixture(scope="session")
def bundle(shared: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The real data sets, prompts and published predictions; L-Eval with its scripts."""
    content: dict[str, bytes | Path] = {}
    datasets = shared("data/hub/datasets")
    for repo in ("THUDM/LongBench", "THUDM/LongBench-v2", "L4NLP/LEval"):
        for path in (datasets / repo).iterdir():
            content[f"hub:{repo}/{path.name}"] = path
    upstream = shared("data/upstream")
    for repo in ("THUDM/LongBench", "OpenLMLab/LEval"):
        (content[f"files/{repo}"],) = (upstream / repo).iterdir()
    (scripts,) = shared("data/upstream_more/OpenLMLab/LEval").glob("*/Baselines")
    content["files/OpenLMLab/LEval/Baselines"] = scripts
    return _write_bundle(tmp_path_factory.mktemp("real") / "bundle", content)


def _write_bundle(root: Path, content: dict[str, bytes | Path]) -> Bundle:
    for place, what in content.items():
        if place.startswith("hub:"):
            org, name, rest = place.removeprefix("hub:").split("/", 2)
            folder = root / HUB / repo_folder("dataset", f"{org}/{name}")
            target = folder / "snapshots" / COMMIT / rest
            (folder / "refs").mkdir(parents=True, exist_ok=True)
            (folder / "refs" / "main").write_text(COMMIT)
        else:
            target = root / FILES / place.removeprefix("files/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, Path):
            link_tree(what, target)
        else:
            target.write_bytes(what)
    (root / BUNDLE_JSON).parent.mkdir(parents=True, exist_ok=True)
    (root / BUNDLE_JSON).write_text("{}")
    (root / TAG_MANIFEST).write_text("")
    return Bundle(root)
