"""One wheel for all processors: the choice of the CPU variant, and the script that builds the wheel."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lbx.records import Request, SampleKey

SCRIPT = Path(__file__).parents[2] / ".ci" / "llama-wheel.sh"
ANSWER = """
import json, sys
from lbx.backends import load, resolve_model
from lbx.backends.llama_library import cpu_variant
from lbx.records import Request, SampleKey
backend = load(resolve_model(sys.argv[1]))
text = backend.generate(Request(SampleKey("a", "b", "c"), tuple(json.loads(sys.argv[2])), 24)).text
print(json.dumps([cpu_variant(), text]))
"""


def variants() -> dict[str, Path]:
    """The CPU variants of the installed wheel, by name; none where it was built for one machine."""
    package = Path(pytest.importorskip("llama_cpp", reason="needs lbx[llama]").__file__).parent
    files = [*package.glob("lib/libggml-cpu-*.so"), *package.parent.glob("bin/libggml-cpu-*.so")]
    if not files:
        pytest.skip("this llama-cpp-python was built for one machine: it has no CPU variants")
    return {f.stem.removeprefix("libggml-cpu-"): f for f in files}


def test_the_variant_in_use_is_known(llama):
    from lbx.backends.llama_library import cpu_variant

    found = cpu_variant()
    assert found["variant"] in variants()
    assert found["features"].startswith("CPU :")
    assert llama.info.hardware["variant"] == found["variant"]


def test_a_node_with_avx2_only(hf, tiny_gguf, tmp_path):
    """With the haswell variant alone the answer is the same, and nothing else needs newer instructions."""
    haswell = variants().get("haswell")
    if haswell is None:
        pytest.skip("no haswell variant: this is not x86-64")
    shutil.copy(haswell, tmp_path)
    ids = (0, *hf.tokenizer.encode("Which harbour did the grey ship leave? " * 40, special=False))
    environment = os.environ | {"LBX_GGML_BACKENDS": str(tmp_path)}
    command = [sys.executable, "-c", ANSWER, str(tiny_gguf), json.dumps(ids)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    variant, text = json.loads(done.stdout)
    assert variant["variant"] == "haswell"
    assert variant["file"] == str(tmp_path / haswell.name)
    assert "AVX512" not in variant["features"]
    assert text == hf.generate(Request(SampleKey("a", "b", "c"), ids, 24)).text


def test_no_library_that_always_loads_needs_avx512():
    if shutil.which("objdump") is None:
        pytest.skip("needs objdump (binutils)")
    haswell = variants().get("haswell")
    if haswell is None:
        pytest.skip("no haswell variant: this is not x86-64")
    import llama_cpp

    folder = Path(llama_cpp.__file__).parent / "lib"
    always = [folder / f"lib{name}.so" for name in ("llama", "ggml", "ggml-base")]
    for library in [*always, haswell]:
        done = subprocess.run(
            ["objdump", "-d", "--no-show-raw-insn", library], capture_output=True, text=True, check=True
        )
        assert done.stdout.count("%rsp") > 100, "the disassembly is not empty"
        assert "%zmm" not in done.stdout, f"{library.name} uses AVX-512"
        assert ("%ymm" in done.stdout) == (library == haswell), (
            f"{library.name}: AVX outside the variant, or none in it"
        )


def test_a_folder_without_a_variant_is_explained(tiny_gguf, tmp_path):
    variants()
    code = (
        "import sys\nfrom lbx.backends import load, resolve_model\nfrom lbx.errors import BackendError\n"
        "try:\n    load(resolve_model(sys.argv[1]))\nexcept BackendError as exc:\n    print(exc)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tiny_gguf)],
        env=os.environ | {"LBX_GGML_BACKENDS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "no CPU code for this machine" in done.stdout
    assert "Unset LBX_GGML_BACKENDS" in done.stdout


# --- .ci/llama-wheel.sh


def wheel_script(python: str, root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), python],
        env=os.environ | {"LBX_WHEELS": str(root)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def pip_stand_in(tmp_path) -> Path:
    """An interpreter whose ``pip wheel`` notes its flags and leaves a file, because a real build takes minutes."""
    path = tmp_path / "python"
    path.write_text(
        "#!/bin/bash\n"
        f'if [ "$1 $2 $3" != "-m pip wheel" ]; then exec {sys.executable} "$@"; fi\n'
        f'echo "$CMAKE_ARGS $*" >> {tmp_path}/builds\n'
        'while [ "$1" != "--wheel-dir" ]; do shift; done\n'
        '[ -z "$FAILS" ] || { echo half > "$2/half.tmp"; exit 1; }\n'
        'echo wheel > "$2/llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_wheel_is_built_once_and_kept(pip_stand_in, tmp_path):
    root = tmp_path / "wheels"
    first = wheel_script(str(pip_stand_in), root)
    assert first.returncode == 0, first.stderr
    wheel = Path(first.stdout.strip())
    assert wheel.read_text() == "wheel\n"
    assert wheel.parent.name.startswith("0.3.36-")
    second = wheel_script(str(pip_stand_in), root, CXX="no-such-compiler")
    assert (second.returncode, second.stdout) == (0, first.stdout)
    builds = (tmp_path / "builds").read_text().splitlines()
    assert len(builds) == 1
    for flag in ("-DGGML_NATIVE=OFF", "-DGGML_BACKEND_DL=ON", "-DGGML_CPU_ALL_VARIANTS=ON", "llama-cpp-python==0.3.36"):
        assert flag in builds[0]
    assert [p.name for p in root.iterdir()] == [wheel.parent.name]


def test_a_failed_build_leaves_nothing(pip_stand_in, tmp_path):
    root = tmp_path / "wheels"
    done = wheel_script(str(pip_stand_in), root, FAILS="1")
    assert done.returncode == 1
    assert "the build failed" in done.stderr
    assert list(root.iterdir()) == []


def test_what_the_build_needs_is_named(tmp_path):
    done = wheel_script(sys.executable, tmp_path, CXX="no-such-compiler")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no C++ compiler (no-such-compiler)" in done.stderr
    done = wheel_script("no-such-python", tmp_path)
    assert "there is no interpreter no-such-python" in done.stderr
