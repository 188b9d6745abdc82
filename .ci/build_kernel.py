"""Compiles the kernel for CPUs into lbx's wheel, if there is a C++ compiler; without it, torch computes everything."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fopenmp", "-fno-exceptions", "-fno-rtti")
VARIANTS = {
    "avx2": ("-march=x86-64-v3",),
    "avx512": ("-march=x86-64-v4",),
    "avx512_bf16": ("-march=x86-64-v4", "-mavx512bf16"),
}
"""Compiler flags of each variant; lbx/backends/hf/kernel has the processor features that they need."""


def build_kernels(source: Path) -> list[Path]:
    """Compile every variant that the compiler supports, next to the source; returns the files."""
    compiler = os.environ.get("CXX", "c++")
    sources = b"".join(file.read_bytes() for file in sorted((source, *source.parent.glob("*.h"))))
    built = []
    with tempfile.TemporaryDirectory(dir=source.parent, prefix=".kernel-") as folder:
        compiled, linked = Path(folder) / "kernel.o", Path(folder) / "kernel.so"
        for variant, flags in VARIANTS.items():
            library = source.with_name(f"{source.stem}.{variant}.so")
            try:
                _run(compiler, *FLAGS, *flags, "-c", str(source), "-o", str(compiled))
                # Linked without OpenMP: the kernel uses the library that torch has loaded.
                _run(compiler, "-shared", "-s", str(compiled), "-o", str(linked))
                # lbx loads only a complete library of its own sources; the loader ignores these bytes.
                content = linked.read_bytes()
                linked.write_bytes(content + hashlib.sha256(sources + content).digest())
            except (OSError, subprocess.CalledProcessError) as exc:
                lines = (getattr(exc, "stderr", None) or str(exc)).strip().splitlines()
                print(f"lbx: the kernel for {variant} is left out: {lines[0]}", file=sys.stderr)
                library.unlink(missing_ok=True)
                continue
            linked.replace(library)
            built.append(library)
    return built


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


class KernelBuild(BuildHookInterface):  # type: ignore[misc]  # hatchling is not typed
    """Build hook of hatchling. A wheel with kernels is for this platform only."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root) / "lbx" / "backends" / "hf" / "kernel" / "kernel.cpp"
        if sys.platform != "linux" or platform.machine() != "x86_64":
            return
        kernels = build_kernels(source)
        if kernels:
            platform_tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform_tag}"
            build_data["pure_python"] = False
            build_data["artifacts"] += [f"/{kernel.relative_to(self.root)}" for kernel in kernels]
