"""``lbx verify`` and ``lbx unpack`` as processes: what they refuse, and the evidence they give."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from lbx.results import Store
from tests.command_line import Lbx, fails


def test_what_nobody_has_signed_is_refused_unless_allowed(lbx: Lbx, archive: Path, tmp_path: Path) -> None:
    refused = lbx("verify", archive, "--json")
    assert refused.returncode == 1
    assert "is not signed" in refused.stderr
    told = json.loads(refused.stdout)
    assert (told["result"], told["path"]) == ("refused", str(archive))
    assert "not signed" in told["cause"]
    assert lbx("unpack", archive, "--to", tmp_path / "root").returncode == 1
    assert list(tmp_path.iterdir()) == []
    allowed = lbx.ok("verify", archive, "--allow-unsigned")
    assert "NOT signed by a trusted key" in allowed.stdout.splitlines()[0]
    assert "small.tar: intact, " in allowed.stdout


def test_a_results_file_is_no_archive(lbx: Lbx, tmp_path: Path) -> None:
    Store(tmp_path / "tpo.duckdb").close()
    done = lbx("unpack", tmp_path / "tpo.duckdb", "--to", tmp_path / "root")
    fails(done, 1, "tpo.duckdb is a results file, not an archive.", "Give the NAME.tar that `lbx bundle` wrote")
    assert "signed" not in done.stderr
    for options in ((), ("--allow-unsigned",)):
        fails(lbx("verify", tmp_path / "tpo.duckdb", *options), 2, "tpo.duckdb.attestation.jsonl.gz does not exist")


def test_the_evidence_names_the_key(lbx: Lbx, archive: Path, tmp_path: Path) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("needs ssh-keygen (Debian: openssh-client)")
    for name in ("small.tar", "small.SHA256SUMS"):
        shutil.copy(archive.with_name(name), tmp_path)
    key, sums = tmp_path / "key", tmp_path / "small.SHA256SUMS"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "officer", "-f", key], check=True)
    subprocess.run(["ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", "lbx-bundle", sums], check=True)
    shown = subprocess.run(["ssh-keygen", "-l", "-f", key], capture_output=True, text=True, check=True).stdout.split()[
        1
    ]
    done = lbx.ok("verify", tmp_path / "small.tar", "--trust", tmp_path / "key.pub")
    first, signature, *_ = done.stdout.splitlines()
    assert first.endswith("; signed by a trusted key")
    assert f"small.SHA256SUMS: officer (trusted), ssh-ed25519 {shown}, namespace lbx-bundle" in signature
    told = json.loads(lbx("unpack", sums, "--trust", tmp_path / "key.pub", "--to", tmp_path / "root", "--json").stdout)
    assert told["trusted"] is True
    assert told["signatures"][0]["key"] == shown
    bad = lbx("verify", tmp_path / "small.tar", "--trust", key)
    assert (bad.returncode, "is a private key" in bad.stderr) == (2, True)
