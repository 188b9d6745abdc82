"""A delta carries what the base has not, and the base with it gives what a whole bundle would have given."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.errors import BundleError, UsageError
from lbx.bundle import CreateResult, unpack, verify_folder
from tests.bundle.hubserver import Faults, HubServer, commit_of
from tests.bundle.small_hub import DATASET, MODEL

Make = Callable[..., CreateResult]


def packed(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return [name.removeprefix("demo/") for name in tar.getnames() if name.startswith("demo/data/")]


def resolved(hub: HubServer) -> set[str]:
    return {path.rpartition("/")[2] for method, path, _ in hub.log if method == "GET" and "/resolve/" in path}


def contents(root: Path) -> dict[str, str]:
    files = (path for path in (root / "data").rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def base(bundle: Make, tmp_path: Path) -> Path:
    """The unpacked bundle of the dataset as it was, its one file changed since."""
    return unpack(bundle(DATASET, out="old").archive, tmp_path / "base").root


def change(hub: HubServer) -> str:
    """A new commit: one small file is another, the rest moves with it. Gives the commit."""
    (hub.hub / "datasets/org/data/a.jsonl").write_text('{"question": "why now?"}\n')
    return commit_of(hub.hub / "datasets/org/data")


@pytest.mark.parametrize("named", ["", "lbx/bundle.json"])
def test_a_delta_on_its_base_is_the_whole_bundle(
    bundle: Make, hub: HubServer, base: Path, tmp_path: Path, named: str
) -> None:
    commit = change(hub)
    hub.log.clear()
    made = bundle(DATASET + MODEL, base=base / named)
    assert resolved(hub) == {"a.jsonl", "config.json", "tokenizer.json", "model.safetensors"}
    folder = f"data/hub/datasets--org--data/snapshots/{commit}"
    assert [name for name in packed(made.archive) if "org--data" in name] == [
        "data/hub/datasets--org--data/refs/main",
        f"{folder}/a.jsonl",
    ]
    whole = bundle(DATASET + MODEL, out="whole")
    assert made.archive.stat().st_size < whole.archive.stat().st_size - 3_000_000
    assert (made.files, made.bytes) == (whole.files, whole.bytes)
    grown = unpack(made.archive, tmp_path / "grown", base=base).root
    assert contents(grown) == contents(unpack(whole.archive, tmp_path / "whole-root").root)
    assert verify_folder(grown).files == whole.files
    told = json.loads((grown / "lbx/bundle.json").read_text())
    assert told["base"] == {"name": "demo", "digest": hashlib.sha256(
        (base / "tagmanifest-sha256.txt").read_bytes()).hexdigest()}  # fmt: skip
    assert told["sources"] == whole.sources


def test_an_archive_can_be_the_base_and_so_can_a_copy_of_its_description(
    bundle: Make, hub: HubServer, base: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "old.json"
    copy.write_bytes((base / "lbx/bundle.json").read_bytes())
    change(hub)
    by_folder = bundle(DATASET, base=base).archive.read_bytes()
    assert bundle(DATASET, base=tmp_path / "old/demo.tar", out="by-archive").archive.read_bytes() == by_folder
    by_copy = bundle(DATASET, base=copy, out="by-copy")
    assert by_copy.held_files == 3
    unpack(by_copy.archive, tmp_path / "grown", base=base)


def test_a_delta_of_nothing_new_carries_tag_files_only(bundle: Make, hub: HubServer, base: Path) -> None:
    hub.log.clear()
    made = bundle(DATASET, base=base)
    assert (packed(made.archive), resolved(hub)) == ([], set())
    assert (made.held_files, made.held_bytes) == (made.files, made.bytes)


def test_a_base_that_holds_none_of_it_makes_no_delta(bundle: Make, base: Path) -> None:
    made = bundle(MODEL, base=base)
    assert made.held_files == 0
    assert made.archive.read_bytes() == bundle(MODEL, out="whole").archive.read_bytes()


def test_a_delta_needs_its_base(bundle: Make, hub: HubServer, base: Path, tmp_path: Path) -> None:
    change(hub)
    made = bundle(DATASET, base=base)
    with pytest.raises(BundleError, match="base"):
        unpack(made.archive, tmp_path / "grown")
    (file,) = base.rglob("big.jsonl")
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(BundleError, match=r"big\.jsonl"):
        unpack(made.archive, tmp_path / "grown", base=base)
    assert not (tmp_path / "grown").exists()


def test_what_is_held_needs_the_leave_that_it_needed(bundle: Make, hub: HubServer, tmp_path: Path) -> None:
    config = hub.hub / "models/org/model/config.json"
    config.write_text(json.dumps({"auto_map": {"AutoModel": "modeling.Model"}}))
    allowed = MODEL + 'allow = ["config.json"]\n'
    base = unpack(bundle(allowed, out="old").archive, tmp_path / "base").root
    with pytest.raises(UsageError, match=r"config\.json is refused: it is a configuration, and it names code"):
        bundle(MODEL, base=base)
    assert bundle(allowed, base=base).sources[0]["allowed"] == bundle(allowed, out="whole").sources[0]["allowed"] != []


@pytest.mark.parametrize("content", ["{}", '{"name": "x", "sources": [{"files": [{"path": "../a"}]}]}', "{", "[]"])
def test_a_base_that_is_none_is_refused(bundle: Make, tmp_path: Path, content: str) -> None:
    path = tmp_path / "base.json"
    path.write_text(content)
    with pytest.raises((UsageError, BundleError), match=r"base\.json"):
        bundle(DATASET, base=path)


def test_a_base_that_is_missing_is_named(bundle: Make, faults: Faults, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Cannot read the base bundle .*nothing"):
        bundle(DATASET, base=tmp_path / "nothing")
