"""Bundles that were changed after they were unpacked: a run looks before it begins, and says how."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.attack_parts import Said, main, refused

FILE = "data/files/needle/needle.toml"


def run(small: Path, bundle: Path, *more: object) -> Said:
    model, results = small / "oracle.jsonl", bundle.with_name("results.duckdb")
    return main("run", "-b", bundle, "-m", model, "-t", "needle/single_en", "-o", results, "-n", 2, "--no-plan", *more)


def checked(bundle: Path) -> str:
    query = "SELECT hardware->>'bundle_check' AS said FROM runs"
    said = main("sql", bundle.with_name("results.duckdb"), query, "--format", "json")
    return str(json.loads(said.out)[0]["said"])


def write(path: Path, content: bytes, *, same_time: bool = False) -> None:
    before = path.stat()
    path.write_bytes(content)
    if same_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def longer(bundle: Path) -> None:
    write(bundle / FILE, (bundle / FILE).read_bytes() + b"\n", same_time=True)


def same_size(bundle: Path) -> None:
    write(bundle / FILE, (bundle / FILE).read_bytes().replace(b"64", b"65"))


def manifests_too(bundle: Path) -> None:
    """A payload file and its line in the manifest; the tag manifest's own sum would have to change, and the digest."""
    same_size(bundle)
    write(bundle / "manifest-sha256.txt", (bundle / "manifest-sha256.txt").read_bytes().replace(b"0", b"1"))


CHANGES: dict[str, Callable[[Path], object]] = {
    "longer, time set back": longer,
    "same size": same_size,
    "manifest": manifests_too,
    "removed": lambda bundle: (bundle / FILE).unlink(),
    "added": lambda bundle: (bundle / "data/files/needle/more.toml").write_text(""),
    "code beside": lambda bundle: (bundle / "sitecustomize.py").write_text(""),
    "a link": lambda bundle: ((bundle / FILE).rename(bundle.with_name("f")), (bundle / FILE).symlink_to("/etc/passwd")),
    "a FIFO": lambda bundle: ((bundle / FILE).unlink(), os.mkfifo(bundle / FILE)),
    "a folder that is a link": lambda bundle: (
        (bundle / "data/files").rename(bundle.with_name("f")),
        (bundle / "data/files").symlink_to(bundle.with_name("f")),
    ),
    "bundle.json": lambda bundle: write(bundle / "lbx/bundle.json", b"{}", same_time=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_does_not_begin_on_what_was_changed(change: str, small: Path, own: Path) -> None:
    CHANGES[change](own)
    refused(run(small, own))
    assert not own.with_name("results.duckdb").exists()


def test_a_change_whose_size_and_time_are_right_is_found_by_hashes(small: Path, own: Path) -> None:
    """What the quick look does not promise, and the slow one does."""
    manifest = own / "tagmanifest-sha256.txt"
    write(own / FILE, (own / FILE).read_bytes().replace(b"44", b"43"), same_time=True)
    assert (own / FILE).stat().st_mtime_ns <= manifest.stat().st_mtime_ns
    refused(run(small, own, "--hash-bundle"), f"{FILE} (changed)")


def test_a_run_says_how_it_looked(small: Path, own: Path) -> None:
    for more, word in (((), "sizes and times of 1 file"), (("--hash-bundle",), "hashes of all 1 files")):
        said = run(small, own, *more)
        assert said.code == 0 and f"Bundle unchanged, checked by {word}" in " ".join(said.err.split()), said
        assert checked(own) == word
        own.with_name("results.duckdb").unlink()


def test_a_copy_without_its_times_is_hashed_and_runs(small: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small / "bundle", copy, copy_function=shutil.copyfile)
    os.utime(copy / "tagmanifest-sha256.txt", (0, 0))
    assert run(small, copy).code == 0
    assert "hashes of the 1 younger than the manifest" in checked(copy)


def test_what_tar_unpacks_runs(small: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-xf", small / "small.tar"], cwd=tmp_path, check=True)
    assert run(small, tmp_path / "small").code == 0
    assert checked(tmp_path / "small") == "sizes and times of 1 file"
