"""lbx's modules import each other at their top. A function imports one only where a library that takes long, or that
may not be installed, hangs on it at its top, or where the reason stands here.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

LBX = Path(__file__).resolve().parents[1] / "lbx"
MOST = 40
HEAVY = {"torch", "transformers", "llama_cpp", "duckdb", "numpy", "httpx2", "jinja2", "starlette", "uvicorn"}
REASONS = {
    ("options/run_spec.py", "lbx.backends.weights"): "a tenth of what `lbx run --help` takes, and only shards need it",
    ("cli/main.py", "lbx.options.meanings"): "verify and unpack, whose code an officer reads, do without it",
    ("cli/__main__.py", "lbx.cli.main"): "Ctrl-C during its imports ends without a traceback",
    ("base/crash_report.py", "lbx.base.processes"): "the module is also a script that starts without lbx",
}


def local_imports() -> list[tuple[str, str]]:
    """The file and the module of each import of lbx in a function."""
    return [
        (str(path.relative_to(LBX)), name)
        for path in sorted(LBX.rglob("*.py"))
        for function in _functions(ast.parse(path.read_text("utf-8")))
        for line in ast.walk(function)
        for name in _imported(line)
    ]


def _functions(module: ast.Module) -> list[ast.AST]:
    """The outermost ones, methods included."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    inner = {id(one) for outer in ast.walk(module) if isinstance(outer, kinds) for one in [*ast.walk(outer)][1:]}
    return [one for one in ast.walk(module) if isinstance(one, kinds) and id(one) not in inner]


def _imported(line: ast.AST) -> list[str]:
    names = []
    if isinstance(line, ast.ImportFrom):
        home, parts = line.module or "", [one.name for one in line.names]
        modules = [part for part in parts if _is_module(home, part)]
        names = [home] if len(modules) < len(parts) else [f"{home}.{modules[0]}"]  # one statement counts once
    names += [one.name for one in line.names] if isinstance(line, ast.Import) else []
    return [name for name in names if re.match(r"lbx\b", name)]


def _is_module(home: str, name: str) -> bool:
    place = LBX.parent / home.replace(".", "/") / name
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def test_few_imports_hide_in_functions() -> None:
    assert len(local_imports()) <= MOST


@pytest.mark.parametrize("name", sorted({name for place, name in local_imports() if (place, name) not in REASONS}))
def test_something_heavy_hangs_on_what_a_function_imports(name: str) -> None:
    """They are kept away, and the first that is missed is named: to load them all takes a minute."""
    code = f"import sys; sys.modules |= dict.fromkeys({HEAVY}); from {name} import *"  # what a lazy room loads, too
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    missed = re.search(r"(?:import of |No module named ')(\w+)", done.stderr)
    assert missed and missed[1] in HEAVY, done.stderr


@pytest.mark.parametrize("command", ["verify", "unpack"])
def test_commands_that_read_archives_load_little(command: str, tmp_path: Path) -> None:
    """An officer reads what they load: no benchmark, no maker of archives, no results file."""
    archive = tmp_path / "long.tar"
    archive.write_bytes(bytes(10240))
    words = {"verify": [], "unpack": ["--to", str(tmp_path / "long")]}[command]
    code = (
        "import sys; from lbx.cli.main import main\n"
        f"sys.argv = ['lbx', {command!r}, {str(archive)!r}, '--allow-unsigned', *{words!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stdout)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert "lbx.bundle.receiving.trusted_archive" in modules, done.stderr
    own = [name for name in modules if re.match(r"lbx\b", name)]
    assert len(own) <= 43, own
    unwanted = ("lbx.benchmarks", "lbx.bundle.making", "lbx.results", "lbx.opinions")
    assert not [name for name in own if name.startswith(unwanted)]
    assert not {"numpy", "duckdb", "huggingface_hub", "jinja2"} & set(modules)


def test_one_benchmark_loads_no_other() -> None:
    code = "import sys, lbx.benchmarks.mrcr; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[2] for name in done.stdout.split() if name.startswith("lbx.benchmarks.")}
    assert "mrcr" in loaded and loaded <= {"mrcr", "base", "metrics", "retrieval"}, loaded


def test_every_reason_is_needed() -> None:
    assert set(REASONS) <= set(local_imports())
