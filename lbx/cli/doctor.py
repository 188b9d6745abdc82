"""``lbx doctor``: what this machine can do, before anything depends on it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
from pathlib import Path
from typing import Any

import typer

from lbx import __version__
from lbx.cli.options import AsJson
from lbx.cli.output import stdout

_LIBRARIES = ("llama-cpp-python", "torch", "transformers", "duckdb", "huggingface-hub")
_INSTRUCTIONS = ("avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_vnni", "amx_int8", "neon", "asimd", "sve")


def doctor(as_json: AsJson = False) -> None:
    """Say what this machine has: CPU instructions in use, GPU, memory, backends, whether it is offline.

    Fails (exit code 1) when no backend can run.

    Example: lbx doctor --json
    """
    facts: dict[str, Any] = {
        "lbx": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "memory": _memory(),
        "disk": f"{shutil.disk_usage(Path.cwd()).free / 1e9:.1f} GB free here",
        "network": _network(),
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "llamacpp": _llamacpp(),
        "hf": _hf(),
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        _show(facts)
    if not (facts["llamacpp"]["usable"] or facts["hf"]["usable"]):
        raise typer.Exit(1)


def _show(facts: dict[str, Any], indent: str = "") -> None:
    for name, value in facts.items():
        if isinstance(value, dict):
            stdout().print(f"{indent}[bold]{name}[/]")
            _show(value, indent + "  ")
        else:
            stdout().print(f"{indent}{name}: {value}", markup=False, highlight=False)


def _cpu() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    text = info.read_text("utf-8") if info.is_file() else ""
    lines = [line.partition(":") for line in text.split("\n\n", maxsplit=1)[0].splitlines()]
    fields = {name.strip(): value.strip() for name, _, value in lines}
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return {
        "model": fields.get("model name", platform.machine()),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "instructions": " ".join(name for name in _INSTRUCTIONS if name in flags) or "unknown",
    }


def _memory() -> str:
    info = Path("/proc/meminfo")
    if not info.is_file():
        return "unknown"
    fields = dict(line.split(":", 1) for line in info.read_text("utf-8").splitlines())
    total, free = (int(fields[name].split()[0]) / 1e6 for name in ("MemTotal", "MemAvailable"))
    return f"{total:.1f} GB, {free:.1f} GB available"


def _network() -> str:
    from lbx.engine.offline import network_interfaces

    found = network_interfaces()
    return f"interfaces {', '.join(found)}; a run refuses to use them" if found else "none: offline"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _llamacpp() -> dict[str, Any]:
    if _version("llama-cpp-python") == "not installed":
        return {"usable": False, "why": "not installed: pip install 'lbx[llama]'"}
    from lbx.backends.llama.backend import cpu_variant
    from lbx.errors import BackendError

    try:
        return {"usable": True, "cpu_variant": cpu_variant()}
    except BackendError as error:
        return {"usable": False, "why": str(error)}


def _hf() -> dict[str, Any]:
    if "not installed" in (_version("torch"), _version("transformers")):
        return {"usable": False, "why": "not installed: pip install 'lbx[hf]'"}
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"usable": False, "why": f"torch does not load: {error}"}
    gpus = (
        [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    )
    return {"usable": True, "gpus": ", ".join(gpus) or "none", "cpu_kernels": torch.backends.cpu.get_cpu_capability()}
