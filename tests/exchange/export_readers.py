"""The tools that read lbx's exports, in the environment that .ci/exchange-tools.sh makes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("LBX_EXCHANGE_TOOLS", ROOT / ".venv-exchange"))
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": ""}


def tool(name: str, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A program of the tools' environment; skips the test if the environment is missing."""
    program = FOLDER / "bin" / name
    if not program.exists():
        pytest.skip("no tools that read exports here; .ci/exchange-tools.sh installs them")
    return subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **OFFLINE},
        timeout=300,
    )


def told_by(script: str, *arguments: object) -> Any:
    """The JSON that Python code prints in the tools' environment."""
    done = tool("python", "-c", script, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
