"""``lbx parity`` as a process, on the demo's model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import Lbx, fails


@pytest.fixture(scope="module")
def demo(demo_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A card of the demo's model on llama.cpp."""
    path = tmp_path_factory.mktemp("demo") / "demo.toml"
    path.write_text(f'name = "demo"\nbackend = "llamacpp"\n[weights]\npath = "{demo_gguf}"\n')
    return path


def test_a_model_is_like_itself(lbx: Lbx, demo: Path, bundle: Path) -> None:
    parity = ("parity", demo, demo, "-b", bundle, "-t", "needle/single_en", "-n", 2)
    done = lbx.ok(*parity, "--fail-above", 0)
    assert "The same within 0." in done.stderr
    for heading in ("same ids", "KL, mean", "answered by both", "recall"):
        assert heading in done.stdout
    told = json.loads(lbx(*parity, "--json", "--positions", 2).stdout)
    assert (told["same_vocabulary"], told["all"]["prompts"], told["all"]["same_outputs"]) == (True, 2, 2)
    assert told["tasks"][0]["difference"] == 0
    assert told["prompts"][0]["logits"]["positions"] <= 3
    assert told["first"]["settings"] == told["second"]["settings"]


def test_the_card_ends_answers(lbx: Lbx, demo: Path, demo_gguf: Path, bundle: Path) -> None:
    def outputs(card: Path) -> list[str]:
        told = json.loads(lbx("parity", card, demo, "-b", bundle, "-t", "needle/single_en", "-n", 2, "--json").stdout)
        return [prompt["outputs"][0] for prompt in told["prompts"]]

    whole = outputs(demo)
    stop = whole[0][len(whole[0]) // 2 :]
    stopped = demo.with_name("stopped.toml")
    stopped.write_text(f'name = "demo"\nbackend = "llamacpp"\nstop = ["{stop}"]\n[weights]\npath = "{demo_gguf}"\n')
    assert stop and outputs(stopped)[0] == whole[0].removesuffix(stop) != whole[0]


def test_what_is_not_the_same_fails_where_that_is_asked(lbx: Lbx, demo: Path, bundle: Path, answers: Path) -> None:
    other = demo.with_name("answers.toml")
    other.write_text(f'name = "oracle"\nbackend = "scripted"\n[weights]\npath = "{answers}"\n')
    parity = ("parity", other, demo, "-b", bundle, "-t", "needle/single_en", "-n", 1)
    done = lbx.ok(*parity)
    assert "the backend scripted of oracle does not return them" in " ".join(done.stderr.split())
    fails(lbx(*parity, "--fail-above", 1), 1, "Not the same within 1: 1 of 1 prompts do not have equal token ids")


def test_what_parity_refuses(lbx: Lbx, demo: Path, bundle: Path) -> None:
    fails(lbx("parity", demo, demo, "-b", bundle), 2, "--bundle and --tasks choose the prompts together")
    fails(lbx("parity", demo, "none.gguf"), 2, "none.gguf")
    fails(lbx("parity", demo, demo, "-b", bundle, "-t", "needle/none"), 2, 'There is no task "needle/none"')


def test_two_cache_types_by_depth(lbx: Lbx, demo: Path, demo_gguf: Path, bundle: Path, tmp_path: Path) -> None:
    coarse = demo.with_name("coarse.toml")
    options = 'cache_type_k = "q8_0"\ncache_type_v = "q8_0"\nflash_attention = true\n'
    coarse.write_text(f'name = "coarse"\nbackend = "llamacpp"\n[weights]\npath = "{demo_gguf}"\n[options]\n{options}')
    text = tmp_path / "text.txt"
    text.write_text("The grey harbour has seven bridges, and each has a name. " * 90)
    empty = tmp_path / "empty.txt"
    empty.touch()
    texts = [word for path in (text, text, empty) for word in ("--text", path)]
    done = lbx.ok("parity", demo, demo, coarse, "--depth", *texts, "--length", 4_000)
    said = " ".join(done.stderr.split())
    assert "Left out 2 texts with fewer than two tokens or with another's tokens." in said
    assert "No text reaches the length of 4,000 tokens: the longest has" in said
    for words in ("memory", "F32, KV q8_0", "KL, mean", "same top token %", "perplexity ratio", "coarse"):
        assert words in done.stdout
    assert "Positions in fewer than 6 texts have no interval." in done.stdout
    told = json.loads(lbx("parity", demo, demo, coarse, "--depth", "--text", text, "--json").stdout)
    same, other = told["candidates"]
    assert all(row["kl"] < 1e-5 for row in same["bins"])
    assert other["bins"][0]["kl"] > same["bins"][0]["kl"] and same["bins"][0]["same_top"] == 1
    assert other["kv_bytes_per_token"] < same["kv_bytes_per_token"]


def test_what_depth_refuses(lbx: Lbx, demo: Path, bundle: Path, tmp_path: Path) -> None:
    depth = ("parity", demo, demo, "--depth")
    fails(lbx(*depth), 2, "either the documents of a bundle's tasks, or text files")
    fails(lbx(*depth, "-b", bundle), 2, "--depth needs the tasks with the documents")
    fails(lbx(*depth, "--text", tmp_path / "none.txt"), 2, "none.txt")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00" * 2000)
    fails(lbx(*depth, "--text", tmp_path / "bytes.txt"), 2, "is not UTF-8 text")
    (tmp_path / "short.txt").write_text("A word.")
    fails(lbx(*depth, "--text", tmp_path / "short.txt"), 2, "less than half of the first bin of 1,024")
    fails(lbx("parity", demo, demo, "--text", tmp_path / "short.txt"), 2, "Pass --depth, too")
    fails(lbx("parity", demo, demo, demo), 2, "two models at a time")


def test_formats_join_runs_and_positions(lbx: Lbx, demo: Path, demo_gguf: Path, bundle: Path, tmp_path: Path) -> None:
    coarse = tmp_path / "coarse.toml"
    options = 'cache_type_k = "q8_0"\ncache_type_v = "q8_0"\nflash_attention = true\n'
    coarse.write_text(f'name = "coarse"\nbackend = "llamacpp"\n[weights]\npath = "{demo_gguf}"\n[options]\n{options}')
    text, results = tmp_path / "text.txt", tmp_path / "r.duckdb"
    text.write_text("The grey harbour has seven bridges, and each has a name. " * 60)
    lbx.ok("parity", demo, coarse, "--depth", "--text", text, "-o", results)
    assert "not run" in lbx.ok("report", results, "formats").stdout
    for model in (demo, coarse):
        lbx.ok("run", "-b", bundle, "-m", model, "-t", "needle/single_en", "-n", 4, "-o", results, "--no-plan")
    reference, candidate = json.loads(lbx.ok("report", results, "formats", "-f", "json").stdout)
    assert (reference["model"], candidate["model"]) == ("demo", "coarse")
    assert (candidate["benchmark"], candidate["n"]) == ("needle", 4)
    assert candidate["reference_run"].startswith("demo-llamacpp-") and candidate["run"].startswith("coarse-llamacpp-")
    assert candidate["verdict"] and candidate["verdict"] != "not run"
    assert candidate["memory_bytes"] < reference["memory_bytes"]
    flips = json.loads(lbx.ok("report", results, "flips", "-f", "json").stdout)
    assert sum(row["n"] for row in flips) == 4
