"""A server over two nodes of a real Slurm: srun starts it, one of its processes dies, and the job is requeued."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from lbx.base.errors import StoreError
from lbx.results import Store
from tests.cluster import real_slurm
from tests.cluster.real_slurm import Slurm, runs_of_shard, until
from tests.command_line import Lbx

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(real_slurm.missing()), reason=real_slurm.missing())]
SERVER = Path(__file__).parents[1] / "serving" / "small_server.py"

NODE_SCRIPT = """\
#!/bin/bash
# serve.sh PORT: started by srun once on each node; the first node has the server, the second its worker.
if [ "$SLURM_NODEID" -eq 0 ]; then
    exec {python} {server} --port "$1" --worker 127.0.0.1:$(($1 + 1)) --delay 0.5
fi
exec {python} {worker} $(($1 + 1))
"""

WORKER = """\
import socket, sys, time
while True:
    try:
        connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5)
        break
    except OSError:
        time.sleep(0.2)
connection.settimeout(None)
connection.recv(1)
"""


def answer_count(path: Path) -> int:
    try:
        with Store(path, read_only=True) as store:
            return int(store.query("SELECT count(*) FROM generations").rows[0][0])
    except StoreError:
        return 0


def processes(words: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if words in command and "srun" not in command:
            found.append(int(process.name))
    return found


@pytest.mark.parametrize("slurm", [2], indirect=True)
def test_a_server_over_two_nodes(slurm: Slurm, lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    card, script, worker, folder = (tmp_path / name for name in ("served.toml", "serve.sh", "worker.py", "run"))
    card.write_text('backend = "endpoint"\n[options]\nconcurrency = 1\nretries = 8\n')
    worker.write_text(WORKER)
    script.write_text(NODE_SCRIPT.format(python=sys.executable, server=SERVER, worker=worker))
    script.chmod(0o755)
    submitted = lbx.ok(
        "submit", "slurm", "--bundle", bundle, "--model", card, "--tasks", "needle/single_en,needle/multikey_en",
        "--serve", f"srun --kill-on-bad-exit=1 --overlap {script} {{port}}", "--nodes", 2, "--shards", 1, "-o", folder,
        "--scratch", tmp_path, "--time", "10", "--json", environment=slurm.environment,
    )  # fmt: skip
    ids = json.loads(submitted.stdout)
    shard, array = folder / "shards" / "0000.duckdb", f"{ids['array']}_0"
    log = folder / "shards" / "0000.duckdb.server.log"

    def told() -> str:
        outputs = [f"== {path.name}\n{path.read_text()}" for path in [*sorted((folder / "logs").glob("*.out")), log]]
        return "\n".join([*outputs, slurm("squeue"), slurm.logs()])

    until(lambda: answer_count(shard), told)
    (process,) = processes(f"{worker} ")
    os.kill(process, signal.SIGKILL)  # as when a node's GPU fails: the server ends, and lbx starts it again
    before = answer_count(shard)
    until(lambda: answer_count(shard) > before, told)
    slurm("scancel", "--signal=USR1", "--batch", array)  # as when the time limit is near
    until(lambda: slurm.state(array) == "PENDING", told)
    assert not processes(str(SERVER)) and not processes(f"{worker} ") and not runs_of_shard(0, folder)
    until(lambda: slurm("sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle"] * 2, told)
    slurm("scontrol", "update", f"JobId={array}", "StartTime=now+3")  # a node refuses a job revoked in this second
    until(lambda: slurm.state(ids["merge"]) in ("COMPLETED", "FAILED"), told)
    assert slurm.state(ids["merge"]) == "COMPLETED", told()
    with Store(folder / "results.duckdb", read_only=True) as store:
        assert store.query("SELECT count(*) FROM generations WHERE error IS NULL").rows == [(16,)]
        statuses = store.query("SELECT status FROM sessions ORDER BY session").rows
    assert statuses == [("interrupted",), ("done",)]
    assert log.read_text().count("a worker has joined") == 3
    assert not processes(str(SERVER)) and not processes(f"{worker} ")
