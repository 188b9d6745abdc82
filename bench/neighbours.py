"""lbx on CPUs that other processes use as well, and under a CPU quota.

    python -m bench.neighbours [--threads 2] [--repeats 3] [--only hf,llamacpp] [--spins 1000,10000]

SmolLM2-135M-Instruct answers 12 questions on a document of L-Eval's tpo, in these situations:

    quiet      no other process
    busy       one process computes on one of the CPUs all the time
    quota      a control group allows half of the CPUs' time (root, control groups of version 1); without --threads, lbx
               would compute with half as many threads

"waits" is how threads wait: "lbx" as lbx sets it, "libgomp" as libgomp does by itself, a number as with that
GOMP_SPINCOUNT. The best of all repeats counts, since a virtual machine's speed varies. "x quiet" is CPU seconds over
those of libgomp's own waiting on quiet CPUs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from bench import engine
from bench.contest import Job, Result, ratio, run_contender, table

CONTENDERS = {"hf": "hf-lbx", "llamacpp": "llamacpp-lbx"}
SPINS = "GOMP_SPINCOUNT"
LIBGOMP = "300000"
"""libgomp's own number of iterations, by its documentation."""
_GROUPS = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000


def main() -> int:
    args = parse_arguments()
    words = ["--smollm2", "--tasks", "tpo", "--documents", "1", "--threads", str(args.threads)]
    waits = {"libgomp": LIBGOMP, "lbx": ""} | {spins: spins for spins in args.spins.split(",") if spins}
    with tempfile.TemporaryDirectory(prefix="lbx-bench-") as temporary:
        folder = Path(temporary)
        job, _, _ = engine.prepare_job(engine.parse_arguments(words), folder)
        for backend in args.only.split(","):
            _compare(backend, job, folder, waits, args.repeats)
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2, help="CPUs that lbx is pinned to")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="hf,llamacpp", help="backends")
    parser.add_argument("--spins", default="", help="further values of GOMP_SPINCOUNT")
    return parser.parse_args()


def _compare(backend: str, job: Job, folder: Path, waits: dict[str, str], repeats: int) -> None:
    situations: dict[str, tuple[Job, Callable[[], AbstractContextManager[object]]]] = {
        "quiet": (job, nullcontext),
        "busy": (job, lambda: _busy(job.cores[-1])),
    }
    if _can_limit():
        situations["quota"] = (job, lambda: _quota(len(job.cores) / 2))
    rows, quiet = [], None
    for situation, (work, surroundings) in situations.items():
        best: dict[str, Result] = {}
        for _ in range(repeats):  # in turns, since the speed of a machine drifts
            for name, spins in waits.items():
                with surroundings():
                    result = _run(CONTENDERS[backend], work, folder, spins)
                if name not in best or result.cpu_s < best[name].cpu_s:
                    best[name] = result
        quiet = quiet or best["libgomp"]
        rows += [
            [situation, name, f"{result.wall_s:.1f}", f"{result.cpu_s:.1f}", ratio(result.cpu_s, quiet.cpu_s)]
            for name, result in best.items()
        ]
    print(f"\n{backend}\n" + table(("situation", "waits", "wall s", "CPU s", "x quiet"), rows), flush=True)


def _run(name: str, job: Job, folder: Path, spins: str) -> Result:
    previous = {variable: os.environ.pop(variable, None) for variable in (SPINS, "OMP_WAIT_POLICY")}
    if spins:
        os.environ[SPINS] = spins
    try:
        return run_contender(name, job, folder)
    finally:
        os.environ.pop(SPINS, None)
        os.environ.update({variable: text for variable, text in previous.items() if text is not None})


@contextmanager
def _busy(core: int) -> Iterator[None]:
    """Compute on one core in a process of its own."""
    script = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", script])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _can_limit() -> bool:
    return os.geteuid() == 0 and (_GROUPS / "cpu" / "cpu.cfs_quota_us").parent.is_dir()


@contextmanager
def _quota(cpus: float) -> Iterator[None]:
    """Limit this process and its children to a number of CPUs, by a control group of version 1."""
    parent = _GROUPS / "cpu"
    group = parent / f"lbx-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(round(cpus * _PERIOD_US)))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (parent / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


if __name__ == "__main__":
    sys.exit(main())
