"""Files of the working folder that Python, or a search for a program, would run: none is, whatever starts a process."""

from __future__ import annotations

import ast
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.attack_parts import TESTS, Said, process

LBX = Path(sys.executable).with_name("lbx")
MODULES = (
    "signal",
    "json",
    "ctypes",
    "socket",
    "queue",
    "jinja2",
    "numpy",
    "duckdb",
    "typer",
    "multiprocessing",
    "sitecustomize",
    "usercustomize",
    "lbx/__init__",
    "llama_cpp/__init__",
    "resource",
    "logging/__init__",
)
PROGRAMS = ("ssh-keygen", "nvidia-smi", "sbatch", "squeue")
PLACE = TESTS.parent / "lbx" / "base" / "processes.py"


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A working folder in which every file says so when it is run."""
    folder = tmp_path / "trap"
    for name in MODULES:
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"open({str(tmp_path / 'PWNED')!r}, 'a').write({name!r} + chr(10))\n")
    for name in PROGRAMS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path / 'PWNED'}\nexit 1\n")
        (folder / name).chmod(0o755)
    return folder


def harmless(said: Said, trap: Path, *, code: int = 0) -> None:
    pwned = trap.with_name("PWNED")
    assert not pwned.exists(), pwned.read_text()
    assert said.code == code, said


def asked(small: Path, results: object, *more: object) -> tuple[object, ...]:
    return (
        "run",
        "--bundle",
        small / "bundle",
        "--model",
        small / "oracle.jsonl",
        "-t",
        "needle/single_en",
        "-o",
        results,
        *more,
    )


def test_no_process_of_a_run_and_of_scoring_looks_into_the_working_folder(small: Path, trap: Path) -> None:
    harmless(process(LBX, *asked(small, "r.duckdb", "--workers", 2), cwd=trap), trap)
    scored = process(LBX, "score", "r.duckdb", "--processes", 2, cwd=trap)
    harmless(scored, trap)


def test_importing_predictions_starts_no_file(trap: Path) -> None:
    row = {"pred": "Paris", "answers": ["Paris"], "all_classes": None, "length": 9}
    (trap / "pred").mkdir()
    (trap / "pred/qasper.jsonl").write_text(f"{json.dumps(row)}\n" * 256)
    harmless(
        process(LBX, "import", "longbench", "pred", "--model-name", "m", "-o", "r", "--processes", 2, cwd=trap), trap
    )


@pytest.mark.parametrize("way", [("-P", "-m", "lbx.cli"), ("-m", "lbx.cli")])
def test_python_m_keeps_to_what_is_installed(small: Path, trap: Path, way: tuple[str, ...]) -> None:
    if way[0] != "-P":  # Python itself runs ./lbx then, before a line of ours; SECURITY.md says so
        for name in ("lbx", "logging"):
            shutil.rmtree(trap / name)
        for name in ("json", "ctypes", "socket", "queue", "typer", "multiprocessing", "resource", "numpy"):
            (trap / f"{name}.py").unlink()
    harmless(process(sys.executable, *way, *asked(small, "r.duckdb", "--workers", 1, "-n", 2), cwd=trap), trap)


def test_an_empty_entry_of_a_python_path_is_not_the_working_folder(small: Path, trap: Path) -> None:
    """As `PYTHONPATH=$PYTHONPATH:/some/where` makes it. What Python imports before lbx is out of reach."""
    for path in [*trap.rglob("*.py")]:
        if path.stem not in ("signal", "queue", "jinja2", "duckdb"):
            path.unlink()
    (trap / "modules").mkdir()
    (trap / "modules" / "ctypes.py").write_text((trap / "signal.py").read_text())
    environment = {"PYTHONPATH": f":{trap.parent}:modules"}
    harmless(process(LBX, *asked(small, "r.duckdb", "--workers", 1, "-n", 2), cwd=trap, env=environment), trap)


def test_programs_are_not_looked_for_in_the_working_folder(small: Path, trap: Path, tmp_path: Path) -> None:
    environment = {"PATH": f":.:{os.environ['PATH']}"}
    key = tmp_path / "key"
    process("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    signed = process(LBX, "bundle", small / "small.toml", "--sign", key, "-o", "out", cwd=trap, env=environment)
    harmless(signed, trap)
    harmless(process(LBX, *asked(small, "r.duckdb", "-n", 2), cwd=trap, env=environment), trap)


def test_a_slurm_job_starts_no_file_of_the_folder_it_was_submitted_in(small: Path, trap: Path) -> None:
    made = process(
        sys.executable, "-P", "-m", "lbx.cli", "submit", "slurm", *asked(small, "run")[1:], "--shards", 2,
        "--characters", "--no-measure-speed", "--dry-run", "--json", cwd=trap,
    )  # fmt: skip
    assert made.code == 0, made
    for name, script in json.loads(made.out)["scripts"].items():
        (trap / name).write_text(script)
        environment = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_RESTART_COUNT": "99", "TMPDIR": str(trap.parent)}
        said = process("bash", name, cwd=trap, env=environment)
        assert "error:" in said.err, said  # it came to lbx, which finds no folder of the run
        harmless(said, trap, code=said.code)


def test_a_model_brings_no_library_from_the_working_folder(
    small: Path, trap: Path, demo_gguf: Path, tmp_path: Path
) -> None:
    """llama.cpp looks for its CPU code in the working folder, too, where it is left to itself."""
    source = tmp_path / "evil.c"
    source.write_text(
        '#include <stdio.h>\n__attribute__((constructor)) static void run(void) { FILE *f = fopen("%s", "a"); '
        'if (f) { fputs("library\\n", f); fclose(f); } }\n' % (tmp_path / "PWNED")
    )
    for name in ("libggml-cpu-haswell.so", "libggml-cpu.so", "libggml-cuda.so", "libllama.so", "libggml-blas.so"):
        assert process("cc", "-shared", "-fPIC", "-o", trap / name, source).code == 0
    said = process(
        LBX,
        "run",
        "--bundle",
        small / "bundle",
        "--model",
        demo_gguf,
        "-t",
        "needle/single_en",
        "-o",
        "r",
        "-n",
        1,
        cwd=trap,
    )
    harmless(said, trap)


def test_a_program_beside_the_working_folder_of_the_image_is_none_of_pythons() -> None:
    assert "PYTHONSAFEPATH=1" in (TESTS.parent / "Containerfile").read_text("utf-8")


STARTERS = {"subprocess", "pty", "runpy", "_posixsubprocess"}
OF_OS = ("system", "popen", "exec", "spawn", "posix_spawn", "startfile")
SHARED_STATE = ("multiprocessing.connection", "multiprocessing.process")


def ways_around(tree: ast.AST) -> Iterator[str]:
    """What in a module could start a process by itself. ``os.fork`` starts no program: the copy has the same path."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            whole = node.module or ""
            names = [f"{whole}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [f"{node.value.id}.{node.attr}"]
        else:
            continue
        for name in names:
            room, _, rest = name.partition(".")
            if room in STARTERS or (room == "os" and rest.startswith(OF_OS)) or name == "sys.executable":
                yield name
            if room == "multiprocessing" and not name.startswith(SHARED_STATE) and rest != "parent_process":
                yield name
            if name in ("shutil.which", "concurrent.futures.process") or rest.startswith("create_subprocess"):
                yield name


def test_no_other_module_starts_a_process() -> None:
    found = {
        str(path.relative_to(PLACE.parent)): sorted(set(ways_around(ast.parse(path.read_text("utf-8")))))
        for path in sorted(PLACE.parent.rglob("*.py"))
        if path != PLACE
    }
    assert {path: ways for path, ways in found.items() if ways} == {}
    assert set(ways_around(ast.parse(PLACE.read_text("utf-8")))) >= {"subprocess.Popen", "sys.executable"}


def test_the_trap_is_one(trap: Path) -> None:
    """Plain Python falls into it."""
    assert process(sys.executable, "-c", "import signal, json", cwd=trap).code == 0
    assert set(trap.with_name("PWNED").read_text().split()) >= {"signal", "json"}
    assert all((trap / name).stat().st_mode & stat.S_IXUSR for name in PROGRAMS)
