"""What a spec names is found by a shard that runs in another folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lbx.opinions.judge_spec import JudgeSpec
from lbx.options.run_spec import RunSpec
from tests.command_line import Lbx

CARD = 'backend = "scripted"\n[weights]\npath = "answers.jsonl"\n'
EMBEDDER = 'backend = "llamacpp_embedding"\n[weights]\npath = "e.gguf"\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with cards, one of them in models/."""
    (tmp_path / "models").mkdir()
    for name, text in (("models/small.toml", CARD), ("mine.toml", CARD), ("embedder.toml", EMBEDDER)):
        (tmp_path / name).write_text(text)
    (tmp_path / "models" / "answers.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_whatever_a_spec_names_has_a_full_path(here: Path) -> None:
    spec = RunSpec(
        bundle="long", model="mine.toml", tasks=("needle",), rag=3, retriever="embedder.toml", embedding="embedder.toml"
    ).with_absolute_paths()
    assert (spec.bundle, spec.model) == (str(here / "long"), str(here / "mine.toml"))
    assert (spec.retriever, spec.embedding) == (str(here / "embedder.toml"),) * 2
    named = RunSpec(bundle=str(here / "long"), model="small", tasks=("needle",), rag=3).with_absolute_paths()
    assert named.model == str(here / "models" / "small.toml"), "a name means a card in this folder"
    assert named.retriever == "bm25" and named.embedding is None
    for name in ("org/name", "no-such-card"):
        assert RunSpec(bundle="b", model=name, tasks=("needle",)).with_absolute_paths().model == name
    judge = JudgeSpec(
        bundle="long", model="small", answers="a.duckdb", runs="r", rubric="mine/rubric.toml"
    ).with_absolute_paths()
    assert judge.answers == (str(here / "a.duckdb"),) and judge.rubric == str(here / "mine" / "rubric.toml")


def test_a_link_keeps_its_name(here: Path) -> None:
    """A hub's cache has its files as links to others that are named by their hashes."""
    (here / "blobs").mkdir()
    (here / "blobs" / "0a1b").write_text("")
    (here / "model.gguf").symlink_to("blobs/0a1b")
    assert RunSpec(bundle="b", model="model.gguf", tasks=("needle",)).with_absolute_paths().model == str(
        here / "model.gguf"
    )


def test_a_submitted_run_names_its_embedding_models_in_full(lbx: Lbx, bundle: Path, here: Path) -> None:
    (here / "linked.toml").symlink_to(here / "models" / "small.toml")
    done = lbx.ok(
        "submit", "slurm", "--bundle", os.path.relpath(bundle), "--model", "linked.toml", "-t", "needle",
        "--embedding", "embedder.toml", "--shards", 2, "-o", "run", "--dry-run", "--json", "--characters",
        "--container", "img.sif", "--runtime", "apptainer", cwd=here,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert told["spec"]["embedding"] == str(here / "embedder.toml")
    assert told["spec"]["model"] == str(here / "linked.toml")
    for folder in (here, here / "models"):
        assert f"--bind {folder}:{folder}:ro" in told["scripts"]["job.sh"], "the container sees it"
