"""Files beside ``data/``, where no rule about formats holds: a bundle has its own records there, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.attack_parts import files, main, refused
from tests.bundle.forge import FILES, members
from tests.bundle.sealed import make_key, seal

HOSTILE = ("signal.py", "lbx/__init__.py", "lbx/evil.so", "model.pkl", "setup.cfg", "x.pth", ".git/hooks/post-checkout",
           "tagmanifest-md5.txt", "lbx/sbom.cdx.json/x", "LBX/bundle.json", "config.json")  # fmt: skip


@pytest.mark.parametrize("zstd", [False, True])
@pytest.mark.parametrize("path", HOSTILE)
def test_a_foreign_tag_file_is_refused_though_all_sums_fit(path: str, zstd: bool, tmp_path: Path) -> None:
    sums = seal(tmp_path / "in", members(extra={path: b"open('PWNED', 'w')"}), zstd=zstd)
    for more in ((), ("--refuse-unsafe",)):
        refused(main("verify", sums, "--allow-unsigned", *more), "is refused")
        refused(main("unpack", sums, "--allow-unsigned", "--to", tmp_path / "out", *more), "is refused")
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_a_trusted_signature_does_not_let_one_in(tmp_path: Path) -> None:
    """A key that is trusted to bundle may have been lent."""
    key = make_key(tmp_path)
    sums = seal(tmp_path / "in", members(extra={"signal.py": b""}), key=key)
    refused(main("unpack", sums, "--trust", f"{key}.pub", "--to", tmp_path / "out"), "it contains signal.py")


def test_one_in_an_unpacked_folder_is_named(tmp_path: Path) -> None:
    root = tmp_path / "out"
    assert main("unpack", seal(tmp_path / "in"), "--allow-unsigned", "--to", root).code == 0
    assert {path for path in files(root) if path.startswith("data/")} == set(FILES)
    (root / "signal.py").write_bytes(b"x" * (1 << 20))
    refused(main("verify", root, "--allow-unsigned"), "it contains signal.py")
    refused(main("tasks", "--bundle", root / "signal.py"), "is a file, not a bundle folder")
