"""Nodes that are lost at random moments: the shards continue elsewhere, and repeat only what was not committed."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lbx.base.records import sha256_text
from lbx.cluster.folder import RunFolder
from lbx.results.file.snapshots import query_committed
from lbx.results.whole.copies import log_of
from tests.backends.endpoint_servers import Answer, ScriptedServer
from tests.cluster.same_rows import same_rows
from tests.command_line import Lbx

SHARDS, LOST_NODES, SECONDS_AN_ANSWER = 2, 2, 0.5
MODELS = {"object": "list", "data": [{"id": "served", "object": "model"}]}


def reply_to(text: str) -> str:
    return sha256_text(text)[:12]


def answer(path: str, payload: Any, _before: int) -> Answer:
    if payload is None:
        return (200, {}, MODELS) if path == "/v1/models" else (404, {}, {})
    time.sleep(SECONDS_AN_ANSWER)
    message = {"role": "assistant", "content": reply_to(str(payload["messages"][-1]["content"]))}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return 200, {}, {"choices": [choice], "usage": {"prompt_tokens": 5000, "completion_tokens": 5}}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    made = ScriptedServer(answer)
    yield made
    made.close()


class Node:
    """A node that runs a shard's script, with a disk of its own."""

    def __init__(self, folder: RunFolder, shard: int, disk: Path) -> None:
        disk.mkdir()
        self._disk = disk
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(shard), "SLURM_ARRAY_JOB_ID": "1", "DISK": str(disk)}
        self.script = subprocess.Popen(
            ["bash", folder.root / "job.sh"], env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True
        )

    def lose(self) -> None:
        """Kill script and run at once, and lose the disk."""
        os.killpg(self.script.pid, signal.SIGKILL)
        self.script.communicate()
        shutil.rmtree(self._disk)


def replies(server: ScriptedServer) -> list[str]:
    """Answers to all questions so far, including those that did not reach lbx."""
    return [reply_to(str(payload["messages"][-1]["content"])) for payload in server.posts("/v1/chat/completions")]


def committed(file: Path) -> set[str]:
    rows = query_committed(file, "SELECT output FROM generations", []) if file.exists() else []
    return {row[0] for row in rows}


@pytest.mark.long("starts seven processes; tests/results/test_copies.py has every moment at which a node can be lost")
def test_a_lost_node_repeats_only_what_it_had_not_committed(
    lbx: Lbx, bundle: Path, tmp_path: Path, server: ScriptedServer
) -> None:
    card, folder = tmp_path / "served.toml", RunFolder(tmp_path / "run")
    options = f'url = "{server.url}"\napi = "chat"\nconcurrency = 2\n'
    card.write_text(f'backend = "endpoint"\nname = "served"\n[options]\n{options}')
    what = ["--bundle", bundle, "--model", card, "--tasks", "needle", "--name", "whole"]
    planned = lbx.ok(
        "submit", "slurm", *what, "-o", folder.root, "--shards", SHARDS, "--scratch", "$DISK", "--no-measure-speed",
        "--dry-run", "--json",
    )  # fmt: skip
    submission = json.loads(planned.stdout)
    folder.create()
    for path, value in ((folder.spec_file, submission["spec"]), (folder.plan_file, submission["plan"])):
        path.write_text(json.dumps(value))
    (folder.root / "job.sh").write_text(submission["scripts"]["job.sh"])

    chance, lost_nodes, lost = random.Random(41), 0, 0
    for shard in range(SHARDS):
        file = folder.shard(shard)
        for number in itertools.count():
            before, kept = len(replies(server)), committed(file)
            node = Node(folder, shard, tmp_path / f"disk-{shard}-{number}")
            while len(replies(server)) == before and node.script.poll() is None:
                time.sleep(0.02)
            if number < LOST_NODES:
                time.sleep(chance.uniform(1.0, 3.5))
            is_over = number >= LOST_NODES or node.script.poll() is not None
            if is_over:
                said = node.script.communicate()[1]
                assert node.script.returncode == 0, said
            else:
                node.lose()
                lost_nodes += 1
            asked = set(replies(server)[before:])
            assert not kept & asked, "a committed answer is not repeated"
            assert kept <= committed(file)
            lost += len(asked - committed(file))
            if is_over:
                break
        assert not log_of(file).exists()
    assert len(set(replies(server))) == 48 and len(replies(server)) == 48 + lost
    assert lost_nodes
    print(f"{lost_nodes} lost nodes: {lost} of 48 answers were computed again")
    lbx.ok("merge", folder.root)
    lbx.ok("run", *what, "-o", tmp_path / "one.duckdb", "--no-plan")
    assert same_rows(folder.results, tmp_path / "one.duckdb")["generations"] == 48
