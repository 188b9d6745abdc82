"""Kill a run at any time and the same command ends with the table of an undisturbed one."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.kill_parts import RESULTS, ROWS, UNHURRIED_S, rows, slow, start, wait_for_samples
from tests.command_line import Lbx


@pytest.fixture(scope="module")
def model(answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return slow(answers, tmp_path_factory.mktemp("slow"))


@pytest.fixture(scope="module")
def undisturbed(lbx: Lbx, bundle: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "results.duckdb"
    assert lbx("run", "-b", bundle, "-m", model, "-t", "needle", "-o", path).returncode == 0
    return path


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_continues(
    lbx: Lbx, bundle: Path, model: Path, undisturbed: Path, tmp_path: Path, kill: signal.Signals
) -> None:
    path = tmp_path / "results.duckdb"
    chance = random.Random(kill)
    for _ in range(3):
        process = start(bundle, model, path)
        wait_for_samples(process)
        time.sleep(chance.uniform(0, 0.6))
        process.send_signal(kill)
        _, said = process.communicate()
        # 0 where it came too late, -kill where Python was shutting down already.
        expected = {signal.SIGTERM: 143, signal.SIGINT: 130}.get(kill, -kill)
        assert process.returncode in (expected, -kill, 0), said
    assert lbx("run", "-b", bundle, "-m", model, "-t", "needle", "-o", path).returncode == 0
    assert rows(path, ROWS) == rows(undisturbed, ROWS)
    assert rows(path, RESULTS) == rows(undisturbed, RESULTS)
    assert rows(path, "SELECT status FROM runs") == [("done",)]


def test_an_interrupted_run_says_so_and_keeps_what_it_has(bundle: Path, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    process = start(bundle, slow(model, tmp_path, UNHURRIED_S), path)
    wait_for_samples(process)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "Run the same command again to continue" in " ".join(said.split())
    assert "Traceback" not in said
    assert rows(path, "SELECT status FROM runs") == [("interrupted",)]
    answered = rows(path, "SELECT count(*) FROM generations")[0][0]
    assert rows(path, "SELECT count(*) FROM scores WHERE headline")[0][0] == answered


def test_a_full_disk_stops_the_run_cleanly(
    lbx: Lbx, bundle: Path, model: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """A file size limit stands for the full disk: the same refusal from the operating system, without root."""
    path = tmp_path / "results.duckdb"
    assert lbx("run", "-b", bundle, "-m", model, "-t", "needle", "-o", path, "--limit", 1).returncode == 0
    limit = 8192  # bytes: the write-ahead log reaches it after a few commits
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}));"
        "from lbx.cli.main import main; main()"
    )
    command = ["run", "-b", bundle, "-m", model, "-t", "needle", "-o", path]
    done = subprocess.run([sys.executable, "-c", code, *map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert lbx(*command).returncode == 0
    assert rows(path, ROWS) == rows(undisturbed, ROWS)


def _run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program that may use ``stoppable`` and ``defer_signals``, and end it as lbx ends after an error."""
    start = """
import os, signal, sys
from lbx.base.processes import defer_signals
from lbx.cli.error_conversion import stoppable
def show(kind, error, trace):
    print(error, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(error.exit_code)
sys.excepthook = show
"""
    return subprocess.run(
        [sys.executable, "-P", "-c", start + program], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("first", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("again", ["SIGINT", "SIGTERM"])
def test_a_signal_that_arrives_again_does_not_interrupt_saving(first: str, again: str) -> None:
    """PBS and LSF signal all processes of a job, and the job's script passes the signal on."""
    done = _run(f"""
with stoppable(loads_model=False):
    try:
        signal.raise_signal(signal.{first})
    finally:
        try:
            int("x")
        except ValueError:
            signal.raise_signal(signal.{again})
        print("saved")
""")
    word, code = ("Terminated", 143) if "SIGTERM" in (first, again) else ("Interrupted", 130)
    assert (done.stdout, done.returncode) == ("saved\n", code) and f"{word}. Unfinished" in done.stderr, done.stderr


def test_a_termination_with_an_interruption_decides_the_exit_code() -> None:
    done = _run("""
with stoppable(loads_model=False), defer_signals():
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
""")
    assert done.returncode == 143, done.stderr


def test_a_termination_is_seen_after_an_interruption_that_was_lost() -> None:
    """Python ignores exceptions in finalizers and in callbacks of libraries."""
    done = _run("""
class Lost:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
with stoppable(loads_model=False):
    Lost()
    signal.raise_signal(signal.SIGTERM)
    print("not reached")
""")
    assert (done.stdout, done.returncode) == ("", 143), done.stderr


def test_a_background_job_that_ignores_ctrl_c_still_does() -> None:
    done = _run("""
signal.signal(signal.SIGINT, signal.SIG_IGN)
with stoppable(loads_model=False):
    signal.raise_signal(signal.SIGINT)
    print("goes on")
""")
    assert (done.stdout, done.returncode) == ("goes on\n", 0), done.stderr


def test_a_signal_while_a_condition_is_entered_leaves_no_lock_closed() -> None:
    """Queries wait for futures: about 1 of 200 interruptions met such a moment."""
    done = _run("""
import threading, time
class Lock:
    def __init__(self):
        self.lock = threading.RLock()
        self.acquire, self.release = self.lock.acquire, self.lock.release
    def __enter__(self):
        self.lock.acquire()
        signal.raise_signal(signal.SIGTERM)
    def __exit__(self, *_):
        self.lock.release()
lock = Lock()
def check():
    print(lock.acquire(timeout=10))
with stoppable(loads_model=False):
    try:
        with threading.Condition(lock):
            time.sleep(30)
    finally:
        thread = threading.Thread(target=check)
        thread.start()
        thread.join()
""")
    assert (done.stdout, done.returncode) == ("True\n", 143), done.stderr


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_while_llama_cpp_loads_a_model_ends_the_load(demo_gguf: Path, number: str) -> None:
    """Python handles signals in llama.cpp's callbacks, whose exceptions ctypes drops."""
    done = _run(f"""
from pathlib import Path
from lbx.backends.llama import library
native = library.load_llama_cpp()
write = library.log.write
def write_and_signal(*arguments):
    signal.raise_signal(signal.{number})
    return write(*arguments)
def log_set():
    callback = native.llama_log_callback(write_and_signal)
    native.llama_log_set(callback, None)
    return callback
with stoppable(loads_model=True):
    callback = log_set()
    library.load_model(native, Path({str(demo_gguf)!r}), n_gpu_layers=0, repack=True)
    print("not reached")
""")
    assert (done.stdout, done.returncode) == ("", {"SIGINT": 130, "SIGTERM": 143}[number]), done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_that_is_interrupted_while_rows_are_read_is_interrupted(tmp_path: Path) -> None:
    """DuckDB, which reads parquet files, has an exception of its own for a signal."""
    path = tmp_path / "r.duckdb"
    done = _run(f"""
from pathlib import Path
from lbx.results import Store
from lbx.running.runner import record_end_status
from tests.results.store_rows import RUN
with stoppable(loads_model=False), Store(Path({str(path)!r})) as store:
    store.begin_run(RUN)
    with record_end_status(store, [RUN.run_id]):
        raise RuntimeError("Query interrupted")
""")
    assert done.returncode == 130, done.stderr
    assert rows(path, "SELECT status FROM runs") == [("interrupted",)]


@pytest.mark.parametrize(("name", "call"), [("add", 3), ("close", 1)])
def test_a_signal_at_any_moment_of_saving_loses_no_answer_and_never_hangs(
    bundle: Path, model: Path, tmp_path: Path, name: str, call: int
) -> None:
    """``Condition.__enter__`` is Python code: after an exception in it, the lock would stay closed forever."""
    path = tmp_path / "results.duckdb"
    done = _run(f"""
import atexit, sys, threading
from lbx.cli.main import main
from lbx.running.runner import _CommitBuffer

calls = {{"add": 0, "close": 0}}
is_due = False
enter = threading.Condition.__enter__

def count(name):
    function = getattr(_CommitBuffer, name)
    def counted(*arguments):
        global is_due
        calls[name] += 1
        is_due = (name, calls[name]) == ("{name}", {call})
        if is_due and name == "close":
            interrupt()
        return function(*arguments)
    setattr(_CommitBuffer, name, counted)

def interrupt():
    global is_due
    is_due = False
    signal.raise_signal(signal.SIGINT)

def enter_and_interrupt(condition):
    entered = enter(condition)
    if is_due and threading.current_thread() is threading.main_thread():
        interrupt()
    return entered

list(map(count, calls))
threading.Condition.__enter__ = enter_and_interrupt
atexit.register(lambda: print(calls["add"]))
sys.argv = {["lbx", "run", "-b", str(bundle), "-m", str(model), "-t", "needle", "-o", str(path)]}
main()
""")
    assert done.returncode == 130, done.stderr
    assert rows(path, "SELECT count(*) FROM generations") == [(int(done.stdout),)] != [(0,)]
    assert rows(path, "SELECT status FROM runs") == [("interrupted",)]


@pytest.mark.parametrize(("number", "code", "word"), [("SIGINT", 130, "Interrupted"), ("SIGTERM", 143, "Terminated")])
def test_a_signal_during_a_query_ends_the_command_like_any_other(number: str, code: int, word: str) -> None:
    """DuckDB turns a signal during a query into a RuntimeError without a cause."""
    script = f"""
import os, signal, threading, duckdb
from lbx.base.errors import InterruptedByUserError
from lbx.cli.error_conversion import stoppable
threading.Timer(0.5, os.kill, (os.getpid(), signal.{number})).start()
try:
    with stoppable(loads_model=False):
        query = "SELECT sum(range) FROM range(2_000_000_000_000)"
        duckdb.connect(config={{"threads": 1}}).execute(query)  # with more threads, DuckDB waits for the others
except InterruptedByUserError as error:
    print(error.exit_code, error)
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout.split()[:2], done.stderr) == ([str(code), f"{word}."], "")
