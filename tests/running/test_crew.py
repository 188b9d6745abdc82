"""Worker processes: what is dealt out to them, and what their deaths cost."""

from __future__ import annotations

import functools
import os
import pickle
import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.backends.options import thread_count
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BackendError, InterruptedByUserError, LbxError, UsageError
from lbx.base.records import SampleKey, Task
from lbx.base.resources import visible_gpus
from lbx.benchmarks.registry import BENCHMARKS
from lbx.options.run_spec import RunSettings, RunSpec
from lbx.options.sample_selection import EVERYTHING
from lbx.running.jobs import Job, JobSize, RunQuestions, make_jobs
from lbx.running.plan import use_one_share
from lbx.running.preparing import prepare_worker
from lbx.running.resolved_run import ResolvedRun
from lbx.running.workers import pool as devices
from lbx.running.workers.pool import WorkerPool, divide_machine
from tests.profiles import kills
from tests.running.crew_calls import boom, loaded, names_of
from tests.running.engine_parts import scripted, v2_bundle, v2_row

QUESTIONS = 120
TASK = Task("longbench_v2", "mcq", ("accuracy",), QUESTIONS)


def v2(root: Path, documents: int = 40) -> Bundle:
    """Some questions on each document."""
    rows = [v2_row(number, context=f"Document {number * documents // QUESTIONS}.") for number in range(QUESTIONS)]
    return v2_bundle(root, rows)


def questions_of(bundle: Bundle, **settings: int) -> RunQuestions:
    return RunQuestions(bundle, [TASK], BENCHMARKS, RunSettings(**settings))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return v2(tmp_path_factory.mktemp("bundle"))


def jobs_of(run_questions: Sequence[RunQuestions], done: Sequence[set[SampleKey]], size: JobSize) -> list[Job]:
    return list(make_jobs(run_questions, done, size))


def asked(jobs: Sequence[Job]) -> Counter[tuple[int, SampleKey]]:
    return Counter(
        (item.run, item.sample.key._replace(iteration=one)) for job in jobs for item in job for one in item.iterations
    )


# --- jobs


@given(questions=st.integers(1, 200), characters=st.integers(1, 5000), iterations=st.integers(1, 3), seed=st.integers())
def test_every_question_is_in_one_job_and_no_document_in_two(
    bundle: Bundle, questions: int, characters: int, iterations: int, seed: int
) -> None:
    run_questions = [questions_of(bundle, iterations=iterations), questions_of(bundle, iterations=2)]
    chance = random.Random(seed)
    keys = [SampleKey(TASK.benchmark, TASK.name, f"q{n}", i) for n in range(QUESTIONS) for i in range(2)]
    done = [set(chance.sample(keys, 50)), set(chance.sample(keys, 50))]
    jobs = jobs_of(run_questions, done, JobSize(questions, characters))
    wanted = {
        (run, SampleKey(TASK.benchmark, TASK.name, f"q{number}", iteration))
        for run, times in enumerate((iterations, 2))
        for number in range(QUESTIONS)
        for iteration in range(times)
    }
    wanted = {(run, key) for run, key in wanted if key not in done[run]}
    assert asked(jobs) == Counter(wanted)
    documents = [{item.sample.context for item in job} for job in jobs]
    assert len(set().union(*documents)) == sum(map(len, documents))
    assert all(jobs)


def test_a_job_ends_within_a_document_that_has_too_many_questions(bundle: Bundle) -> None:
    """Hundreds of prompts of one long document would take gigabytes while they wait."""
    whole = jobs_of([questions_of(bundle)], [set()], JobSize(1, 1))
    parts = jobs_of([questions_of(bundle)], [set()], JobSize(1, 1, most_characters=1))
    assert max(map(len, whole)) > 1
    assert {len(job) for job in parts} == {1}
    assert asked(parts) == asked(whole)


def test_what_is_done_is_told(bundle: Bundle) -> None:
    done = {SampleKey(TASK.benchmark, TASK.name, f"q{number}") for number in range(7)}
    told: list[int] = []
    list(make_jobs([questions_of(bundle)], [done], JobSize(), told.append))
    assert told == [0] * 7


def test_jobs_are_small_where_many_share_the_work() -> None:
    assert JobSize.for_workers(0, 4750) == JobSize.for_workers(1, 4750) == JobSize()
    assert JobSize.for_workers(8, 4750).questions < 4750 // 8 // 4
    assert JobSize.for_workers(8, 10).questions == 16


# --- devices


def test_cores_are_dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes, two hardware threads a core: a worker gets whole cores of one node."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(devices, "_nodes", lambda: [(0, [0, 1, 4, 5]), (1, [2, 3, 6, 7])])
    monkeypatch.setattr(devices, "_physical_core", lambda cpu: cpu % 4)
    assert [share.cores for share in divide_machine(2)] == [(0, 4, 1, 5), (2, 6, 3, 7)]
    assert [share.cores for share in divide_machine(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert [len(share.cores) for share in divide_machine(3)] == [2, 3, 3]
    assert {share.cores for share in divide_machine(16)} == {(cpu,) for cpu in range(8)}


def test_workers_share_what_a_quota_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "6")
    shares = divide_machine(4)
    assert [len(share.cores) for share in shares] == [16] * 4
    assert [share.cpu_count for share in shares] == [1, 2, 1, 2]
    assert {share.cpu_count for share in divide_machine(16)} == {1}
    with use_one_share(4):
        assert thread_count(0) == 1
    assert thread_count(0) == 6


CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


def gpu_environments(monkeypatch: pytest.MonkeyPatch, workers: int, **lists: str) -> list[dict[str, str]]:
    """GPU variables that each worker gets if only ``lists`` are set."""
    for name in (CUDA, HIP, ROCR):
        monkeypatch.delenv(name, raising=False)
    for name, value in lists.items():
        monkeypatch.setenv(name, value)
    environments = (share.environment for share in divide_machine(workers))
    return [{name: value for name, value in one.items() if name.endswith("_DEVICES")} for one in environments]


@pytest.mark.parametrize("variable", [CUDA, HIP, ROCR])
@pytest.mark.parametrize(
    ("listed", "parts"),
    [
        ("0,1", ["0", "1"]),
        ("2,5,GPU-af", ["2", "5,GPU-af"]),
        ("2,5,GPU-af", ["2", "5", "GPU-af", "2"]),
        ("MIG-a1,MIG-b2", ["MIG-a1", "MIG-b2"]),
        ("MIG-GPU-af/1/0, MIG-GPU-af/2/0", ["MIG-GPU-af/1/0", "MIG-GPU-af/2/0"]),
        ("3,4,-1,5,6", ["3", "4"]),
        ("3,4,,5", ["3", "4"]),
        ("3,4,none,5", ["3", "4"]),
    ],
)
def test_gpus_are_dealt_out(variable: str, listed: str, parts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = gpu_environments(monkeypatch, len(parts), **{variable: listed})
    assert given == [{variable: part} for part in parts]


@pytest.mark.parametrize("variable", [CUDA, HIP, ROCR])
@pytest.mark.parametrize("listed", ["1", "0,-1,1", "-1", "", "NoDevFiles", "0,0"])
def test_a_list_of_at_most_one_gpu_is_left(variable: str, listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_environments(monkeypatch, 2, **{variable: listed}) == [{}, {}]


@pytest.mark.parametrize(
    ("lists", "parts"),
    [
        ({CUDA: "0,1", HIP: "2,3"}, [{CUDA: "0", HIP: "2"}, {CUDA: "1", HIP: "3"}]),
        ({ROCR: "6,7", HIP: "0,1"}, [{HIP: "0"}, {HIP: "1"}]),  # HIP's are indices into ROCR's
        ({ROCR: "6,7", HIP: "0,1,2,3"}, [{HIP: "0"}, {HIP: "1"}]),
        ({ROCR: "6,7", HIP: "6,7"}, [{}, {}]),
        ({ROCR: "0,1", CUDA: "0,1"}, [{CUDA: "0"}, {CUDA: "1"}]),  # so are CUDA's without HIP's, and Slurm sets both
        ({ROCR: "0,1", CUDA: "0,1", HIP: "0"}, [{CUDA: "0"}, {CUDA: "1"}]),
    ],
)
def test_lists_that_depend_on_each_other(
    lists: dict[str, str], parts: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu_environments(monkeypatch, 2, **lists) == parts


@pytest.mark.parametrize("listed", ["", "0", "0,1", "1, 0", "0,-1,1", "-1", "0,0", "0,x", "NoDevFiles", "GPU-a,GPU-b"])
def test_a_list_of_gpus_is_read_as_torch_reads_it(listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = pytest.importorskip("torch.cuda", reason="needs lbx[hf]")
    monkeypatch.setenv(CUDA, listed)
    assert visible_gpus(CUDA) == [str(gpu) for gpu in cuda._parse_visible_devices()]


def test_this_machine_can_be_dealt_out() -> None:
    cores = sorted(os.sched_getaffinity(0))
    assert sorted(core for share in divide_machine(len(cores)) for core in share.cores) == cores


# --- errors that travel


def test_errors_survive_the_way_between_processes() -> None:
    for error in (
        BackendError("a", fix="b", command="c"),
        UsageError("a"),
        InterruptedByUserError("a", exit_code=143),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.exit_code) == (type(error), str(error), error.exit_code)
        assert (again.cause, again.fix, again.command) == (error.cause, error.fix, error.command)


# --- processes


@pytest.fixture
def crew(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerPool]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with WorkerPool(functools.partial(prepare_worker, order(bundle, tmp_path, {"*": "x"})), 1) as pool:
        yield pool


def ask_all(pool: WorkerPool, bundle: Bundle, size: JobSize | None = None, count: Any = lambda _: None) -> Any:
    return pool.ask(make_jobs([questions_of(bundle)], [set()], size or JobSize()), count)


def order(bundle: Bundle, folder: Path, answers: dict[str, object]) -> ResolvedRun:
    scripted(folder, answers)
    spec = RunSpec(bundle=str(bundle.root), model=str(folder / "model.toml"), tasks=("longbench_v2",))
    return ResolvedRun(spec, bundle, [TASK], EVERYTHING, ["r1"], [RunSettings()], network="offline")


def test_killed_workers_cost_no_answer(bundle: Bundle, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Killed while they ask, wait or load: every question has one answer, and the right one."""
    numbers = range(QUESTIONS)
    answers: dict[str, object] = {f"longbench_v2/mcq/q{n}": {"text": str(n), "delay_s": 0.002} for n in numbers}
    prepare = functools.partial(prepare_worker, order(bundle, tmp_path, answers))
    chance = random.Random(26)
    got: list[tuple[str, str | None]] = []
    moments = set(chance.sample(range(QUESTIONS - 5), 2 * kills(13)))
    with caplog.at_level("INFO", "lbx"), WorkerPool(prepare, 2) as crew:
        for item, row in ask_all(crew, bundle, JobSize(questions=10)):
            got.append((item.sample.sample_id, row.output))
            assert row.error is None
            if len(got) in moments:
                os.kill(chance.choice(crew.process_ids), signal.SIGKILL)
    assert sorted(got) == sorted((f"q{number}", str(number)) for number in range(QUESTIONS))
    said = caplog.messages
    assert 0 < len(said) <= len(moments)
    assert all("SIGKILL" in one for one in said)


def test_calls_reach_a_worker_and_errors_come_back(crew: WorkerPool) -> None:
    assert [row.run_id for row in crew.rows] == ["r1"]
    assert not {"lbx.cli", "rich", "typer"} & set(crew.call(loaded)), "a worker needs no command line"
    os.kill(crew.process_ids[0], signal.SIGKILL)
    assert crew.call(names_of) == ["r1"]
    with pytest.raises(UsageError, match="no such thing"):
        crew.call(boom)


@pytest.mark.parametrize("asks", [False, True])
def test_a_worker_with_another_model_ends_the_run(crew: WorkerPool, bundle: Bundle, tmp_path: Path, asks: bool) -> None:
    """Its answers would get the first one's name: the file has changed, or it computes elsewhere."""
    scripted(tmp_path, {"*": "y"})
    os.kill(crew.process_ids[0], signal.SIGKILL)
    with pytest.raises(BackendError, match=r"different model than the first one: backend\.weights is"):
        list(ask_all(crew, bundle)) if asks else crew.call(names_of)


def test_tokens_are_counted(crew: WorkerPool, bundle: Bundle) -> None:
    counted: list[int] = []
    rows = [row for _, row in ask_all(crew, bundle, count=counted.append)]
    assert sum(counted) == sum((row.prompt_tokens or 0) + (row.output_tokens or 0) for row in rows) > 0


def test_what_cannot_be_loaded_is_said(bundle: Bundle, tmp_path: Path) -> None:
    broken = order(bundle, tmp_path, {"*": "x"})
    (tmp_path / "answers.json").write_text("[")
    with pytest.raises(LbxError, match="not valid JSON"):
        WorkerPool(functools.partial(prepare_worker, broken), 2)
