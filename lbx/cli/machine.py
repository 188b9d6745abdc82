"""Commands ``lbx doctor`` and ``lbx models``: capabilities and models of this machine."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from lbx.backends.hf.library import MULTIPLYING_FEATURES, multiplying_feature, processor_features
from lbx.backends.llama.library import (
    cpu_variant,
    find_libraries,
    list_devices,
    load_llama_cpp,
    select_variant,
    unused_libraries,
)
from lbx.backends.llama.variants import check_variants
from lbx.backends.weights import list_models
from lbx.base.errors import BackendError
from lbx.base.exit_codes import ExitCode
from lbx.base.inputs import SMALL, expand_user, read_input
from lbx.base.processes import DEVNULL, PIPE, start_python
from lbx.base.resources import (
    CpuTimes,
    available_memory,
    bound_cpus,
    cpu_quota,
    describe_cpu_limit,
    describe_neighbours,
    memory_limit,
    usable_cpu_count,
)
from lbx.base.units import format_size
from lbx.base.version import __version__
from lbx.cli.measure_options import DoctorOptions, Need
from lbx.cli.output import answer_json, note, stdout
from lbx.running.offline import network_interfaces

_LIBRARIES = ("llama-cpp-python", "torch", "transformers", "sentence-transformers", "duckdb", "huggingface-hub")
_INSTRUCTIONS = (
    "avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_int8", "amx_bf16", "amx_fp16",
    "neon", "asimd", "sve", "bf16",
)  # fmt: skip
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY")
_KERNEL_PROGRAM = """
import json
from lbx.backends.hf.kernel import kernel_name, unused_kernels
print(json.dumps([kernel_name(), dict(unused_kernels())]))
"""
_GPU_FIX = (
    "A container sees the GPU only if you pass it: podman run --device nvidia.com/gpu=all, apptainer exec "
    "--nv. On the machine itself, nvidia-smi shows whether the driver works."
)


def doctor(options: DoctorOptions) -> None:
    note("Loading and trying the libraries that run models takes up to half a minute.")
    facts: dict[str, Any] = {
        "lbx": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "container": _container(),
        "cpu": _cpu(),
        "memory": _memory(),
        "writable": _folders(),
        "network": _network(),
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "llamacpp": _llamacpp(),
        "hf": _hf(),
        "models": _models(),
    }
    facts["problems"] = list(map(asdict, _findings(facts, frozenset(options.need))))
    if options.as_json:
        answer_json(json.dumps(facts, indent=2))
    else:
        _show_facts({name: value for name, value in facts.items() if name != "problems"})
        for problem in facts["problems"]:
            stdout().print(f"{'Fails' if problem['fatal'] else 'Note'}: {problem['cause']} {problem['fix']}")
    if any(problem["fatal"] for problem in facts["problems"]):
        raise typer.Exit(ExitCode.FAILED)


def _show_facts(facts: dict[str, Any], indent: str = "") -> None:
    for name, value in facts.items():
        if isinstance(value, dict):
            stdout().print(Text(f"{indent}{name}", "bold"))
            _show_facts(value, indent + "  ")
        else:
            label = name if isinstance(value, str) else name.removesuffix("_bytes")
            stdout().print(f"{indent}{label}: {_format_fact(name, value)}", highlight=False)


def _format_fact(name: str, value: Any) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes") and not isinstance(value, str):
        return format_size(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _container() -> str | None:
    if os.environ.get("APPTAINER_CONTAINER") or os.environ.get("SINGULARITY_CONTAINER"):
        return "apptainer"
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    marker_files = {"/run/.containerenv": "podman", "/.dockerenv": "docker"}
    runtime = os.environ.get("container")  # noqa: SIM112 (podman and systemd-nspawn spell it so)
    return runtime or next((kind for path, kind in marker_files.items() if Path(path).exists()), None)


def _cpu() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    text = read_input(info, SMALL).decode() if info.is_file() else ""
    lines = [line.partition(":") for line in text.split("\n\n", maxsplit=1)[0].splitlines()]
    fields = {name.strip(): value.strip() for name, _, value in lines}
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return {
        "model": fields.get("model name", platform.machine()),
        "cores": len(bound_cpus()),
        "quota_cores": cpu_quota(),
        "usable": usable_cpu_count(),
        "used_by_others": _cpus_of_others(),
        "instructions": [name for name in _INSTRUCTIONS if name in flags],
    }


def _cpus_of_others() -> float | None:
    """Measure for half a second how many CPUs other processes use. Returns None if unknown."""
    before = CpuTimes.measure()
    time.sleep(0.5)
    busy = before.busy_cpus(CpuTimes.measure())
    return None if busy is None else round(busy, 1)


def _memory() -> dict[str, int | None]:
    """Return the machine's memory, the memory available to this process, and the limit of a container or Slurm job."""
    info = Path("/proc/meminfo")
    lines = read_input(info, SMALL).decode().splitlines() if info.is_file() else []
    total = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:")), None)
    limit = memory_limit()
    return {"total_bytes": total, "limit_bytes": limit.limit if limit else None, "available_bytes": available_memory()}


def _folders() -> dict[str, dict[str, Any]]:
    """Test the folders that lbx or its libraries write to, by writing a file to each."""
    try:
        scratch: Path | None = Path(tempfile.gettempdir())
    except OSError:  # no candidate is writable
        scratch = None
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface"))
    folders = {"temporary files": scratch, "this folder": Path.cwd(), "hub cache": expand_user(Path(home))}
    return {name: _folder_facts(path) for name, path in folders.items()}


def _folder_facts(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {"path": None, "writable": False, "free_bytes": None}
    existing = next((folder for folder in (path, *path.parents) if folder.is_dir()), Path("/"))
    try:
        with tempfile.TemporaryFile(dir=existing):
            writable = True
    except OSError:
        writable = False
    return {
        "path": str(path),
        "writable": writable,
        "free_bytes": shutil.disk_usage(existing).free if writable else None,
    }


def _network() -> dict[str, Any]:
    return {
        "interfaces": network_interfaces(),
        "offline_variables": [name for name in _OFFLINE if os.environ.get(name) in ("1", "true", "yes", "on")],
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _llamacpp() -> dict[str, Any]:
    if _version("llama-cpp-python") == "not installed":
        return {"usable": False, "why": "not installed: pip install 'lbx[llama]'"}
    try:
        variant = cpu_variant()
        devices = list_devices(load_llama_cpp())
    except (BackendError, ImportError) as error:
        return {"usable": False, "why": str(error)}
    return {
        "usable": True,
        "cpu_variant": variant,
        "variants": _variants(),
        "devices": [f"{device.name}: {device.description}" for device in devices],
    } | ({"unused_libraries": problems} if (problems := unused_libraries()) else {})


def _variants() -> dict[str, dict[str, Any]]:
    """Try all CPU variants that claim to suit this processor, and return the results and speeds."""
    used_trial, _ = select_variant()
    states = {True: "refused: it ", False: "right"}
    return {
        trial.variant: {
            "state": "used" if trial == used_trial else states[bool(trial.problem)] + trial.problem,
            "tokens_per_s": round(trial.tokens_per_s, 1) or None,
        }
        for trial in check_variants(*find_libraries())
    }


def _hf() -> dict[str, Any]:
    if "not installed" in (_version("torch"), _version("transformers")):
        return {"usable": False, "why": "not installed: pip install 'lbx[hf]'"}
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"usable": False, "why": f"torch does not load: {error}"}
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return {
        "usable": True,
        "cpu_kernels": torch.backends.cpu.get_cpu_capability(),
        **_attention_kernel(),
        "dtype_auto": _computed_in(torch),
        "cuda": torch.version.cuda,
        "gpus": [f"{gpu.name}, {format_size(gpu.total_memory)}" for gpu in gpus] if torch.cuda.is_available() else [],
    }


def _attention_kernel() -> dict[str, Any]:
    """Find the attention kernel in a separate process, which a damaged library may kill."""
    process = start_python(_KERNEL_PROGRAM, stdout=PIPE, stderr=DEVNULL)
    output, _ = process.communicate()
    if process.returncode:
        reason = f"the process that loads it ends with code {process.returncode}"
        return {"attention_kernel": "none", "unused_kernels": {"kernel.*.so": reason}}
    name, unused = json.loads(output)
    return {"attention_kernel": name} | ({"unused_kernels": unused} if unused else {})


def _computed_in(torch: Any) -> dict[str, str]:
    """Describe how ``dtype = "auto"`` computes with each checkpoint format on this processor."""
    features = processor_features(torch)
    by = {dtype: multiplying_feature(dtype, features) for dtype in MULTIPLYING_FEATURES}
    return {dtype: f"unchanged ({name})" if name else "in float32" for dtype, name in by.items()}


def _models() -> dict[str, str]:
    """Return {model: backend and format, or problem} for the models that `lbx models` lists without a bundle."""
    try:
        return {
            model.name: f"in a bundle: {model.not_in_bundle}"
            if model.not_in_bundle
            else model.problem or f"{model.backend}, {model.state}"
            for model in list_models()
        }
    except OSError:  # an unreadable folder of models is not a health problem
        return {}


@dataclass(frozen=True, slots=True)
class Finding:
    """Fault of this machine.

    Attributes:
        fatal: whether models cannot run, or a need of ``--need`` is not met.
    """

    cause: str
    fix: str
    fatal: bool = False


def _findings(facts: dict[str, Any], needs: frozenset[Need]) -> Iterator[Finding]:
    """Yield the faults that the facts show."""
    usable = {name: facts[name]["usable"] for name in ("llamacpp", "hf")}
    for name, is_usable in usable.items():
        if not is_usable:
            fatal = name in needs or not any(usable.values())
            yield Finding(f"The backend {name} cannot run.", fix=str(facts[name]["why"]), fatal=fatal)
    for name, reason in facts["hf"].get("unused_kernels", {}).items():
        yield Finding(
            f"The kernel {name} cannot be used: {reason}.",
            fix="Install lbx again to compile it anew.",
            fatal=facts["hf"]["attention_kernel"] == "none",
        )
    gpu_build = bool(facts["hf"].get("cuda"))
    if not _gpu_names(facts) and (gpu_build or Need.GPU in needs):
        yield Finding(
            "No GPU can be used.",
            fix=_GPU_FIX if gpu_build else "This build computes on CPUs only.",
            fatal=Need.GPU in needs,
        )
    if Need.OFFLINE in needs and facts["network"]["interfaces"]:
        yield Finding(
            "This machine has network access.",
            fix="Start the container with --network=none, or the command with: unshare -rn",
            fatal=True,
        )
    if not facts["writable"]["temporary files"]["writable"]:
        yield Finding(
            "Temporary files cannot be written to any folder.",
            fix="Mount a tmpfs on /tmp, or set TMPDIR.",
            fatal=True,
        )
    if limit := describe_cpu_limit():
        yield Finding(limit, fix="Request more CPUs if you need them; more --threads would only wait for one another.")
    if neighbours := describe_neighbours(facts["cpu"]["used_by_others"]):
        yield Finding(neighbours, fix="Reserve CPUs for each job, or compute with fewer threads: --threads N.")


def _gpu_names(facts: dict[str, Any]) -> list[str]:
    devices = [name for name in facts["llamacpp"].get("devices", ()) if not name.startswith("CPU")]
    return [*facts["hf"].get("gpus", ()), *devices]
