"""Breaks archives in every way it can think of, and has them read: `just fuzz [SECONDS]`.

    python tests/fuzz_archive.py [SECONDS [SEED]]

Whatever comes in, the reader answers with an LbxError or with exactly the bundle that was sealed; nothing is written
outside the target, and no target is published half. In CI hypothesis chooses a bounded number of cases,
in tests/bundle/test_fuzz.py, and makes small what it finds.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lbx.base.errors import LbxError
from lbx.bundle import Trust, unpack, verify
from lbx.bundle.volumes import Volume, render_sums
from tests.bundle.forge import members
from tests.bundle.sealed import make_key, seal, tar_bytes

FILES = {
    "data/files/a.txt": b"first",
    "data/files/config.json": b'{"model_type": "llama"}',
    "data/files/" + "long-folder-name/" * 8 + "z.jsonl": b"{}\n" * 300,
    "data/files/empty.txt": b"",
    "data/hub/datasets--o--d/snapshots/0/x.json": bytes(range(256)) * 12,
}
HELD = {"data/files/a.txt": "data/files/a.txt"}
NUMBERS = (b"00000000000", b"77777777777", b"99999999999", b"-0000000001", b"\x80" + b"\xff" * 10, b"           ")
NAMES = (b"../evil", b"/tmp/lbx-evil", b"x/../../evil", b"x/data/files/a.txt", b"x/DATA/files/a.txt", b"\xff\xfe")


@dataclass(frozen=True)
class Case:
    """One kind of archive: its files by name, who is trusted, what a right reading gives."""

    files: Mapping[str, bytes]
    trust: Trust
    digest: str
    payload: Mapping[str, bytes]
    base: Path | None


class Fuzzer:
    """Archives to break, and a folder to do it in.

    Args:
        folder: empty; everything happens in it, and nothing else in it may change.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.counts = {"refused": 0, "read": 0}
        data = dict(FILES)
        with zipfile.ZipFile(folder / "z.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("data/x.jsonl", b'{"a": 1}\n' * 200)
        data["data/files/z.zip"] = (folder / "z.zip").read_bytes()
        (folder / "z.zip").unlink()
        self._base = unpack(seal(folder / "base", members(data)), folder / "unpacked").root
        key = make_key(folder)
        known, anyone = Trust.from_key_file(key.with_suffix(".pub")), Trust(allow_unsigned=True)
        kinds = [
            (data, known, {"key": key}),
            (data, known, {"key": key, "volume_size": 6000}),
            (data, known, {"key": key, "zstd": True}),
            (data, anyone, {"volume_size": 5000}),
            (data, anyone, {"zstd": True, "volume_size": 700}),
            (data, anyone, {}),
        ]
        self._cases = [self._case(files, trust, options, {}) for files, trust, options in kinds]
        self._cases.append(self._case(data, anyone, {}, HELD))
        self._outside = _listing(folder)

    def _case(
        self, files: Mapping[str, bytes], trust: Trust, options: Mapping[str, object], held: Mapping[str, str]
    ) -> Case:
        place = self._folder / "making"
        sums = seal(place, members(files, held=held or None), **options)  # type: ignore[arg-type]
        found = {path.name: path.read_bytes() for path in place.iterdir()}
        digest = verify(sums, trust=trust).digest
        shutil.rmtree(place)
        return Case(found, trust, digest, files, self._base if held else None)

    def one(self, rng: random.Random) -> None:
        """One broken archive; raises AssertionError, or whatever came through."""
        case = rng.choice(self._cases)
        files = dict(case.files)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            rng.choice(BREAKS)(files, rng)
        if rng.random() < 0.7:
            _reseal(files, rng)  # else most cases would never come past the sums
        place = self._folder / "place"
        given = place / rng.choice([*case.files, *files, "x.tar"])
        trust = case.trust if rng.random() < 0.4 else Trust(case.trust.keys, allow_unsigned=True)
        place.mkdir()
        try:
            for name, content in files.items():
                (place / name).write_bytes(content)
            self._read(given, case, trust, place, strict=trust is case.trust and bool(trust.keys))
        finally:
            shutil.rmtree(place)
        assert _listing(self._folder) == self._outside, "something was written elsewhere"

    def _read(self, given: Path, case: Case, trust: Trust, place: Path, *, strict: bool) -> None:
        before = _listing(place)
        root = place / "root"
        passed: str | None = None
        try:
            passed = verify(given, trust=trust).digest
        except LbxError as exc:
            assert str(exc)
        assert _listing(place) == before, "verify wrote something"
        try:
            made = unpack(given, root, trust=trust, base=case.base)
        except LbxError:
            assert _listing(place) == before, "a refused unpack left something"
            assert passed is None or case.base is not None, "verify let in what unpack refuses"
            self.counts["refused"] += 1
            return
        assert made.digest == passed, "verify refuses what unpack lets in"
        if strict:
            assert made.digest == case.digest, "a trusted signature on something else"
        if made.digest == case.digest:
            for path, content in case.payload.items():
                assert (root / path).read_bytes() == content, path
        shutil.rmtree(root)
        assert _listing(place) == before
        self.counts["read"] += 1


def _listing(folder: Path) -> dict[str, str]:
    """Everything below ``folder``, and a sum of each file."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        found[name] = (
            "link" if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        )
    return found


# Each breaks some of an archive's files, in place


def _some(files: Mapping[str, bytes], rng: random.Random) -> str:
    return rng.choice(sorted(files))


def _flip(files: dict[str, bytes], rng: random.Random) -> None:
    name = _some(files, rng)
    data = bytearray(files[name])
    for _ in range(rng.choice((1, 1, 3, 20))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    files[name] = bytes(data)


def _header(files: dict[str, bytes], rng: random.Random) -> None:
    """A field of a tar header, and the header's own sum made right again."""
    name = _some(files, rng)
    data = bytearray(files[name])
    starts = [at for at in range(0, len(data) - 511, 512) if data[at + 257 : at + 262] == b"ustar"]
    if not starts:
        return
    at = rng.choice(starts)
    field = rng.choice(("name", "size", "kind", "prefix", "byte"))
    if field == "name":
        data[at : at + 100] = rng.choice(NAMES).ljust(100, b"\0")
    elif field == "size":
        data[at + 124 : at + 136] = rng.choice(NUMBERS) + b"\0"
    elif field == "kind":
        data[at + 156] = rng.choice(b"0123456789xgLKSZ\0")
        data[at + 157 : at + 162] = b"../.."
    elif field == "prefix":
        data[at + 345 : at + 355] = rng.choice((b"../../../.", b"/etc/xxxxx", b"x/x/x/x/x/"))
    else:
        data[at + rng.randrange(512)] = rng.randrange(256)
    data[at + 148 : at + 156] = b" " * 8
    data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    files[name] = bytes(data)


def _blocks(files: dict[str, bytes], rng: random.Random) -> None:
    """Blocks left out, doubled, moved, or put in from elsewhere."""
    name = _some(files, rng)
    data = files[name]
    unit = rng.choice((1, 7, 512, 512, 512, 10240))
    a, b = sorted(rng.randrange(len(data) // unit + 1) * unit for _ in range(2))
    piece = data[a:b] if rng.random() < 0.5 else rng.randbytes(rng.choice((0, 1, 511, 512, 2000)))
    where = rng.randrange(len(data) + 1)
    files[name] = rng.choice(
        (data[:a] + data[b:], data[:b] + piece + data[b:], data[:where] + piece + data[where:], data[:a])
    )


def _text(files: dict[str, bytes], rng: random.Random) -> None:
    """Words of the tag files, replaced by others, most of the same length."""
    pairs = [
        (b"data/files", b"data/filed"), (b"data/files", b"../../file"), (b'"size": ', b'"size":-'), (b"sha256", b"sha"),
        (b'"format": 1', b'"format": 9'), (b'"files": [', b'"files": {'), (b"lbx-base://x", b"lbx-base:///"),
        (b"lbx-bundle", b"lbx-bundel"), (b'"sources"', b'"sourcse"'), (b"\n", b"\r"), (b" ", b"\t"), (b"0", b"1"),
        (b"BagIt", b"BagIT"), (b'"', b"["), (b"ssh-ed25519", b"ssh-ed25518"), (b"config.json", b"config.JSON"),
        (b"llama", b"\xff\xfe\x00\x01\x02"), (b"model_type", b"auto_map  "), (b"a.txt", b"A.TXT"), (b"z.zip", b"z.pkl"),
    ]  # fmt: skip
    old, new = rng.choice(pairs)
    name = _some(files, rng)
    places = files[name].count(old)
    if places:
        parts = files[name].split(old)
        cut = rng.randrange(1, len(parts))
        files[name] = old.join(parts[:cut]) + new + old.join(parts[cut:])


def _files(files: dict[str, bytes], rng: random.Random) -> None:
    """Files of the archive swapped, missing, renamed, doubled."""
    one, two = _some(files, rng), _some(files, rng)
    step = rng.choice(("swap", "drop", "copy", "rename", "empty", "rubbish"))
    if step == "swap":
        files[one], files[two] = files[two], files[one]
    elif step == "drop" and len(files) > 1:
        del files[one]
    elif step in ("copy", "rename"):
        to = rng.choice(("x.tar", "x.tar.001", "x.tar.002", "x.tar.009", "x.tar.zst", "x.tar.zst.001", "x.SHA256SUMS"))
        files[to] = files[one]
        if step == "rename" and to != one:
            del files[one]
    elif step == "empty":
        files[one] = b""
    else:
        files[one] = rng.randbytes(rng.randrange(3000))


def _whole(files: dict[str, bytes], rng: random.Random) -> None:
    """Another tar altogether: right in all but what a forger would change."""
    entries = members(dict(FILES))
    for _ in range(rng.randrange(1, 4)):
        entry = rng.choice(entries)
        step = rng.randrange(5)
        if step == 0:
            entries.remove(entry)
        elif step == 1:
            entries.insert(rng.randrange(len(entries) + 1), entry)
        elif step == 2:
            rng.shuffle(entries)
        elif step == 3:
            entry.info.name = rng.choice(
                ("../evil", "/tmp/lbx-evil", "x/A", "x/e\u0301", "x/data/files/new", "y/bagit.txt")
            )
        else:
            entry.info.pax_headers = {"path": rng.choice(("../evil", "x/data/files/a.txt", "x")), "size": "12"}
    for name in [name for name in files if name.startswith("x.tar")]:
        del files[name]
    files["x.tar"] = tar_bytes(entries) if entries else b""


BREAKS: tuple[Callable[[dict[str, bytes], random.Random], None], ...] = (_flip, _header, _blocks, _text, _files, _whole)


def _reseal(files: dict[str, bytes], rng: random.Random) -> None:
    """Sums that fit again, and no signature: the forger has everything but the key."""
    volumes = sorted(name for name in files if name.startswith("x.tar"))
    if rng.random() < 0.3:
        files.pop("x.SHA256SUMS", None)
    else:
        listed = [Volume(name, hashlib.sha256(files[name]).hexdigest(), len(files[name])) for name in volumes]
        files["x.SHA256SUMS"] = render_sums(listed)
    if rng.random() < 0.8:
        files.pop("x.SHA256SUMS.sig", None)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "big")
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder))
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            try:
                fuzzer.one(random.Random(f"{seed}/{number}"))
            except BaseException as exc:
                exc.add_note(f"This was archive {number} of seed {seed}.")
                raise
            number += 1
    print(f"seed {seed}: {number} archives in {seconds:.0f} s: {fuzzer.counts}")


if __name__ == "__main__":
    main()
