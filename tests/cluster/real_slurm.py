"""A real Slurm in a folder: its own munge key, ports and state, nothing of the machine's.

It has any number of nodes on this machine, each a slurmd with a port, a spool folder and a log of its own.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
CORES = 4
PATIENCE_S = 180.0

CONF = """
ClusterName=lbx
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={controller}
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=5
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} RealMemory=8000 State=UNKNOWN"


def missing() -> str:
    """Why no Slurm can be started here; "" where it can."""
    lacking = [name for name in NEEDED if not shutil.which(name, path=PATH)]
    if lacking:
        return f"needs a real Slurm: {', '.join(lacking)} not found (Debian: slurm-wlm and munge)"
    return "" if os.geteuid() == 0 else "needs root, to start a real Slurm"


class Slurm:
    """The running cluster: its programs are called with ``environment``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def __call__(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [program, *arguments], env=self.environment, capture_output=True, text=True, check=False, timeout=30
        )
        assert done.returncode == 0, f"{program} {arguments}: {done.stderr}\n{self.logs()}"
        return done.stdout

    def logs(self) -> str:
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in self.folder.glob("*.log")
        )

    def start_requeued(self, job: str) -> None:
        """Start a requeued job at once instead of after minutes; its node refuses it until its first end is known."""
        until(lambda: "Restarts=0" not in self("scontrol", "show", "job", job).split(), self.logs)
        time.sleep(3)
        _try(self, "scontrol", "update", f"JobId={job}", "StartTime=now")  # it may have started meanwhile

    def state(self, job: str) -> str:
        """Of one job or one task of an array, as scontrol has it."""
        words = self("scontrol", "show", "job", job).split()
        return next(word.removeprefix("JobState=") for word in words if word.startswith("JobState="))


def until(what: Callable[[], object], told: Callable[[], str]) -> None:
    """Wait until something is so; else fail with what is told then."""
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end, told()
        time.sleep(0.3)


def runs_of_shard(number: int, folder: Path) -> list[int]:
    """Process ids of a shard's lbx."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"{folder}/shards.json".encode() in words and words[words.index(b"--shard") + 1] == str(number).encode():
            found.append(int(process.name))
    return sorted(found)


@contextmanager
def running(folder: Path, node_count: int = 1) -> Iterator[Slurm]:
    """Start a cluster with nodes n0, n1 ... of ``CORES`` CPUs each, and stop all of it."""
    folder.chmod(0o755)
    (folder / "state").mkdir()
    host = socket.gethostname().split(".")[0]
    controller, *ports = _free_ports(node_count + 1)
    nodes = {f"n{number}": port for number, port in enumerate(ports)}
    for name in nodes:
        (folder / f"spool-{name}").mkdir()
    slurm = Slurm(folder)
    lines = [NODE.format(name=name, host=host, port=port, cores=CORES) for name, port in nodes.items()]
    (folder / "slurm.conf").write_text(
        CONF.format(folder=folder, host=host, controller=controller, nodes="\n".join(lines))
    )
    (folder / "munge.key").write_bytes(os.urandom(64))
    (folder / "munge.key").chmod(0o600)
    munge = [
        "munged", "--foreground", "--force", "--num-threads=2", f"--key-file={folder}/munge.key",
        f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munge.seed",
        f"--log-file={folder}/munged.log",
    ]  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(_daemon(slurm, munge))
        _wait((folder / "munge.socket").exists, slurm)
        stack.enter_context(_daemon(slurm, ["slurmctld", "-D"]))
        for name in nodes:
            stack.enter_context(_daemon(slurm, ["slurmd", "-D", "-N", name], name))
        _wait(
            lambda: _try(slurm, "sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle"] * node_count, slurm
        )
        try:
            yield slurm
        finally:
            _try(slurm, "scancel", "--signal=KILL", "--full", "--user=root")
            _try(slurm, "scancel", "--user=root")
            _wait(lambda: not _try(slurm, "squeue", "--noheader"), slurm)


@contextmanager
def _daemon(slurm: Slurm, command: list[str], node: str = "") -> Iterator[None]:
    with (slurm.folder / f"{command[0]}{node}.out.log").open("w") as out:
        process = subprocess.Popen(command, env=slurm.environment, stdout=out, stderr=out, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _try(slurm: Slurm, program: str, *arguments: str) -> str:
    done = subprocess.run(
        [program, *arguments], env=slurm.environment, capture_output=True, text=True, check=False, timeout=30
    )
    return done.stdout.strip()


def _wait(true: object, slurm: Slurm, patience_s: float = 30.0) -> None:
    assert callable(true)
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, slurm.logs()
        time.sleep(0.1)
