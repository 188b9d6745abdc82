"""What has crossed the gap: volumes, sums and signatures first, contents only behind them."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import bagit
import pytest

from lbx.base.errors import BundleError, UsageError
from lbx.bundle import Trust, unpack, verify, verify_folder
from lbx.bundle.receiving import trusted_archive
from lbx.bundle.volumes import parse_volume_size
from tests.bundle.forge import FILES, members
from tests.bundle.sealed import contents, make_key, refuse, seal, tar_bytes

SIZE = 1 << 13


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize("size", [SIZE, 1 << 30])
def test_a_signed_archive_gives_its_evidence(place: Path, key: Path, trust: Trust, size: int, zstd: bool) -> None:
    sums = seal(place, key=key, volume_size=size, zstd=zstd)
    report = verify(sums, trust=trust)
    assert report.trusted
    assert [(signed.file, signed.signer, signed.trusted) for signed in report.signatures] == [
        ("x.SHA256SUMS", "key@here", True),
        ("tagmanifest-sha256.txt", "key@here", True),
    ]
    told = {volume.name: (volume.sha256, volume.size) for volume in report.volumes}
    there = {path.name: path.read_bytes() for path in place.glob("x.tar*")}
    assert told == {name: (hashlib.sha256(data).hexdigest(), len(data)) for name, data in there.items()}
    assert (len(told) > 1) == (size == SIZE and not zstd)
    assert {volume.result for volume in report.volumes} == {"intact"}
    spoken = json.loads(report.to_json())
    assert spoken["signatures"][0]["key"] == report.signatures[0].key
    assert spoken["result"] == "intact"
    assert spoken["lbx_version"]
    for given in [sums, *sorted(place.glob("x.tar*"))]:
        assert verify(given, trust=trust).digest == report.digest
    root = unpack(sums, place / "root", trust=trust).root
    assert {path: data for path, data in contents(root).items() if path.startswith("data/")} == FILES
    again = verify_folder(root, trust=trust)
    assert again.trusted
    assert again.digest == report.digest


def test_standard_programs_read_it(place: Path, key: Path, trust: Trust) -> None:
    """cat, tar, sha256sum, ssh-keygen and bagit, and nothing of ours."""
    sums = seal(place, key=key, volume_size=SIZE)
    (place / "allowed").write_text(f"me@here {key.with_suffix('.pub').read_text()}")
    checking = "ssh-keygen -Y verify -f {0}/allowed -I me@here -n lbx-bundle -s {1}.sig < {1}"
    script = [
        "sha256sum -c --strict x.SHA256SUMS",
        checking.format(place, sums.name),
        "cat x.tar.0* | tar -x",
        checking.format(place, "x/tagmanifest-sha256.txt"),
        "cd x && sha256sum -c --strict manifest-sha256.txt tagmanifest-sha256.txt",
    ]
    done = subprocess.run(["bash", "-ec", "\n".join(script)], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('Good "lbx-bundle" signature for me@here') == 2
    ours = unpack(sums, place / "root", trust=trust).root
    assert contents(ours) == contents(place / "x")
    for folder in (ours, place / "x"):
        assert bagit.Bag(str(folder)).validate(processes=1)


def test_ssh_keygen_may_sign_afterwards(place: Path, key: Path, trust: Trust) -> None:
    """An officer who has looked at a bundle signs its sums; the bundler's own signature then need not be trusted."""
    sums = seal(place)
    refuse(sums, trust, "is not signed")
    subprocess.run(["ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", "lbx-bundle", sums], check=True)
    assert verify(sums, trust=trust).trusted


def test_the_bundlers_signature_needs_no_trust_behind_the_officers(
    place: Path, key: Path, stranger: Path, trust: Trust
) -> None:
    sums = seal(place, key=stranger)
    refuse(sums, trust, "SHA256SUMS.sig was made with the untrusted key SHA256:", "not among the trusted keys")
    sums.with_name("x.SHA256SUMS.sig").unlink()
    subprocess.run(["ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", "lbx-bundle", sums], check=True)
    assert [signed.trusted for signed in verify(sums, trust=trust).signatures] == [True, False]


def test_the_flag_lets_in_what_is_not_signed_but_no_wrong_signature(
    place: Path, key: Path, stranger: Path, trust: Trust
) -> None:
    anyone = Trust.from_key_file(key.with_suffix(".pub"), allow_unsigned=True)
    sums = seal(place / "signed", key=stranger)
    assert not verify(sums, trust=anyone).trusted
    assert not unpack(sums, place / "root", trust=anyone).trusted
    assert not verify_folder(place / "root", trust=anyone).trusted
    with pytest.raises(BundleError, match="not among the trusted keys"):
        verify_folder(place / "root", trust=trust)
    sums.write_bytes(sums.read_bytes().replace(b"  x", b" *x"))
    refuse(sums, anyone, "SHA256SUMS.sig does not match")
    plain = seal(place / "plain")
    assert verify(plain, trust=anyone).signatures == []
    refuse(plain, trust, "is not signed", "--allow-unsigned")


def test_nothing_is_parsed_before_sums_and_signature(
    place: Path, key: Path, trust: Trust, stranger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(*_: object) -> None:
        pytest.fail("the archive was parsed")

    sums = seal(place / "a", key=key, volume_size=SIZE)
    last = sorted(sums.parent.glob("x.tar.*"))[-1]
    last.write_bytes(last.read_bytes()[:-1] + b"\x01")
    strange = seal(place / "b", key=stranger)
    monkeypatch.setattr(trusted_archive, "TarReader", parse)
    refuse(sums, trust, last.name, "does not have the sha256")
    refuse(strange, trust, "not among")
    refuse(seal(place / "c"), trust, "not signed")


def test_no_payload_is_read_before_the_signed_manifest(place: Path, key: Path, stranger: Path, trust: Trust) -> None:
    """Unsigned sums around an archive whose own signature is of another: the payload's damage is never reached."""
    entries = members({**FILES, "data/files/a.txt": b"FIRST"}, listed=FILES)
    both = Trust(trust.keys, allow_unsigned=True)
    refuse(seal(place / "a", entries), both, "data/files/a.txt (changed)")
    sums = seal(place / "b", entries, key=stranger)
    text = sums.with_name("x.tar").read_bytes()
    place_of_signature = text.index(b"-----BEGIN SSH") + 200
    broken = text[:place_of_signature] + b"AAAAAAAA" + text[place_of_signature + 8 :]
    sums.with_name("x.tar").write_bytes(broken)
    for name in ("x.SHA256SUMS", "x.SHA256SUMS.sig"):
        sums.with_name(name).unlink()
    refuse(sums.with_name("x.tar"), both, "tagmanifest-sha256.txt.sig")


# Volumes: swapped, missing, foreign, stale, cut, too long


def swap(sums: Path) -> None:
    one, two = sums.with_name("x.tar.001"), sums.with_name("x.tar.002")
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(first)


def rewrite(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda sums: sums.with_name(name).write_bytes(change(sums.with_name(name).read_bytes()))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (swap, ["x.tar.001, x.tar.002 does not have the sha256", "keep the other volumes"]),
        (lambda sums: sums.with_name("x.tar.002").unlink(), ["lists x.tar.002, but its folder does not contain it"]),
        (lambda sums: sums.with_name("x.tar.001").unlink(), ["lists x.tar.001"]),
        (
            lambda sums: sums.with_name("x.tar.777").write_bytes(b""),
            ["x.tar.777 belongs to another or an older archive"],
        ),
        (lambda sums: sums.with_name("x.tar").write_bytes(b""), ["x.tar belongs to another"]),
        (lambda sums: sums.with_name("x.tar.zst.001").write_bytes(b""), ["x.tar.zst.001 belongs to another"]),
        (rewrite("x.tar.002", lambda data: data[:-7]), ["x.tar.002 (8,185 bytes instead of 8,192)"]),
        (rewrite("x.tar.002", lambda data: data + b"x"), ["x.tar.002 (8,193 bytes instead of 8,192)"]),
        (rewrite("x.tar.001", lambda data: data[:-1] + b"x"), ["x.tar.001 does not have", "Copy it again"]),
        (rewrite("x.tar.003", lambda data: data[:-512]), ["x.tar.003 does not have"]),
        (
            rewrite("x.SHA256SUMS", lambda data: b"".join(data.splitlines(True)[:-1])),
            ["x.SHA256SUMS.sig does not match"],
        ),
        (rewrite("x.SHA256SUMS.sig", lambda data: data[:100]), ["x.SHA256SUMS.sig is not an SSH signature"]),
        (lambda sums: sums.with_name("x.SHA256SUMS.sig").unlink(), ["is not signed"]),
        (lambda sums: shutil.move(sums, sums.with_name("y.SHA256SUMS")), ["x.SHA256SUMS does not exist"]),
    ],
)
def test_a_wrong_volume_is_named(
    place: Path, key: Path, trust: Trust, change: Callable[[Path], object], named: list[str]
) -> None:
    sums = seal(place, key=key, volume_size=SIZE)
    assert {path.name for path in place.glob("x.tar.*")} == {"x.tar.001", "x.tar.002", "x.tar.003"}
    change(sums)
    refuse(sums, trust, *named)


def test_a_stale_volume_is_named(place: Path, key: Path, trust: Trust, tmp_path: Path) -> None:
    """A volume of an earlier bundle of the same name and size."""
    sums = seal(place, key=key, volume_size=SIZE)
    old = seal(tmp_path / "old", members({**FILES, "data/files/b/c.txt": b"SECOND" * 400}), key=key, volume_size=SIZE)
    shutil.copy(old.with_name("x.tar.002"), place)
    refuse(sums, trust, "x.tar.002 does not have the sha256")
    for name in ("x.SHA256SUMS", "x.SHA256SUMS.sig"):
        shutil.copy(old.with_name(name), place)
    refuse(sums, trust, "x.tar.001")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "does not list x.tar"),
        (b"hello\n", "Line 1 of"),
        (b"0" * 64 + b"  ../x.tar\n", "does not list x.tar"),
        (b"0" * 64 + b"  /tmp/x.tar\n", "does not list x.tar"),
        (b"0" * 64 + b"  x.tar.002\n", "does not list x.tar or all of its volumes"),
        (b"0" * 64 + b"  y.tar\n", "does not list x.tar"),
        ((b"0" * 64 + b"  x.tar\n") * 2, "Line 2 of"),
        (b"0" * 2_000_000, "too large"),
    ],
)
def test_sums_that_are_none_are_refused(place: Path, text: bytes, message: str) -> None:
    sums = seal(place)
    sums.write_bytes(text)
    refuse(sums, Trust(allow_unsigned=True), message)


def test_volumes_without_sums_are_read_when_allowed(place: Path, key: Path) -> None:
    anyone = Trust(allow_unsigned=True)
    sums = seal(place, volume_size=SIZE)
    sums.unlink()
    archive = place / "x.tar"
    assert [volume.result for volume in verify(archive, trust=anyone).volumes] == ["not listed"] * 3
    assert unpack(place / "x.tar.002", place.parent / "r", trust=anyone).files == 3
    (place / "x.tar.003").unlink()
    refuse(archive, anyone, "is truncated")
    (place / "x.tar.004").write_bytes(b"")
    refuse(archive, anyone, "lacks its volumes x.tar.003")
    archive.write_bytes(b"")
    refuse(archive, anyone, "cannot both belong to the same bundle")


def test_damaged_zstd_is_refused(place: Path) -> None:
    anyone = Trust(allow_unsigned=True)
    sums = seal(place, zstd=True)
    archive, good = place / "x.tar.zst", (place / "x.tar.zst").read_bytes()
    refuse_of = {
        good[:-20]: "truncated",
        good + b"x": "extra bytes follow its zstd frame",
        good[:40] + bytes(9) + good[49:]: "",
    }
    sums.unlink()
    for damaged, said in refuse_of.items():
        archive.write_bytes(damaged)
        refuse(archive, anyone, said)


def test_volume_sizes_are_checked() -> None:
    assert [parse_volume_size(text) for text in ("65536", "650M", "2GiB", "1 gb")] == [
        65536,
        650 * 10**6,
        2 << 30,
        10**9,
    ]
    for wrong in ("", "x", "-1", "1k", "4GiB", "4294967296", "1.5G"):
        with pytest.raises(UsageError, match="volume-size"):
            parse_volume_size(wrong)


# What may not travel, though its sums are right


def test_a_forged_file_needs_the_recipes_word(place: Path) -> None:
    anyone = Trust(allow_unsigned=True)
    cases = {
        "data/files/m.pkl": (b"x", "m.pkl is unsafe: it is a pickle"),
        "data/files/pytorch_model.bin": (b"x", "pytorch_model.bin is unsafe: it is a pickle"),
        "data/files/modeling.py": (b"x", "modeling.py is unsafe: it is code"),
        "data/files/config.json": (
            b'{"a": {"auto_map": {}}}',
            "config.json is unsafe: it names code to run (auto_map)",
        ),
    }
    for number, (path, (content, said)) in enumerate(cases.items()):
        for zstd in (False, True):
            refuse(seal(place / f"{number}{zstd}", members({**FILES, path: content}), zstd=zstd), anyone, said)
    files = {**FILES, "data/files/m.pkl": b"x"}
    sums = seal(place / "allowed", members(files, allowed=["data/files/m.pkl"]))
    assert verify(sums).unsafe == ["data/files/m.pkl"]
    root = unpack(sums, place / "root").root
    assert verify_folder(root).unsafe == ["data/files/m.pkl"]


def test_a_zip_bomb_is_refused(place: Path, bomb: bytes) -> None:
    files = {**FILES, "data/files/data.zip": bomb}
    for zstd in (False, True):
        sums = seal(place / f"{zstd}", members(files, allowed=["data/files/data.zip"]), zstd=zstd)
        refuse(sums, Trust(allow_unsigned=True), "data.zip is unsafe", "a zip bomb")


def test_an_archive_of_many_large_files_is_hashed_by_several_threads(place: Path, key: Path, trust: Trust) -> None:
    files = {f"data/files/{n}": bytes([n]) * (3 << 20) for n in range(5)}
    sums = seal(place / "a", members(files), key=key, volume_size=4 << 20)
    assert verify(sums, trust=trust).bytes == 15 << 20
    root = unpack(sums, place / "root", trust=trust).root
    assert {f"data/files/{n}": (root / f"data/files/{n}").read_bytes() for n in range(5)} == files
    wrong = {path: content if path[-1] != "3" else b"x" + content[1:] for path, content in files.items()}
    anyone = Trust(allow_unsigned=True)
    refuse(seal(place / "b", members(wrong, listed=files), volume_size=4 << 20), anyone, "data/files/3 (changed)")


def test_the_tar_of_the_tests_is_what_the_volumes_join_to(place: Path) -> None:
    seal(place, volume_size=SIZE)
    assert b"".join(path.read_bytes() for path in sorted(place.glob("x.tar.*"))) == tar_bytes(members())
