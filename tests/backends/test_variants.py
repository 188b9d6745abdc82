"""One wheel for all processors: the choice of the CPU variant, and the script that builds the wheel."""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lbx.backends.llama import trial
from lbx.backends.llama import variants as under_test
from lbx.backends.llama.library import find_libraries
from lbx.backends.llama.variants import check_variants, choose_variant
from lbx.base.records import Request, SampleKey
from lbx.engine.batching import complete
from tests.backends.broken_variants import DOES_NOTHING, ENDLESS, ILLEGAL, broken

SCRIPT = Path(__file__).parents[2] / ".ci" / "llama-wheel.sh"
ANSWER = """
import json, sys
from lbx.backends import load, resolve_model
from lbx.backends.llama.library import cpu_variant
from lbx.engine.batching import complete
from lbx.base.records import Request, SampleKey
backend = load(resolve_model(sys.argv[1]))
text = complete(backend, Request(SampleKey("a", "b", "c"), tuple(json.loads(sys.argv[2])), 24)).text
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
    from lbx.backends.llama.library import cpu_variant

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
    assert text == complete(hf, Request(SampleKey("a", "b", "c"), ids, 24)).text


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
    done = load_in_a_process(tiny_gguf, LBX_GGML_BACKENDS=str(tmp_path))
    assert "no CPU code for this machine" in done.stdout
    assert "Unset LBX_GGML_BACKENDS" in done.stdout


def test_tiles_are_configured_with_all_that_was_written():
    """GCC 12.2 left out what intrinsics do not declare as read; what stands in the library now reads the stores."""
    if shutil.which("objdump") is None:
        pytest.skip("needs objdump (binutils)")
    library = variants().get("sapphirerapids")
    if library is None:
        pytest.skip("no variant with AMX: this is not x86-64")
    done = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], capture_output=True, text=True, check=True)
    before, load = done.stdout.partition("ldtilecfg")[::2]
    base = int(re.match(r"\s*(0x[0-9a-f]+)\(%rsp\)", load)[1], 16)
    stores = re.findall(r"\bv?mov\w*\s+%\w+,(0x[0-9a-f]+)\(%rsp\)", "\n".join(before.splitlines()[-25:]))
    written = {int(place, 16) - base for place in stores}
    assert {16, 48} <= written, "bytes a row and rows of each tile"


# --- the trial of a variant


@pytest.fixture(scope="module")
def sound() -> Path:
    """The variant that this processor uses."""
    from lbx.backends.llama.library import cpu_variant

    variants()
    if platform.machine() != "x86_64":
        pytest.skip("the broken variants are x86-64 code")
    return Path(cpu_variant()["file"])


@pytest.fixture
def memory(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "lbx" / "cpu-variants"


def load_in_a_process(gguf: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys\nfrom lbx.backends import load, resolve_model\nfrom lbx.base.errors import BackendError\n"
        "try:\n    backend = load(resolve_model(sys.argv[1]))\nexcept BackendError as exc:\n    print(exc)\n"
        "else:\n    import json\n    print(json.dumps([dict(backend.info.hardware), backend.info.notes]))"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(gguf)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )


WRONG = {"ggml_vec_dot_q6_K_q8_K": DOES_NOTHING}
CRASHES = {"ggml_vec_dot_q6_K_q8_K": ILLEGAL}


def test_variants_that_do_not_compute_rightly_are_passed_over(sound, tiny_gguf, memory, tmp_path, monkeypatch):
    folder = tmp_path / "variants"
    folder.mkdir()
    shutil.copy(sound, folder)
    expected = {}
    for name, functions, said in (
        (
            "zen5",
            {"ggml_vec_dot_q3_K_q8_K": DOES_NOTHING},
            r"multiplies wrongly \(Q3_K in CPU, 1 tokens, 1 threads: .*\)",
        ),
        ("zen6", {"ggml_vec_dot_iq3_xxs_q8_K": DOES_NOTHING}, r"multiplies wrongly \(IQ3_XXS in CPU, .*\)"),
        ("zen7", CRASHES, r"died \(SIGILL\) of Q6_K in CPU, 1 tokens, 1 threads"),
        ("zen8", WRONG, r"multiplies wrongly \(Q6_K in CPU, 1 tokens, 1 threads: error .*\)"),
        ("zen9", {"ggml_backend_init": ILLEGAL}, r"died \(SIGILL\) of its first product"),
    ):
        broken(sound, folder / f"libggml-cpu-{name}.so", **functions)
        expected[name] = said
    hardware, notes = json.loads(load_in_a_process(tiny_gguf, LBX_GGML_BACKENDS=str(folder)).stdout)
    assert hardware["file"] == str(folder / sound.name)
    for name, said in expected.items():
        assert re.search(f"{name} {said}", hardware["variants_refused"])
        assert any(name in note and hardware["variant"] in note for note in notes)
    assert len(list(memory.iterdir())) == 1 + len(expected)
    monkeypatch.setattr(under_test, "_run_check", lambda *_: pytest.fail("it is remembered"))
    chosen, refused = choose_variant(find_libraries()[0], sorted(folder.iterdir()))
    assert chosen.file == hardware["file"]
    assert sorted(one.variant for one in refused) == sorted(expected)
    assert all(re.fullmatch(expected[one.variant], one.problem) for one in refused)


def test_a_gpu_library_that_does_not_load_is_named(sound, tiny_gguf, memory, tmp_path):
    """As CUDA's does without a driver: the run is the CPU's, and says so."""
    (tmp_path / sound.name).symlink_to(sound)
    (tmp_path / "libggml-cuda.so").write_bytes(b"\x7fELF")
    hardware, notes = json.loads(load_in_a_process(tiny_gguf, LBX_GGML_BACKENDS=str(tmp_path)).stdout)
    assert "devices" not in hardware
    assert [note for note in notes if "GPU code in libggml-cuda.so is not used, because it does not load (" in note]


def test_without_any_sound_variant_nothing_is_computed(sound, tiny_gguf, memory, tmp_path):
    broken(sound, tmp_path / "libggml-cpu-zen9.so", **WRONG)
    broken(sound, tmp_path / "libggml-cpu-zen8.so", **CRASHES)
    done = load_in_a_process(tiny_gguf, LBX_GGML_BACKENDS=str(tmp_path))
    assert "computes wrongly on this processor" in done.stdout
    assert "zen9 multiplies wrongly" in done.stdout
    assert "zen8 died (SIGILL)" in done.stdout
    assert "Unset LBX_GGML_BACKENDS" in done.stdout


def test_code_that_kills_the_process_which_asks_for_its_score_is_left_alone(sound, memory, tmp_path):
    library, _ = find_libraries()
    deadly = broken(sound, tmp_path / "libggml-cpu-zen9.so", ggml_backend_score=ILLEGAL)
    shutil.copy(sound, tmp_path)
    assert [trial.file for trial in check_variants(library, [deadly, tmp_path / sound.name])] == [
        str(tmp_path / sound.name)
    ]


def test_scores_are_asked_for_once_and_again_for_a_changed_file(sound, memory, tmp_path, monkeypatch):
    library, _ = find_libraries()
    files = [tmp_path / "libggml-cpu-zen8.so", tmp_path / "libggml-cpu-zen9.so"]
    for file in files:
        shutil.copy(sound, file)
    asked = []
    run = under_test._run
    monkeypatch.setattr(under_test, "_run", lambda job, *paths: asked.append(job) or run(job, *paths))
    first, second = (list(check_variants(library, files)) for _ in range(2))
    assert first == second
    assert asked.count("scores") == 1
    os.utime(files[0], (0, 0))
    assert list(check_variants(library, files)) == first
    assert asked.count("scores") == 2
    damage = ("", "[1]", "{}", "null", *(json.dumps({str(file): value for file in files}) for value in ("x", 1e999)))
    for number, text in enumerate(damage, 3):
        for place in memory.with_name("cpu-scores").iterdir():
            place.write_text(text)
        assert list(check_variants(library, files)) == first
        assert asked.count("scores") == number


def test_a_trial_that_says_nothing_of_the_code_is_not_remembered(sound, memory, tmp_path, monkeypatch):
    library, _ = find_libraries()
    endless = broken(sound, tmp_path / "libggml-cpu-zen9.so", ggml_vec_dot_q6_K_q8_K=ENDLESS)
    monkeypatch.setattr(under_test, "_TIMEOUT_S", 3.0)
    (trial,) = check_variants(library, [endless])
    assert trial.problem == "did not finish its trial in 3 s"
    assert not memory.exists()


def test_what_another_script_found_out_is_not_taken_over(sound, memory, tmp_path, monkeypatch):
    library, _ = find_libraries()
    outcomes = [next(check_variants(library, [sound])).variant]
    script = tmp_path / "trial.py"
    script.write_text(Path(trial.__file__).read_text() + "# of another version\n")
    monkeypatch.setattr(under_test, "_CHECK_SCRIPT", script)
    monkeypatch.setattr(
        under_test, "_run_check", lambda *_: (under_test.VariantCheck("tried again", "", "", 0.0), True)
    )
    outcomes += [next(check_variants(library, [sound])).variant]
    assert outcomes == [under_test.VARIANT.fullmatch(sound.name)[1], "tried again"]


def test_a_product_that_is_left_out_is_wrong(sound, monkeypatch):
    """Even where the memory holds the right one, from the pass before on one thread."""
    monkeypatch.setattr(trial, "TOKENS", (1,))
    ggml = trial.Ggml(str(find_libraries()[0]))
    weights = ggml.weights()[:1]
    ggml.load_variant(None)  # the variant that lbx registered
    compute, passes = ggml.backend_graph_compute, itertools.cycle([True, False])
    ggml.backend_graph_compute = lambda *graph: compute(*graph) if next(passes) else 0  # type: ignore[attr-defined]
    off = dict(trial.product_errors(ggml, weights))
    assert {what for what in off if off[what] < trial.MAX_ERROR} == {what for what in off if "1 threads" in what}
    assert all(np.isnan(error) for what, error in off.items() if "2 threads" in what)


# --- .ci/llama-wheel.sh


def wheel_script(python: str, root: Path, variant: str = "cpu", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), python, variant],
        env=os.environ | {"LBX_WHEELS": str(root)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


SOURCE = "llama_cpp_python-0.3.36"
VARIANTS = "vendor/llama.cpp/ggml/src/CMakeLists.txt"
TILES = "vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp"
TILE_LINE = "    _tile_loadconfig(&tc);\n"


@pytest.fixture
def pip_stand_in(tmp_path) -> Path:
    """An interpreter whose ``pip download`` gives a source of two files, and whose ``pip wheel`` notes its flags, keeps
    the source and leaves a file: a real build takes minutes."""
    source = tmp_path / SOURCE
    (source / VARIANTS).parent.mkdir(parents=True)
    (source / TILES).parent.mkdir(parents=True)
    (source / TILES).write_text(f"void init(void) {{\n{TILE_LINE}    done = true;\n}}\n")
    (source / "CMakeLists.txt").write_text('set(LLAMA_BUILD_COMMON ON CACHE BOOL "" FORCE)\n')
    (source / VARIANTS).write_text(
        "ggml_add_cpu_backend_variant(x64)\n"
        "ggml_add_cpu_backend_variant(sse42              SSE42)\n"
        "ggml_add_cpu_backend_variant(haswell            SSE42 AVX)\n"
    )
    subprocess.run(["tar", "-czf", tmp_path / "source.tar.gz", "-C", tmp_path, SOURCE], check=True)
    path = tmp_path / "python"
    path.write_text(
        "#!/bin/bash\n"
        'case "$1 $2 $3" in\n'
        '"-m pip download")\n'
        '    while [ "$1" != "--dest" ]; do shift; done\n'
        f'    cp {tmp_path}/source.tar.gz "$2/{SOURCE}.tar.gz" ;;\n'
        '"-m pip wheel")\n'
        f'    echo "$CMAKE_ARGS $*" >> {tmp_path}/builds; cp -r "${{@: -1}}" {tmp_path}/built\n'
        '    while [ "$1" != "--wheel-dir" ]; do shift; done\n'
        '    [ -z "$FAILS" ] || { echo half > "$2/half.tmp"; exit 1; }\n'
        '    echo wheel > "$2/llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl" ;;\n'
        '"-m pip install")\n'
        '    while [ "$1" != "--target" ]; do shift; done\n'
        '    mkdir -p "$2/bin"; touch "$2/bin/libggml-cpu-haswell.so" "$2/bin/libggml-cpu-zen4.so" ;;\n'
        '"-P "*" scores") echo "{\\"${@: -2:1}\\": 64, \\"${@: -1}\\": 0}" ;;\n'
        f'"-P "*" check") echo "${{@: -1}}" >> {tmp_path}/tried\n'
        '    echo first; echo "{\\"wrong\\": \\"$WRONG\\", \\"tokens_per_s\\": 1.0}" ;;\n'
        f'*) exec {sys.executable} "$@" ;;\n'
        "esac\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def trusting(tmp_path) -> dict[str, str]:
    """A PATH on which ``sha256sum --check`` is content with the stand-in's source."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sha256sum").write_text(
        f'#!/bin/bash\n[ "$1" = --check ] && cat >/dev/null || exec {shutil.which("sha256sum")} "$@"\n'
    )
    (folder / "sha256sum").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_the_wheel_is_built_once_and_kept(pip_stand_in, trusting, tmp_path):
    root = tmp_path / "wheels"
    first = wheel_script(str(pip_stand_in), root, **trusting)
    assert first.returncode == 0, first.stderr
    wheel = Path(first.stdout.strip())
    assert wheel.read_text() == "wheel\n"
    assert wheel.parent.name.startswith("0.3.36-")
    second = wheel_script(str(pip_stand_in), root, CXX="no-such-compiler", **trusting)
    assert (second.returncode, second.stdout) == (0, first.stdout)
    builds = (tmp_path / "builds").read_text().splitlines()
    assert len(builds) == 1
    for flag in ("-DGGML_NATIVE=OFF", "-DGGML_BACKEND_DL=ON", "-DGGML_CPU_ALL_VARIANTS=ON"):
        assert flag in builds[0]
    assert [p.name for p in root.iterdir()] == [wheel.parent.name]
    third = wheel_script(str(pip_stand_in), root, "own", CXX="no-such-compiler", **trusting)
    assert (third.returncode, third.stdout) == (0, first.stdout), "it has this processor's variants, too"


def test_what_is_not_wanted_is_cut_out(pip_stand_in, trusting, tmp_path):
    wheel_script(str(pip_stand_in), tmp_path / "wheels", **trusting)
    variants = (tmp_path / "built" / VARIANTS).read_text()
    assert variants == "ggml_add_cpu_backend_variant(haswell            SSE42 AVX)\n"
    assert "LLAMA_BUILD_COMMON OFF" in (tmp_path / "built" / "CMakeLists.txt").read_text()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors' variants are all built")
def test_a_wheel_for_this_processor_has_its_best_variant_and_avx2(pip_stand_in, trusting, tmp_path):
    haswell = "ggml_add_cpu_backend_variant(haswell SSE42 AVX F16C FMA AVX2 BMI2)\n"
    bests = "".join(
        f"    ggml_add_cpu_backend_variant({name} SSE42 AVX F16C FMA AVX2 BMI2 {features})\n"
        for name, features in (("skylakex", "AVX512"), ("alderlake", "AVX_VNNI"), ("alien", "AVX512 AVX_ALIEN"))
    )
    arm = "ggml_add_cpu_backend_variant(armv8.0_1)\n"
    (tmp_path / SOURCE / VARIANTS).write_text(haswell + bests + arm)
    subprocess.run(["tar", "-czf", tmp_path / "source.tar.gz", "-C", tmp_path, SOURCE], check=True)
    root = tmp_path / "wheels"
    done = wheel_script(str(pip_stand_in), root, "own", **trusting)
    assert done.returncode == 0, done.stderr
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    built = (tmp_path / "built" / VARIANTS).read_text().splitlines(keepends=True)
    best = [line for line in bests.splitlines(keepends=True) if line in built]
    assert built == [haswell, *best, arm]
    assert len(best) == bool({"avx512f", "avx_vnni"} & set(flags))
    assert not any("alien" in line for line in best)
    every = wheel_script(str(pip_stand_in), root, **trusting)
    assert Path(every.stdout.strip()).parent != Path(done.stdout.strip()).parent, "it does not serve other processors"


def test_another_source_than_the_released_one_is_refused(pip_stand_in, tmp_path):
    root = tmp_path / "wheels"
    done = wheel_script(str(pip_stand_in), root)
    assert (done.returncode, done.stdout) == (1, "")
    assert "not the one that was released" in done.stderr
    assert list(root.iterdir()) == []


def test_a_failed_build_leaves_nothing(pip_stand_in, trusting, tmp_path):
    root = tmp_path / "wheels"
    done = wheel_script(str(pip_stand_in), root, FAILS="1", **trusting)
    assert done.returncode == 1
    assert "the build failed" in done.stderr
    assert list(root.iterdir()) == []


def test_what_was_built_is_tried_before_it_is_kept(pip_stand_in, trusting, tmp_path):
    root = tmp_path / "wheels"
    done = wheel_script(str(pip_stand_in), root, WRONG="Q4_0: error 1.0", **trusting)
    assert (done.returncode, done.stdout) == (1, "")
    assert "libggml-cpu-haswell.so does not multiply rightly on this machine" in done.stderr
    assert list(root.iterdir()) == []
    assert wheel_script(str(pip_stand_in), root, **trusting).returncode == 0
    tried = [Path(line).name for line in (tmp_path / "tried").read_text().splitlines()]
    assert tried == ["libggml-cpu-haswell.so"] * 2, "only what this processor can run"


def test_the_tiles_of_another_version_are_not_mended_unseen(pip_stand_in, trusting, tmp_path):
    root = tmp_path / "wheels"
    assert wheel_script(str(pip_stand_in), root, **trusting).returncode == 0
    built = (tmp_path / "built" / TILES).read_text()
    assert TILE_LINE not in built
    assert '    __asm__ volatile ("ldtilecfg %0" : : "m" (tc) : "memory");\n' in built
    shutil.rmtree(root)
    (tmp_path / SOURCE / TILES).write_text("void init(void) {}\n")
    subprocess.run(["tar", "-czf", tmp_path / "source.tar.gz", "-C", tmp_path, SOURCE], check=True)
    done = wheel_script(str(pip_stand_in), root, **trusting)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the line that loads the AMX tiles' configuration is not in" in done.stderr
    assert list(root.iterdir()) == []


def test_what_the_build_needs_is_named(tmp_path):
    done = wheel_script(sys.executable, tmp_path, CXX="no-such-compiler")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no C++ compiler (no-such-compiler)" in done.stderr
    done = wheel_script("no-such-python", tmp_path)
    assert "there is no interpreter no-such-python" in done.stderr
