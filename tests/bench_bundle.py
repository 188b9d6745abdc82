"""What the archive costs beside the tools that everybody has: `just bench-bundle`.

    python tests/bench_bundle.py [--gib 2] [--files 4] [--volume-size SIZE] [--folder DIR]

Makes a synthetic model of random bytes, and times, in this order and on the same disk:

    hash       one thread, hashlib, over the files in memory's page cache: the speed that everything is held against
    tar        GNU tar -c and sync, then openssl dgst -sha256 of the tar
    create     lbx bundle of the same files (a local source: nothing is downloaded), fsync included
    verify     lbx verify, signed: each byte is hashed twice, in its volume and in its file; on one processor and on all
    untar      openssl dgst -sha256 of the tar, GNU tar -x and sync
    unpack     lbx unpack, signed, fsync included

Each runs as a process of its own; its peak memory is what the kernel says (ru_maxrss of the child).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LBX = (sys.executable, "-m", "lbx.cli")
BLOCK = 1 << 20


@dataclass(frozen=True)
class Measured:
    """Wall and processor seconds of a command, and its peak memory in bytes."""

    seconds: float
    cpu: float
    peak: int


def measure(command: Sequence[object], *, threads: int = 0) -> Measured:
    """Run a command alone, on so many of the processors (0 for all)."""
    mine = sorted(os.sched_getaffinity(0))
    start = time.monotonic()
    with subprocess.Popen(
        ["taskset", "-c", ",".join(map(str, mine[: threads or len(mine)])), *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start
    if process.returncode:
        raise SystemExit(f"{command} failed: {said.decode()}")
    return Measured(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10)


def shell(script: str) -> Measured:
    return measure(["bash", "-ec", script])


def make_model(folder: Path, size: int, files: int) -> None:
    """``files`` files of random bytes, together ``size``; incompressible, as weights nearly are."""
    folder.mkdir(parents=True)
    rng = random.Random(5)
    for number in range(files):
        with (folder / f"model-{number + 1:05}-of-{files:05}.safetensors").open("wb") as out:
            for _ in range(size // files // BLOCK):
                out.write(rng.randbytes(BLOCK))


def hash_once(folder: Path) -> Measured:
    """One thread that hashes all files, once they are in the page cache."""
    for _ in range(2):
        start, cpu = time.monotonic(), time.process_time()
        for path in sorted(folder.iterdir()):
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while block := file.read(BLOCK):
                    digest.update(block)
        found = Measured(time.monotonic() - start, time.process_time() - cpu, 0)
    return found


def bench(folder: Path, size: int, files: int, volume_size: str) -> dict[str, dict[str, float]]:
    model = folder / "model"
    make_model(model, size, files)
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{key}"], check=True)
    recipe = folder / "bench.toml"
    recipe.write_text('name = "bench"\n[[source]]\nkind = "path"\npath = "model"\nto = "model"\n')
    trust = ["--trust", key.with_suffix(".pub")]
    out = folder / "out"
    hashing = hash_once(model)
    os.sync()
    tar = shell(f"cd {folder} && tar -cf plain.tar model && sync -f plain.tar && openssl dgst -sha256 plain.tar")
    sized = ["--volume-size", volume_size] if volume_size else []
    create = measure([*LBX, "bundle", recipe, "--sign", key, "-o", out, *sized])
    sums = out / "bench.SHA256SUMS"
    one = measure([*LBX, "verify", sums, *trust], threads=1)
    verify = measure([*LBX, "verify", sums, *trust])
    untar = shell(f"cd {folder} && mkdir x && openssl dgst -sha256 plain.tar && tar -xf plain.tar -C x && sync -f x")
    (folder / "plain.tar").unlink()
    unpack = measure([*LBX, "unpack", sums, *trust, "--to", folder / "root"])
    measured = {
        "tar": tar,
        "create": create,
        "verify, 1 thread": one,
        "verify": verify,
        "untar": untar,
        "unpack": unpack,
    }
    rows = {}
    for name, found in {"hash": hashing, **measured}.items():
        rows[name] = {
            "seconds": found.seconds,
            "gb_per_s": size / found.seconds / 1e9,
            "cpu_s": found.cpu,
            "peak_mb": found.peak / 1e6,
        }
    return rows


def report(rows: dict[str, dict[str, float]]) -> None:
    for name, row in rows.items():
        memory = f"{row['peak_mb']:6.0f} MB" if row["peak_mb"] else ""
        print(f"{name:<18}{row['seconds']:8.2f} s{row['gb_per_s']:8.3f} GB/s{row['cpu_s']:8.2f} s CPU{memory}")
    for kind, unit in (("seconds", "wall"), ("cpu_s", "CPU")):
        hashing = rows["hash"][kind]
        print(f"by {unit} time:")
        for name in ("verify, 1 thread", "verify"):
            print(f"  {name}: {2 * hashing / rows[name][kind]:.2f} of the speed of hashing with one thread (two sums)")
        print(f"  create: {rows['create'][kind] / rows['tar'][kind]:.2f} of tar + openssl")
        print(f"  unpack: {rows['unpack'][kind] / rows['untar'][kind]:.2f} of openssl + tar")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gib", type=float, default=2.0, help="size of the model")
    parser.add_argument("--files", type=int, default=4, help="in how many files")
    parser.add_argument("--volume-size", default="", help="as for lbx bundle; its own default without")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; four times the size must fit")
    parser.add_argument("--json", type=Path, default=None, help="write the figures here, too")
    given = parser.parse_args()
    if given.folder is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-bundle-", dir=given.folder))
    try:
        rows = bench(folder, int(given.gib * 2**30), given.files, given.volume_size)
    finally:
        shutil.rmtree(folder)
    report(rows)
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
