"""A process that a signal ends is explained in a sentence: cause, what is safe, fix, next command."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from lbx.base.crash_report import crash_message

BACKENDS = Path(__file__).parents[1] / "backends"


@pytest.fixture(scope="module")
def crashing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which llama.cpp's CPU code multiplies rightly, and dies of rotary embeddings."""
    pytest.importorskip("llama_cpp", reason="needs lbx[llama]")
    if platform.machine() != "x86_64" or shutil.which("nm") is None:
        pytest.skip("breaks x86-64 code by its symbols: needs nm (binutils)")
    from lbx.backends.llama.library import cpu_variant
    from tests.backends.broken_variants import ILLEGAL, broken

    sound = Path(cpu_variant()["file"])
    symbols = subprocess.run(["nm", "-D", sound], capture_output=True, text=True, check=True).stdout.split()
    (rope,) = (name for name in symbols if "ggml_compute_forward_rope" in name and "back" not in name)
    folder = tmp_path_factory.mktemp("crashing")
    broken(sound, folder / "libggml-cpu-zen9.so", **{rope: ILLEGAL})
    return os.environ | {"LBX_GGML_BACKENDS": str(folder)}


def lbx_in(environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lbx.cli", *map(str, arguments)]
    one_core = partial(os.sched_setaffinity, 0, {min(os.sched_getaffinity(0))})  # so that one thread crashes alone
    return subprocess.run(command, env=environment, preexec_fn=one_core, capture_output=True, text=True, check=False)


def test_a_crash_is_a_sentence(crashing: dict[str, str], bundle: Path, demo_gguf: Path, tmp_path: Path) -> None:
    asked = ("-b", bundle, "-m", demo_gguf, "-t", "needle", "--limit", "1")
    for arguments in (("plan", *asked), ("run", *asked, "-o", tmp_path / "r.duckdb"), ("parity", demo_gguf, demo_gguf)):
        done = lbx_in(crashing, *arguments)
        assert done.returncode == -signal.SIGILL
        said = " ".join(done.stderr.split())
        assert "error: lbx was ended by the system (illegal instruction, SIGILL). Results committed earlier" in said
        assert "this processor" in said
        assert said.endswith("try: lbx doctor")
        assert "Traceback" not in said
        assert "Fatal Python error" not in said


def test_a_worker_that_crashes_is_a_sentence_too(
    crashing: dict[str, str], bundle: Path, demo_gguf: Path, tmp_path: Path
) -> None:
    asked = ("-b", bundle, "-m", demo_gguf, "-t", "needle", "--limit", "1")
    done = lbx_in(crashing, "run", *asked, "-o", tmp_path / "r.duckdb", "--workers", "1", "--no-plan")
    assert done.returncode in (1, 3)
    assert "was killed (SIGILL)" in done.stderr


def test_threads_that_crash_together_name_their_cause() -> None:
    fatal = "Fatal Python error: "
    for said in (
        f"{fatal}{fatal}Illegal instruction\n\n",
        f"{fatal}{fatal}Illegal instructionIllegal instruction\n\n\n",
    ):
        told = crash_message(said, "All is safe.")
        assert told.startswith("error: lbx was ended by the system (illegal instruction, SIGILL). All is safe. ")


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGKILL, "memory ran out"), (signal.SIGSEGV, "SIGSEGV"), (signal.SIGBUS, "SIGBUS")]
)
def test_what_killed_a_process(number: signal.Signals, said: str) -> None:
    code = "import time\nfrom lbx.base.crash_report import explain_crashes\n"
    code += "with explain_crashes('All is safe.'):\n    print(1, flush=True)\n    time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(number)
    _, told = process.communicate()
    assert told.startswith("error: lbx was ended by the system (")
    assert said in told
    assert "All is safe." in told


def test_an_ordinary_end_says_nothing() -> None:
    code = "from lbx.base.crash_report import explain_crashes\nwith explain_crashes(''):\n    {}"
    for inside, words in (("pass", ""), ("raise SystemExit(3)", ""), ("import signal; signal.raise_signal(2)", "Key")):
        done = subprocess.run([sys.executable, "-c", code.format(inside)], capture_output=True, text=True, check=False)
        assert "ended by the system" not in done.stderr
        assert words in done.stderr
