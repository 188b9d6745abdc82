"""An import in one call, as `lbx import` makes it, but for the scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.inputs import link_tree
from lbx.base.bundle_folder import BUNDLE_JSON, HUB, TAG_MANIFEST, Bundle, repo_folder
from lbx.exchange.importing import ImportSummary, parse_predictions, write_predictions
from lbx.results import Store


def import_predictions(store: Store, format_name: str, path: Path, **how: Any) -> ImportSummary:
    done = write_predictions(store, parse_predictions(format_name, path, **how))
    store.finish_run(done.run_id, "done")
    return done


def bundle_of(root: Path, files: dict[str, bytes]) -> Bundle:
    for place, content in files.items():
        repo, _, rest = place.partition(":")
        folder = root / HUB / repo_folder("dataset", repo)
        path = folder / "snapshots" / ("0" * 40) / rest
        (folder / "refs").mkdir(parents=True, exist_ok=True)
        (folder / "refs/main").write_text("0" * 40)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (root / BUNDLE_JSON).parent.mkdir(parents=True, exist_ok=True)
    (root / BUNDLE_JSON).write_text("{}")
    (root / TAG_MANIFEST).write_text("")
    return Bundle(root)


def real_bundle(shared: Callable, root: Path) -> Bundle:
    hub, target = shared("data/hub/datasets"), bundle_of(root, {})
    for repo in ("THUDM/LongBench", "THUDM/LongBench-v2", "L4NLP/LEval"):
        folder = target.root / HUB / repo_folder("dataset", repo)
        (folder / "refs").mkdir(parents=True)
        (folder / "refs/main").write_text("0" * 40)
        link_tree(hub / repo, folder / "snapshots" / ("0" * 40))
    return target
