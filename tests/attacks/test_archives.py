"""Hostile archives: what they hold, what they are called, and what lies in the place of a file beside them."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest

from tests.attacks.attack_parts import files, lbx, main, process, refused
from tests.bundle.forge import FILES, Member, member, members, write
from tests.bundle.sealed import make_key, seal

NAMES = (
    "../evil", "/tmp/evil", "data/files/../../../evil", "data/files/./a", "data//files/a", "data/files/", "C:/evil",
    "data/files/pass\u200bword.txt", "data/files/a\u00adb", "data/files/\ufeffa", "data/files/gpj.\u202etxt",
    "data/files/a\u2066b", "data/files/\u3164", "data/files/a\ufe0f", "data/files/\U000e0041",
    "data/files/a\x9b31mb", "data/files/a\x85b", "data/files/a\x1b[31m", "data/files/a\x7f", "data/files/a\nb",
    "data/files/CON", "data/files/nul.txt", "data/COM1/x", "data/files/lpt\u00b2.log", "data/files/conin$",
    "data/files/a:b", "data/files/a.txt:stream", "data/files/a.", "data/files/b /c", "data/files/...",
    "data/files/a\\b", "data/files/a%2e", "data/files/e\u0301", "data/files/" + "x" * 256, "data/" * 250 + "a",
    "data/files/A.TXT", "data/files/a.txt/b",
)  # fmt: skip


def unpack_refuses(archive: Path, tmp_path: Path, *words: str) -> None:
    """``lbx unpack`` verifies as it writes."""
    before = files(tmp_path)
    refused(main("unpack", archive, "--allow-unsigned", "--to", tmp_path / "out"), *words)
    assert files(tmp_path) == before
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_that_deceives_or_escapes_is_refused(name: str, tmp_path: Path) -> None:
    """As its manifest lists it, and as a tar holds it without telling the manifest."""
    (tmp_path / "in").mkdir()
    unpack_refuses(write(tmp_path / "in" / "x.tar", members({**FILES, name: b"x"})), tmp_path)
    (tmp_path / "in" / "x.tar").unlink()
    unpack_refuses(write(tmp_path / "in" / "x.tar", [*members(), member(f"x/{name}", b"x")]), tmp_path)


KINDS = {
    "symbolic link": {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd", "size": 0},
    "hard link": {"type": tarfile.LNKTYPE, "linkname": "x/data/files/b/c.txt", "size": 0},
    "FIFO": {"type": tarfile.FIFOTYPE, "size": 0},
    "block device": {"type": tarfile.BLKTYPE, "size": 0},
    "folder": {"type": tarfile.DIRTYPE, "size": 0},
    "sparse": {"type": tarfile.GNUTYPE_SPARSE},
    "GNU long name": {"type": tarfile.GNUTYPE_LONGNAME},
    "entry of type": {"type": b"V"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for place in (0, 5, 8):
        entries = members()
        entries.insert(place, member("x/data/files/evil", b"x", **KINDS[kind]))
        unpack_refuses(write(tmp_path / "in" / "x.tar", entries, tarfile.GNU_FORMAT), tmp_path)


def test_a_second_archive_behind_the_first_is_not_read(tmp_path: Path) -> None:
    """What `tar --ignore-zeros` and some readers would go on with."""
    archive = write(tmp_path / "x.tar", members())
    archive.write_bytes(archive.read_bytes() + write(tmp_path / "y", [member("x/data/files/evil", b"x")]).read_bytes())
    unpack_refuses(archive, tmp_path, "extra bytes follow its end mark")


def test_records_of_a_pax_header_do_not_rename_behind_the_manifest(tmp_path: Path) -> None:
    def pax(**records: str) -> list[Member]:
        entries = members()
        entries[5].info.pax_headers = records
        return entries

    (tmp_path / "in").mkdir()
    for records in ({"path": "x/../../evil"}, {"size": "999999999999"}, {"GNU.sparse.major": "1"}, {"path": "y/z"}):
        unpack_refuses(write(tmp_path / "in" / "x.tar", pax(**records)), tmp_path)


@pytest.mark.parametrize("name", ["x.SHA256SUMS", "x.SHA256SUMS.sig", "x.tar"])
def test_a_fifo_in_the_place_of_a_file_is_not_waited_for(name: str, tmp_path: Path) -> None:
    key = make_key(tmp_path)
    sums = seal(tmp_path / "in", key=key)
    sums.with_name(name).unlink()
    os.mkfifo(sums.with_name(name))
    for given in (sums, sums.with_name("x.tar")):
        refused(lbx("verify", given, "--trust", f"{key}.pub"), "regular file" if name != "x.tar" else "")


def test_the_umask_holds_for_what_is_unpacked(tmp_path: Path) -> None:
    archive = write(tmp_path / "x.tar", members())
    for umask, folder_mode, file_mode in ((0o077, 0o700, 0o600), (0o022, 0o755, 0o644), (0o027, 0o750, 0o640)):
        root = tmp_path / f"{umask:o}"
        before = os.umask(umask)
        try:
            assert main("unpack", archive, "--allow-unsigned", "--to", root).code == 0
        finally:
            os.umask(before)
        modes = {path.stat().st_mode & 0o7777 for path in [root, *root.rglob("*")] if path.is_dir()}
        assert modes == {folder_mode}
        assert {p.stat().st_mode & 0o7777 for p in root.rglob("*") if p.is_file()} == {file_mode}


CONFIG = b'{"auto_map": {"AutoConfig": "evil.Config"}, "fill": "'
CODE = {
    "over 16 MiB": CONFIG + b" " * (16 << 20) + b'"}',
    "nested": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b', "auto_map": {}}',
    "twice": b'{"auto_map": {"a": "b"}, "auto_map": {}}',
    "deep inside": json.dumps({"text_config": {"auto_map": {}}}).encode(),
    "escaped": rb'{"\u0061uto_map": {}}',
    "UTF-16": '{"auto_map": {}}'.encode("utf-16"),
}


@pytest.mark.parametrize("case", CODE)
def test_a_configuration_that_names_code_is_refused(case: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("config.json", "Tokenizer_Config.JSON"):
        path = f"data/hub/models--o--m/snapshots/0/{name}"
        unpack_refuses(write(tmp_path / "in" / "x.tar", members({**FILES, path: CODE[case]})), tmp_path, "is unsafe")


def test_the_bundler_does_not_pack_what_would_be_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    recipe = tmp_path / "r.toml"
    recipe.write_text('name = "r"\n[[source]]\nkind = "path"\npath = "model"\nto = "model"\n')
    for name, content in (("config.json", CODE["over 16 MiB"]), ("a\u200bb.txt", b""), ("aux.txt", b"")):
        (tmp_path / "model" / name).write_bytes(content)
        refused(main("bundle", recipe, "-o", tmp_path / "out"))
        (tmp_path / "model" / name).unlink()


def test_many_headers_do_not_fill_the_memory(tmp_path: Path) -> None:
    """A tag file that says it is huge is refused by its header; nobody waits for its bytes."""
    entries = members()
    entries[0].info.size = 1 << 40
    archive = tmp_path / "x.tar"
    out = io.BytesIO()
    out.write(entries[0].info.tobuf(tarfile.PAX_FORMAT))
    archive.write_bytes(out.getvalue() + bytes(20 * 512))
    os.truncate(archive, 1 << 41)  # sparse: takes no room
    limited = process("bash", "-c", f"ulimit -v 2000000; exec {sys.executable} -P -m lbx.cli verify {archive} "
                      "--allow-unsigned")  # fmt: skip
    refused(limited, "too large for a tag file")
