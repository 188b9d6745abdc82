"""Kill a run at any time and the same command ends with the table of an undisturbed one."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lbx.opinions.journal import journal_of
from tests.cli.kill_parts import RESULTS, ROWS, UNHURRIED_S, rows, slow, start, wait_for_samples
from tests.command_line import Lbx
from tests.opinions.rated_file import answers_file, rate_all


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


def test_a_signal_at_the_start_is_not_explained_as_a_crash() -> None:
    done = _run("""
from lbx.base import processes
start = processes.Popen
def start_and_interrupt(*arguments, **options):
    process = start(*arguments, **options)
    signal.raise_signal(signal.SIGINT)
    return process
processes.Popen = start_and_interrupt
with stoppable(loads_model=True):
    print("goes on")
""")
    assert (done.stdout, done.returncode) == ("", 130)
    assert "Interrupted. Unfinished" in done.stderr and "ended by the system" not in done.stderr


@pytest.mark.parametrize(("number", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_while_a_condition_is_entered_does_not_interrupt_a_commit(number: str, code: int) -> None:
    """The commit begins before the signal is handled again."""
    done = _run(f"""
import threading, time
class Lock:
    def __init__(self):
        self.lock = threading.Lock()
        self.acquire, self.release = self.lock.acquire, self.lock.release
    def __enter__(self):
        self.lock.acquire()
        signal.raise_signal(signal.{number})
    def __exit__(self, *_):
        self.lock.release()
with stoppable(loads_model=False):
    with threading.Condition(Lock()):
        pass
    with defer_signals():
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            pass
        print("committed")
""")
    assert (done.stdout, done.returncode) == ("committed\n", code), done.stderr


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


def test_ctrl_c_during_the_imports_ends_without_a_text() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", """
import signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from lbx.cli.__main__ import main
main()
"""], capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("moment", ["while it waits for threads", "afterwards"])
def test_a_signal_while_python_shuts_down_changes_nothing(number: str, moment: str) -> None:
    done = _run(f"""
import atexit, threading, time
from lbx.cli.main import main
def interrupt():
    threading.main_thread().join()
    while True:
        os.kill(os.getpid(), signal.{number})
        time.sleep(0.1)
if {moment!r} == "afterwards":
    atexit.register(os.kill, os.getpid(), signal.{number})
else:
    threading.Thread(target=interrupt).start()
sys.argv = ["lbx", "nothing"]
main()
""")
    assert done.returncode == 2
    assert done.stderr.startswith("error: No such command") and "Traceback" not in done.stderr, done.stderr


def _interrupt_twice(number: signal.Signals, interrupted: str, *arguments: object) -> tuple[int, str]:
    """Interrupt a command's page, and again when it calls a function "module:name" to save. Return its end."""
    module, _, name = interrupted.partition(":")
    owner, _, function = name.rpartition(".")
    code = f"""
import importlib, signal, sys
from lbx.cli.main import main
owner = importlib.import_module({module!r})
owner = getattr(owner, {owner!r}) if {owner!r} else owner
save = getattr(owner, {function!r})
def interrupt_and_save(*arguments):
    signal.raise_signal({int(number)})
    return save(*arguments)
setattr(owner, {function!r}, interrupt_and_save)
sys.argv = ["lbx", *sys.argv[1:], "--port", "0"]
main()
"""
    command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        while "Press Ctrl-C" not in (line := process.stderr.readline()):
            assert line, "it ended before"
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ratings_are_saved_although_a_signal_comes_twice(tmp_path: Path, number: signal.Signals) -> None:
    path = answers_file(tmp_path / "r.duckdb")
    rate_all(path, "ann", 4)
    code, said = _interrupt_twice(number, "lbx.opinions.journal:_write_records", "rate", path, "--rater", "ann")
    assert code == 0 and "Moved into" in said and not journal_of(path).exists(), said
    assert rows(path, "SELECT count(*) > 0 FROM ratings") == [(True,)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_dataset_is_saved_although_a_signal_comes_twice(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(json.dumps({"input": "Document.", "instructions": ["What?"], "outputs": ["That."]}) + "\n")
    code, said = _interrupt_twice(number, "lbx.exchange.annotation.dataset:Dataset.write", "annotate", path)
    assert code == 0, said
    assert (tmp_path / "d.annotated.jsonl").read_bytes() == path.read_bytes()


_SBATCH = """#!/bin/sh
while [ ! -e "$0.go" ]; do
    touch "$0.asked"
    sleep 0.05
done
cat "$0.go"
grep -q '^[0-9]' "$0.go"
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("reply", ["4711", "refused"])
def test_an_interrupted_submission_is_saved_or_can_be_repeated(
    bundle: Path, answers: Path, tmp_path: Path, number: signal.Signals, reply: str
) -> None:
    folder, sbatch = tmp_path / "job", tmp_path / "sbatch"
    sbatch.write_text(_SBATCH)
    sbatch.chmod(0o755)
    submit = ("submit", "slurm", "-b", bundle, "-m", answers, "-t", "needle/single_en", "-o", folder, "--shards", 2)
    command = [sys.executable, "-P", "-m", "lbx.cli", *map(str, submit), "--characters", "--no-measure-speed"]
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        while not (tmp_path / "sbatch.asked").exists():
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, number)  # as a terminal does after Ctrl-C
        time.sleep(0.2)
        (tmp_path / "sbatch.go").write_text(reply)
        said = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number], said
    if reply == "refused":
        (tmp_path / "sbatch.go").write_text("4712")
        again = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert again.returncode == 0, again.stderr
    else:
        assert "as job 4711" in said[0]
    job = json.loads((folder / "job.json").read_text())
    assert job["array_id"] == job["merge_id"] == ("4711" if reply == "4711" else "4712")
