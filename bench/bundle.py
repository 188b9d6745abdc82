"""An archive's costs beside tar and openssl.

    python -m bench.bundle [--gib 2] [--files 4] [--rounds 3] [--volume-size SIZE] [--folder DIR]

Makes a synthetic model of random bytes, and times, in this order and on the same disk, ``rounds`` times:

    hash       one thread, hashlib, over the files in memory's page cache: the speed of reference
    tar        GNU tar -c and sync
    sum tar    openssl dgst -sha256 of that tar
    sum files  openssl dgst -sha256 of the files
    create     lbx bundle of the same files (a local source: nothing is downloaded), signed, fsync included
    verify     lbx verify, signed: each byte is hashed twice, in its volume and in its file; on one processor and on all
    untar      GNU tar -x and sync
    unpack     lbx unpack, signed, fsync included

lbx is held against tar and both sums, those of the files and of the volumes. Each figure is the best of all rounds.
Each step runs in a process of its own; its peak memory is the kernel's (ru_maxrss).
"""

from __future__ import annotations

import argparse
import hashlib
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

Rows = dict[str, "Measured"]
LBX = (sys.executable, "-m", "lbx.cli")
BLOCK = 1 << 20


@dataclass(frozen=True)
class Measured:
    """Wall and processor seconds of a command, and its peak memory in bytes."""

    seconds: float
    cpu: float
    peak: int


def measure(command: Sequence[object], *, threads: int = 0) -> Measured:
    """Run a command alone, on this number of processors (0 for all)."""
    processors = sorted(os.sched_getaffinity(0))
    start = time.monotonic()
    with subprocess.Popen(
        ["taskset", "-c", ",".join(map(str, processors[: threads or len(processors)])), *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start
    if process.returncode:
        raise SystemExit(f"{command} failed: {errors.decode()}")
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
        measured = Measured(time.monotonic() - start, time.process_time() - cpu, 0)
    return measured


def bench(folder: Path, size: int, files: int, volume_size: str, rounds: int) -> Rows:
    model = folder / "model"
    make_model(model, size, files)
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{key}"], check=True)
    recipe = folder / "bench.toml"
    recipe.write_text('name = "bench"\n[[source]]\nkind = "path"\npath = "model"\nto = "model"\n')
    os.sync()
    sized = ["--volume-size", volume_size] if volume_size else []
    results: list[Rows] = []
    for number in range(rounds):
        results.append(run_round(folder, model, recipe, key, sized))
        seconds = ", ".join(f"{name} {measured.seconds:.1f}" for name, measured in results[-1].items())
        print(f"round {number + 1}, seconds: {seconds}", file=sys.stderr, flush=True)
    return {name: best([result[name] for result in results]) for name in results[0]}


def run_round(folder: Path, model: Path, recipe: Path, key: Path, sized: Sequence[str]) -> dict[str, Measured]:
    """Every step once; files that no later step needs are removed."""
    out, sums = folder / "out", folder / "out/bench.SHA256SUMS"
    trust = ["--trust", key.with_suffix(".pub")]
    rows = {"hash": hash_once(model)}
    rows["tar"] = shell(f"cd {folder} && tar -cf plain.tar model && sync -f plain.tar")
    rows["sum tar"] = shell(f"cd {folder} && openssl dgst -sha256 plain.tar")
    rows["sum files"] = shell(f"cd {folder} && openssl dgst -sha256 model/*")
    rows["untar"] = shell(f"cd {folder} && mkdir x && tar -xf plain.tar -C x && sync -f x")
    (folder / "plain.tar").unlink()
    shutil.rmtree(folder / "x")
    rows["create"] = measure([*LBX, "bundle", recipe, "--sign", key, "-o", out, *sized])
    rows["verify, 1 thread"] = measure([*LBX, "verify", sums, *trust], threads=1)
    rows["verify"] = measure([*LBX, "verify", sums, *trust])
    rows["unpack"] = measure([*LBX, "unpack", sums, *trust, "--to", folder / "root"])
    for path in (out, folder / "root"):
        shutil.rmtree(path)
    os.sync()
    return rows


def best(rounds: Sequence[Measured]) -> Measured:
    """The least time of all rounds, and the most memory."""
    return Measured(min(m.seconds for m in rounds), min(m.cpu for m in rounds), max(m.peak for m in rounds))


def report(rows: Rows, size: int) -> None:
    for name, row in rows.items():
        memory = f"{row.peak / 1e6:6.0f} MB" if row.peak else ""
        print(f"{name:<18}{row.seconds:8.2f} s{size / row.seconds / 1e9:8.3f} GB/s{row.cpu:8.2f} s CPU{memory}")
    print(f"{'':<50}{'wall':>6}{'CPU':>8}")
    wall, cpu = (_ratios({name: getattr(row, unit) for name, row in rows.items()}) for unit in ("seconds", "cpu"))
    for name, value in wall.items():
        print(f"{name:<50}{value:6.2f}{cpu[name]:8.2f}")


def _ratios(times: dict[str, float]) -> dict[str, float]:
    sums = times["sum tar"] + times["sum files"]
    return {
        "verify, 1 thread, of hashing speed (two sums)": 2 * times["hash"] / times["verify, 1 thread"],
        "verify, of one thread's hashing speed (two sums)": 2 * times["hash"] / times["verify"],
        "create / (tar + both sums)": times["create"] / (times["tar"] + sums),
        "unpack / (both sums + untar)": times["unpack"] / (times["untar"] + sums),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gib", type=float, default=2.0, help="size of the model")
    parser.add_argument("--files", type=int, default=4, help="in how many files")
    parser.add_argument("--rounds", type=int, default=3, help="how often; the best counts")
    parser.add_argument("--volume-size", default="", help="as for lbx bundle; its own default without")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; four times the size must fit")
    args = parser.parse_args()
    if args.folder is not None:
        args.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-bundle-", dir=args.folder))
    try:
        size = int(args.gib * 2**30)
        rows = bench(folder, size, args.files, args.volume_size, args.rounds)
    finally:
        shutil.rmtree(folder)
    report(rows, size)


if __name__ == "__main__":
    main()
