"""``lbx parity --depth`` with a candidate on a real server, beside the same model in lbx."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.backends import load, read_card
from lbx.base.errors import BackendError, UsageError
from lbx.report.rows.depth_parity import summarise_by_bin
from lbx.running.depth import DepthText, compare_by_depth
from tests.command_line import Lbx, fails
from tests.parity.test_depth import add_noise, changed
from tests.parity.test_measuring import card as local_card
from tests.servers.server_processes import ServerProcess, needs

WORDS = ["harbour", "ship", "fog", "bridge", "map", "river", "report", "page", "one", "the", "reads"]


def make_text(seed: int) -> DepthText:
    return DepthText(f"text {seed}", " ".join(random.Random(seed).choices(WORDS, k=1500)), 1200 + 100 * seed)


@pytest.fixture
def own(served: tuple[Path, Path], tmp_path: Path) -> Path:
    return local_card(tmp_path, "hf", served[0], 'dtype = "float32"\ndevice = "cpu"\n')


@needs("vllm")
def test_vllm_has_the_numbers_of_the_likeliest_tokens(
    served: tuple[Path, Path], own: Path, vllm_url: str, card: Callable[..., Path], lbx: Lbx, tmp_path: Path
) -> None:
    noisy = changed(served[0], tmp_path / "noisy", add_noise)
    paths = (local_card(tmp_path, "hf", noisy, 'dtype = "float32"\ndevice = "cpu"\n'), own, card(vllm_url, served[0]))
    loads = [lambda path=path: load(read_card(path)) for path in paths]
    found = compare_by_depth([make_text(0), make_text(1)], loads[0], loads[1:], folder=tmp_path)
    local, remote = found.pairs
    for ours, theirs in zip(local.bins, remote.bins, strict=True):
        assert (theirs.text, theirs.start, theirs.positions) == (ours.text, ours.start, ours.positions)
        assert 0.2 * ours.kl < theirs.kl < ours.kl
        assert theirs.log_prob == pytest.approx(ours.log_prob, abs=1e-4)
        assert theirs.same_top == pytest.approx(ours.same_top, abs=2 / ours.positions)
    assert max(item.kl_error_max or 0 for item in remote.bins) < 1e-4
    (tmp_path / "text.txt").write_text(make_text(0).text, "utf-8")
    depth = ("--depth", "--text", tmp_path / "text.txt", "--length", 1200)
    done = lbx.ok("parity", own, paths[2], *depth)
    assert "so that KL is a lower bound" in " ".join((done.stdout + done.stderr).split())
    fails(lbx("parity", paths[2], own, *depth), 2, "cannot be the reference: the backend endpoint")


@needs("vllm")
def test_the_same_model_on_vllm_has_no_divergence(
    served: tuple[Path, Path], own: Path, vllm_url: str, card: Callable[..., Path], tmp_path: Path
) -> None:
    remote = card(vllm_url, served[0])
    found = compare_by_depth(
        [make_text(0)], lambda: load(read_card(own)), [lambda: load(read_card(remote))], folder=tmp_path
    )
    (row,) = summarise_by_bin(found.pairs[0].bins)
    assert row["kl"] < 1e-5
    assert row["same_top"] > 0.99
    assert row["perplexity_ratio"] == pytest.approx(1, abs=1e-4)


@needs("llama-server")
def test_llama_server_is_refused(
    served: tuple[Path, Path], own: Path, llama_server: ServerProcess, card: Callable[..., Path], tmp_path: Path
) -> None:
    for options, error, words in (
        ({}, BackendError, "llama-server.*does not return the probabilities of a prompt's tokens"),
        ({"api": "chat"}, UsageError, "turns texts into tokens itself"),
    ):
        remote = card(llama_server.url, served[1], **options)
        with pytest.raises(error, match=words):
            compare_by_depth(
                [make_text(0)],
                lambda: load(read_card(own)),
                [lambda path=remote: load(read_card(path))],
                folder=tmp_path,
                progress=lambda *_: pytest.fail("the reference was read"),
            )
