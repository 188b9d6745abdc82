"""What goes into the image: the wheelhouse's list, and a build that stops where the wheels do not fit."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.install
ROOT = Path(__file__).resolve().parent.parent.parent


def install(folder: Path, files: dict[str, str], *, damage: str = "") -> subprocess.CompletedProcess[str]:
    """image-install.sh in a wheelhouse of these files; none of these tests gets as far as installing."""
    house = folder / "wheelhouse"
    house.mkdir()
    shutil.copy(ROOT / ".ci" / "image-install.sh", house)
    for name, text in files.items():
        (house / name).write_text(text)
    sums = [f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in files.items()]
    (house / "SHA256SUMS").write_text("".join(sums))
    if damage:
        (house / damage).write_text("something else")
    script = ["sh", house / "image-install.sh", folder / "prefix"]
    done = subprocess.run(script, capture_output=True, text=True, check=False, cwd=folder)
    assert not (folder / "prefix").exists()
    assert done.returncode == 1
    return done


def test_a_base_with_another_python_stops_the_build(tmp_path: Path) -> None:
    said = install(tmp_path, {"made-for": "python=3.2\nvariant=cpu\n"}).stderr
    assert "the wheels are for 3.2" in said
    assert "Choose another BASE_IMAGE" in said


def test_a_damaged_wheelhouse_stops_the_build(tmp_path: Path) -> None:
    done = install(tmp_path, {"made-for": "python=3.11\n", "a.whl": "wheel"}, damage="a.whl")
    assert "a.whl: FAILED" in done.stdout
    assert "the wheelhouse is damaged" in done.stderr


def test_no_wheelhouse_stops_the_build(tmp_path: Path) -> None:
    assert "just wheelhouse" in install(tmp_path, {}).stderr


def test_the_wheelhouse_holds_what_runs_and_nothing_that_only_tests_need() -> None:
    listed = subprocess.run(
        [sys.executable, ROOT / ".ci" / "needs.py", "llama", "hf"], capture_output=True, text=True, check=True
    ).stdout
    names = set(re.findall(r"^([a-z0-9-]+)==", listed, re.MULTILINE))
    assert {"duckdb", "jieba", "transformers", "sentence-transformers", "scipy", "jinja2", "sympy"} <= names
    assert not names & {"pytest", "mypy", "ruff", "hypothesis", "torch", "llama-cpp-python", "lbx"}
    entries = re.split(r"\n(?=\S)", listed.strip())
    assert len(entries) == len(names)
    assert all("--hash=sha256:" in entry for entry in entries)
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    assert all(entry in lock for entry in entries)
