"""What it costs to tell weights from others: `just bench-fingerprints`.

    python -m bench.fingerprints [--files 100] [--gb 5] [--tensors 1000] [--rounds 3] [--folder DIR]

Makes model folders of sparse safetensors files, which take no disk, and times ``lbx.backends.fingerprints.fingerprint``
over them; and a small model of real bytes, all of which are read. A disk or network adds its own time for each piece.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import tempfile
import time
from pathlib import Path

from lbx.backends.fingerprints import WHOLE, fingerprint


def make_sparse(folder: Path, files: int, size: int, tensors: int) -> None:
    """``files`` files of about ``size`` bytes, with so many tensors in all, in two-byte numbers."""
    each, own = size // (tensors // files) // 2 * 2, tensors // files
    for number in range(1, files + 1):
        entries = {
            f"model.layers.{number}.mlp.experts.{n}.weight": {
                "dtype": "BF16",
                "shape": [each // 2],
                "data_offsets": [n * each, (n + 1) * each],
            }
            for n in range(own)
        }
        header = json.dumps(entries).encode()
        path = folder / f"model-{number:05}-of-{files:05}.safetensors"
        path.write_bytes(struct.pack("<Q", len(header)) + header)
        os.truncate(path, 8 + len(header) + own * each)


def measure(folder: Path, rounds: int) -> tuple[float, float]:
    """Best of so many rounds: seconds, and seconds of processors."""
    found = []
    for _ in range(rounds):
        wall, used = time.perf_counter(), time.process_time()
        fingerprint(folder)
        found.append((time.perf_counter() - wall, time.process_time() - used))
    return min(wall for wall, _ in found), min(used for _, used in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--gb", type=float, default=5)
    parser.add_argument("--tensors", type=int, action="append", help="default: 1,000, then 90,000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="where files are made; default: the system's own")
    options = parser.parse_args()
    for tensors in options.tensors or (1_000, 90_000):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            make_sparse(Path(folder), options.files, int(options.gb * 1e9), max(tensors, options.files))
            wall, used = measure(Path(folder), options.rounds)
        print(
            f"{options.files} files of {options.gb:g} GB, {tensors:,} tensors: {wall:.2f} s, {used:.2f} s of processors"
        )
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        (Path(folder) / "model.safetensors").write_bytes(os.urandom(WHOLE))
        wall, used = measure(Path(folder), options.rounds)
    print(f"{WHOLE >> 20} MiB, all of them read: {wall:.2f} s, {used:.2f} s of processors")


if __name__ == "__main__":
    main()
