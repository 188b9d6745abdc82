"""Answers that are finished are in the file: kills, a full disk, a clock that jumps."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pytest

from tests.attacks.attack_parts import Said, refused
from tests.attacks.results_parts import lbx, process, results_file, with_parts
from tests.backends.endpoint_servers import ScriptedServer
from tests.profiles import kills

QUICK = 5
HOURS = 3600
NEEDLE = 'lengths = [64]\ndepths = [0.0, 0.5, 1.0]\nsamples_per_cell = {}\nlanguages = ["en"]\n'
RECIPE = 'name = "small"\n[[source]]\nkind = "path"\npath = "needle"\nto = "needle"\n'


def make_bundle(folder: Path, samples_per_cell: int) -> Path:
    (folder / "needle").mkdir()
    (folder / "needle" / "needle.toml").write_text(NEEDLE.format(samples_per_cell))
    (folder / "small.toml").write_text(RECIPE)
    assert lbx("bundle", folder / "small.toml", "-o", folder / "out").code == 0
    assert lbx("unpack", folder / "out" / "small.tar", "--allow-unsigned", "--to", folder / "bundle").code == 0
    return folder / "bundle"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundle"), 2)


def start(folder: Path, bundle: Path, model: Path, *more: object, samples: int = QUICK + 1) -> subprocess.Popen[str]:
    command = ("run", "-b", bundle, "-m", model, "-t", "needle/single_en", "-o", folder / "r.duckdb", "--no-plan")
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "lbx.cli", *map(str, (*command, "-n", samples, *more))],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def committed(path: Path) -> int:
    """Answers that a kill at this moment would leave: in a copy of the file and its log."""
    copy = path.with_name("copy.duckdb")
    try:
        for suffix in ("", ".wal"):
            Path(f"{copy}{suffix}").unlink(missing_ok=True)
            if Path(f"{path}{suffix}").exists():
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        return left(copy)
    except (duckdb.Error, OSError):
        return -1  # there is none yet, or it was being written


def left(path: Path) -> int:
    with duckdb.connect(str(path), read_only=True) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM generations WHERE error IS NULL").fetchall()
    return int(count)


def slow_sixth(folder: Path, bundle: Path) -> Path:
    """A model that answers five samples at once, and the one that is asked last in hours."""
    path = folder / "model.jsonl"
    path.write_text(json.dumps({"key": "*", "text": "seven"}))
    first = start(folder, bundle, path)
    assert first.wait() == 0, first.communicate()
    with duckdb.connect(str(folder / "r.duckdb"), read_only=True) as connection:
        order = connection.execute("SELECT sample_id FROM generations ORDER BY created_at").fetchall()
    first.communicate()
    for file in folder.glob("r.duckdb*"):
        file.unlink()
    ids = [sample_id for (sample_id,) in order]
    lines: list[dict[str, object]] = [{"key": f"needle/single_en/{one}", "text": "seven"} for one in ids]
    lines[-1]["delay_s"] = HOURS
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.fixture
def slow_server() -> Iterator[ScriptedServer]:
    """Answers five requests at once, and the next one when the test is over."""

    def answer(path: str, payload: object, before: int) -> tuple[int, dict[str, str], object]:
        if payload is None:
            return 200, {}, {"object": "list", "data": [{"id": "m", "object": "model"}]}
        if before >= QUICK:
            time.sleep(HOURS)
        message = {"role": "assistant", "content": "seven"}
        choice = {"index": 0, "message": message, "text": "seven", "finish_reason": "stop"}
        usage = {"prompt_tokens": 500, "completion_tokens": 1, "total_tokens": 501}
        return 200, {}, {"id": "x", "object": "completion", "model": "m", "choices": [choice], "usage": usage}

    server = ScriptedServer(answer)
    yield server
    server.close()


def test_quick_answers_do_not_wait_for_a_slow_one(bundle: Path, slow_server: ScriptedServer, tmp_path: Path) -> None:
    """Whoever asks, and however: killed while the sixth answer takes hours, a run has left five."""
    model = slow_sixth(tmp_path, bundle)
    card = tmp_path / "served.toml"
    card.write_text(f'backend = "endpoint"\n[options]\nurl = "{slow_server.url}"\nconcurrency = 3\n')
    ways: dict[str, Sequence[object]] = {
        "batched": (model,),
        "one by one": (model, "--no-batching"),
        "a worker": (model, "--workers", 1),
        "an endpoint": (card,),
    }
    running = {}
    for way, (asked, *more) in ways.items():
        folder = tmp_path / way
        folder.mkdir()
        running[way] = (start(folder, bundle, asked, *more), folder / "r.duckdb")
    waiting = set(ways)
    patience = time.monotonic() + 60  # a run that never commits must end the test
    while waiting and time.monotonic() < patience:
        waiting -= {way for way in waiting if committed(running[way][1]) >= QUICK or running[way][0].poll() is not None}
        time.sleep(0.2)
    for way, (one, path) in running.items():
        assert one.poll() is None, f"{way}: {one.communicate()[1]}"
        os.killpg(one.pid, signal.SIGKILL)
        one.communicate()
        assert left(path) == QUICK, way


KILLS = kills(50)
PARTS = 5 if KILLS == 50 else 1
_CHILD = """
import os, random, signal, sys, time
from results_parts import lbx as call
import lbx.running.execution, lbx.running.runner, lbx.running.workers.pool
import lbx.results, lbx.benchmarks.registry, lbx.backends.scripted
from lbx.results import Store
part, kills, arguments = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
lbx.running.runner.BATCH_ROWS = 8
chance = random.Random(part)
for _ in range(kills):
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        write = Store.write
        def told(self, **rows):
            write(self, **rows)
            os.write(theirs, b"x" * len(rows.get("generations", ())))
        Store.write = told
        try:
            print(call(*arguments), file=sys.stderr, flush=True)
        except BaseException:
            import traceback; traceback.print_exc()
        finally:
            os.write(theirs, b"!")
            os._exit(1)
    os.close(theirs)
    seen = os.read(ours, 4096)
    time.sleep(chance.random() * 0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while part := os.read(ours, 4096):
        seen += part
    os.close(ours)
    print(len(seen), seen.count(b"!"), flush=True)
    print(time.monotonic(), len(seen), file=sys.stderr)
"""


@pytest.mark.parametrize("part", range(PARTS))
def test_kills_in_the_middle_of_a_run(tmp_path: Path, part: int) -> None:
    """Each one after the first commit of its session: what was committed by then is there, and the run goes on."""
    bundle, results, model = make_bundle(tmp_path, 40), tmp_path / "r.duckdb", tmp_path / "model.jsonl"
    model.write_text(json.dumps({"key": "*", "text": "seven", "delay_s": 0.002}))
    command = (
        "run",
        "-b",
        bundle,
        "-m",
        model,
        "-t",
        "needle/single_en",
        "-o",
        results,
        "--no-plan",
        "--iterations",
        20,
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CHILD, str(part), str(KILLS // PARTS), *map(str, command)],
        capture_output=True, text=True, check=True, env=with_parts() | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    told = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    assert len(told) == KILLS // PARTS, done.stderr
    assert not sum(ended for _, ended in told), done.stderr
    assert all(count for count, _ in told), "a kill came before the first commit"
    assert left(results) >= sum(count for count, _ in told)
    with duckdb.connect(str(results), read_only=True) as connection:
        ((odd,),) = connection.execute(
            "SELECT count(*) FROM generations g "
            "ANTI JOIN scores s USING (run_id, benchmark, task, sample_id, iteration)"
        ).fetchall()
    assert not odd, "an answer without its score"


MOMENTS = 12
_AT_MOMENTS = """
import contextlib, json, os, pathlib, signal, sys
from results_parts import lbx as call
import lbx.running.execution, lbx.running.runner, lbx.running.workers.pool
import lbx.results, lbx.benchmarks.registry, lbx.backends.scripted
from lbx.results import Store
folder, wanted, arguments = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
lbx.running.runner.BATCH_ROWS = 8
transaction, close, passed = Store.transaction, Store.close, 0

def moment():
    global passed
    passed += 1
    if passed == deadly:
        os.kill(os.getpid(), signal.SIGKILL)

@contextlib.contextmanager
def watched(self):
    moment()  # nothing of it is written
    with transaction(self) as connection:
        yield connection
        moment()  # all of it is written, and nothing committed
    moment()  # committed

def closing(self):
    moment()  # the newest commits are in DuckDB's log alone
    close(self)

Store.transaction, Store.close = watched, closing

def run(name, at):
    global deadly
    deadly = at
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = call(*arguments, "-o", folder / name)
            os.write(theirs, json.dumps([said.code, passed]).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    ended = os.waitpid(child, 0)[1]
    told = os.read(ours, 4096)
    os.close(ours)
    return os.waitstatus_to_exitcode(ended), json.loads(told) if told else None

code, (said, steps) = run("whole.duckdb", 0)
print(json.dumps([0, said]))
for number in range(wanted):
    at = 1 + number * (steps - 1) // (wanted - 1)
    name = f"{number}.duckdb"
    killed, nothing = run(name, at)
    again, told = run(name, 0)
    print(json.dumps([killed, told[0]]))
"""
_ANSWERS = """
    SELECT g.task, g.sample_id, g.iteration, g.output, g.prompt_sha256, s.metric, s.score
    FROM generations g LEFT JOIN scores s USING (run_id, benchmark, task, sample_id, iteration) ORDER BY ALL
"""


def test_kills_at_every_kind_of_moment_of_a_commit(tmp_path: Path) -> None:
    """Before a commit, with all of it written, after it, before the file is closed; from the first to the last one.

    Each time the same command ends with what an undisturbed run has: every answer once, with its score.
    """
    bundle, model = make_bundle(tmp_path, 8), tmp_path / "model.jsonl"
    model.write_text(json.dumps({"key": "*", "text": "seven"}))
    command = ("run", "-b", bundle, "-m", model, "-t", "needle/single_en", "--no-plan")
    done = subprocess.run(
        [sys.executable, "-P", "-c", _AT_MOMENTS, tmp_path, str(MOMENTS), *map(str, command)],
        capture_output=True, text=True, check=True, env=with_parts() | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert told == [[0, 0], *[[-signal.SIGKILL, 0]] * MOMENTS], done.stderr
    files = [tmp_path / f"{name}.duckdb" for name in ("whole", *range(MOMENTS))]
    whole, *others = (answers(file) for file in files)
    assert len(whole) == 24
    for number, found in enumerate(others):
        assert found == whole, f"the kill at moment {number}"


def answers(path: Path) -> list[tuple[object, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(_ANSWERS).fetchall()


def on_a_small_disk(folder: Path, size: int, script: str) -> Said:
    """A shell script in a namespace of its own, with a file system of so many bytes at ``folder``."""
    inside = f"mount -t tmpfs -o size={size} none '{folder}' && cd '{folder}' && {script}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", inside], capture_output=True, text=True, check=False)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("needs unshare -rm and tmpfs")
    return Said(done.returncode, done.stdout, done.stderr)


def big_file(path: Path) -> Path:
    """A results file of some megabytes, whose run has no scores yet."""
    results_file(path, run="r1")
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "INSERT INTO samples BY NAME "
            "SELECT samples.* REPLACE (printf('%05d', n) AS sample_id) FROM samples, range(1, 9000) r(n)"
        )
        connection.execute(
            "INSERT INTO generations BY NAME SELECT generations.* REPLACE (printf('%05d', n) AS sample_id, "
            "'seven ' || repeat(md5(n::VARCHAR), 10) AS output) FROM generations, range(1, 9000) r(n)"
        )
        connection.execute("DELETE FROM scores")
    return path


@pytest.mark.parametrize("command", ["score", "merge"])
def test_a_full_disk(tmp_path: Path, command: str) -> None:
    kept = tmp_path / "kept"
    disk = tmp_path / "disk"
    kept.mkdir()
    disk.mkdir()
    big = big_file(kept / "big.duckdb")
    room = big.stat().st_size + (2**18 if command == "score" else 2**21)
    call = f"'{sys.executable}' -P -m lbx.cli"
    act = f"cp '{big}' r.duckdb && {call} " + (
        "score r.duckdb --processes 1" if command == "score" else "merge r.duckdb -o all.duckdb"
    )
    said = on_a_small_disk(disk, room, f"{act}; echo code $?; ls -A; cp r.duckdb '{kept}/after.duckdb'")
    assert "code 1" in said.out, said.all
    assert "Traceback" not in said.err
    assert "did not expect" not in said.err
    assert "all.duckdb" not in said.out
    assert ".part" not in said.out
    after = lbx(
        "sql", kept / "after.duckdb", "SELECT count(*) AS n, count(DISTINCT output) AS o FROM generations", "-f", "csv"
    )
    assert after.out == "n,o\n9000,9000\n"
    assert lbx("score", kept / "after.duckdb", "--processes", 1).code == 0


_JUMPING = """
import datetime, itertools, sys
jumps = itertools.cycle([0, -86400 * 400, 86400 * 4000, -3600])
class Jumping(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=next(jumps))
import lbx.results.rows, lbx.running.monitor, time
for module in (lbx.results.rows, lbx.running.monitor):
    module.datetime = Jumping
real = time.time
time.time = lambda: real() + next(jumps)
from lbx.cli.main import main
main()
"""


def test_a_clock_that_jumps(bundle: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.jsonl"
    model.write_text(json.dumps({"key": "*", "text": "seven"}))
    out = tmp_path / "r.duckdb"
    command = ("run", "-b", bundle, "-m", model, "-t", "needle/single_en", "-o", out, "--no-plan")
    for more in (("-n", 3), ()):
        arguments = [str(part) for part in (*command, *more)]
        done = subprocess.run(
            [sys.executable, "-P", "-c", _JUMPING, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert left(out) == 6
    assert lbx("report", out, "estimates").code == 0
    merged = tmp_path / "all.duckdb"
    assert lbx("merge", out, "-o", merged).code == 0
    assert left(merged) == 6


def test_a_results_file_that_goes_read_only_while_asked(bundle: Path, tmp_path: Path) -> None:
    """A commit by the clock that fails stops the run, with the reason."""
    model = slow_sixth(tmp_path, bundle)
    broken = (
        "import lbx.results.file.store as s, duckdb, sys\n"
        "from lbx.base.errors import StoreError\n"
        "def full(self, **rows): raise StoreError('could not be written: No space left')\n"
        "s.Store.write = full\n"
        "from lbx.cli.main import main\nmain()\n"
    )
    lines = [json.loads(line) for line in model.read_text().splitlines()]
    lines[-1]["delay_s"] = 4
    model.write_text("\n".join(map(json.dumps, lines)))
    command = ("run", "-b", bundle, "-m", model, "-t", "needle/single_en", "-o", tmp_path / "r.duckdb", "--no-plan")
    done = subprocess.run(
        [sys.executable, "-P", "-c", broken, *map(str, (*command, "-n", 6))],
        capture_output=True,
        text=True,
        check=False,
    )
    refused(Said(done.returncode, done.stdout, done.stderr), "No space left")
    assert process("report", tmp_path / "r.duckdb").code == 0
