"""Sources on this machine's own disk: read by all processors, and the same when they are packed."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import FetchError, UsageError
from lbx.bundle import ArchiveFormat, CreateResult, Outline, unpack
from lbx.bundle.volumes import MAX_VOLUME
from lbx.cli.bundling import _show_outline

Make = Callable[..., CreateResult]


@pytest.fixture
def local(tmp_path: Path) -> Path:
    folder = tmp_path / "local/hf"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "target.txt").symlink_to(folder / "config.json")
    (tmp_path / "local/m.gguf").write_bytes(b"GGUF")
    return folder


def path_source(path: str, **keys: str) -> str:
    lines = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
    return f'[[source]]\nkind = "path"\npath = "{path}"\n{lines}'


def test_local_folders_and_files_travel(bundle: Make, local: Path, tmp_path: Path) -> None:
    made = bundle(path_source("local/hf", to="models/demo/hf") + path_source("local/m.gguf", to="models/demo/m.gguf"))
    root = Bundle(unpack(made.archive, tmp_path / "root").root)
    folder = root.file("models/demo/hf")
    assert folder is not None
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "config.json": b"{}",
        "model.safetensors": b"weights",
        "target.txt": b"{}",
    }
    assert root.file("models/demo/m.gguf")
    assert str(tmp_path) not in json.dumps(root.description)


def test_links_out_of_a_folder_are_named_before_they_are_packed(bundle: Make, local: Path, tmp_path: Path) -> None:
    """Who may write to the folder chooses what they lead to; a hub cache has them, too, so they are no fault."""
    secret = tmp_path / "secret"
    secret.write_text("of another place")
    (local / "a.txt").symlink_to(secret)
    outlines: list[Outline] = []
    made = bundle(path_source("local/hf", to="x"), on_outline=outlines.append)
    assert [line.links for line in outlines[0].lines] == [(f"a.txt -> {secret}",)]
    root = unpack(made.archive, tmp_path / "root").root
    assert str(tmp_path) not in json.dumps(Bundle(root).description)
    _show_outline(outlines[0], console := Console(record=True, width=500))
    assert (
        f"the archive contains the targets of links that lead out of the folder: a.txt -> {secret}"
        in console.export_text()
    )
    long = replace(outlines[0], lines=[replace(outlines[0].lines[0], source="org/data/" + "a" * 60 + "/end.txt")])
    _show_outline(long, console := Console(record=True, width=80))
    assert "end.txt" in console.export_text(), "what tells one source from another is at its end"


def test_a_local_folder_can_become_a_hub_repository(bundle: Make, local: Path, tmp_path: Path) -> None:
    made = bundle(path_source("local/hf", repo="lbx/demo", type="model") + 'files = ["*.json", "*.safetensors"]\n')
    folder = Bundle(unpack(made.archive, tmp_path / "root").root).snapshot("model", "lbx/demo")
    assert folder is not None
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    (local / "model.safetensors").write_bytes(b"other weights")
    again = bundle(path_source("local/hf", repo="lbx/demo", type="model"), out="again")
    assert again.sources[0]["commit"] != made.sources[0]["commit"]


def test_local_mistakes_are_named(bundle: Make, local: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"path = 'local/nothing' does not exist"):
        bundle(path_source("local/nothing", to="x"))
    with pytest.raises(UsageError, match="is a file, but repo and files need a folder"):
        bundle(path_source("local/m.gguf", repo="a/b"))
    with pytest.raises(FetchError, match=r'files = "\*\.parquet" does not match any'):
        bundle(path_source("local/hf", to="x") + 'files = ["*.parquet"]\n')
    (local / "loop").symlink_to(local)
    with pytest.raises(UsageError, match="loop is a link to a folder, or neither a file nor a folder"):
        bundle(path_source("local/hf", to="x"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FetchError, match="contains no files"):
        bundle(path_source("empty", to="x"))


def test_a_local_file_that_changes_while_it_is_packed_is_found_out(bundle: Make, local: Path) -> None:
    def meddle(stage: str, item: str, done: int, total: int) -> None:
        if stage == "fetch":
            (local.parent / "m.gguf").write_bytes(b"XXXX")

    with pytest.raises(FetchError, match=r"m\.gguf changed while it was being packed"):
        bundle(path_source("local/m.gguf", to="m.gguf"), progress=meddle)


@pytest.mark.parametrize("volume_size", [MAX_VOLUME, 1 << 20])
def test_a_change_in_the_middle_of_packing_is_found_out(
    bundle: Make, local: Path, tmp_path: Path, volume_size: int
) -> None:
    """Of the same size and with the old time of change: only the bytes tell."""
    file = local.parent / "m.gguf"
    file.write_bytes(bytes(5 << 20))
    before = file.stat()

    def meddle(stage: str, item: str, done: int, total: int) -> None:
        if stage == "pack" and done == 2 << 20:
            with file.open("r+b") as out:
                out.seek(4 << 20)
                out.write(b"X")
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(FetchError, match=r"m\.gguf changed while it was being packed"):
        bundle(
            path_source("local/m.gguf", to="m.gguf"),
            progress=meddle,
            archive_format=ArchiveFormat(volume_size=volume_size),
        )
    (shop,) = (tmp_path / "out").iterdir()
    assert not list(shop.rglob("*.tar*"))


def test_many_local_files_are_read_by_several_threads(bundle: Make, tmp_path: Path) -> None:
    rng = random.Random(9)
    contents = {f"{n}.safetensors": rng.randbytes((3 << 20) + n) for n in range(5)}
    (tmp_path / "many").mkdir()
    for name, content in contents.items():
        (tmp_path / "many" / name).write_bytes(content)
    steps: list[tuple[int, int]] = []
    made = bundle(
        path_source("many", to="m"),
        progress=lambda stage, item, done, total: steps.append((done, total)) if stage == "read" else None,
    )
    assert {file["path"].rpartition("/")[2]: file["sha256"] for file in made.sources[0]["files"]} == {
        name: hashlib.sha256(content).hexdigest() for name, content in contents.items()
    }
    assert steps == sorted(steps)
    assert steps[-1] == (sum(map(len, contents.values())),) * 2
