"""The shell scripts: what makes one fail now and then, and without a word."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SCRIPTS = sorted(
    path
    for folder in (".ci", "lbx/cluster", "models", "tests", "tools")
    for path in (REPOSITORY / folder).rglob("*")
    if path.suffix in (".sh", ".py", "") and path.is_file() and path != Path(__file__)
    if b"pipefail" in path.read_bytes()
)
LEAVES_EARLY = re.compile(r"\|\s*(?:head\b|grep\s+(?:-\w+\s+)*-\w*[qm]|sed\b[^|\n]*\dq\b|awk\b[^\n]*\bexit\b)")


def test_scripts_are_looked_at() -> None:
    assert {"run", "wheelhouse.sh", "demo.sh", "real.sh"} <= {path.name for path in SCRIPTS}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_pipe_has_a_reader_that_leaves_early(path: Path) -> None:
    """Its writer dies of SIGPIPE now and then, and pipefail makes that the script's end: 141, without a word."""
    text = path.read_text("utf-8").replace("\\\n", " ").replace("|\n", "| ")
    assert [line for line in text.splitlines() if LEAVES_EARLY.search(line)] == []


def test_what_such_a_pipe_does() -> None:
    """Why: a long writer ends by it every time."""
    script = "set -euo pipefail; first=$(seq 1000000 | {}); echo $first"
    early, late = ("awk '{print; exit}'", "awk 'NR == 1'")
    ends = [subprocess.run(["bash", "-c", script.format(reader)], check=False).returncode for reader in (early, late)]
    assert ends == [141, 0]
