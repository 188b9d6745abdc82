"""The benchmarks' own arithmetic, and that what they compare answers the same prompts with the same model."""

import importlib
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import contest, gpu, large_files, pages
from bench import report as bench_report
from bench.contest import (
    REPOSITORY,
    ContenderFailedError,
    Job,
    Lap,
    Result,
    Scaling,
    count_equal,
    decode_outputs,
    ratio,
    read_job,
    read_result,
    run_contender,
    table,
    usable_cores,
    write_json,
)
from bench.gpu import FULL, TINY, layer_parameters, parameters, prefill_flops, prompts
from bench.inputs import Shape, link_bundle, make_config, make_gguf, make_hf, make_requests, write_cards
from bench.vllm_profile import PassMeter
from lbx.backends.scripted import ByteTokenizer
from lbx.engine.model import SequenceExtension
from lbx.report.reports import REPORTS
from lbx.results import Store
from tests import page_parts
from tests.chromium import CHROMIUM

JOB = Job([[1] * 10, [2] * 20, [3] * 30], 4, 64, {}, {}, usable_cores(1))


def test_equal_answers_are_counted():
    assert count_equal(["a", "b", "c"], ["a", "x", "c"]) == "2 of 3"
    with pytest.raises(ValueError, match="shorter"):
        count_equal(["a", "b"], ["a"])


def test_answers_are_texts_whichever_way_they_came():
    assert decode_outputs([[1, 2], [3]], lambda ids: "-".join(map(str, ids))) == ["1-2", "3"]
    assert decode_outputs(["a"], lambda ids: "") == ["a"]


def test_speed_ups_are_carried_on_by_amdahls_law():
    scaling = Scaling.from_seconds({1: 10.0, 2: 6.0})
    assert scaling == Scaling(serial_s=2.0, parallel_s=8.0)
    assert scaling.serial_share == pytest.approx(0.2)
    assert scaling.seconds(16) == pytest.approx(2.5)
    assert Scaling.from_seconds({1: 10.0, 2: 4.0}) == Scaling(0.0, 10.0)
    assert Scaling.from_seconds({1: 10.0, 2: 11.0}) == Scaling(10.0, 0.0)


def test_passes_are_measured_by_phase():
    meter = PassMeter(lambda items: sum(len(item.tokens) for item in items))
    for lengths in ([5, 1], [1, 1], [1]):
        assert meter.extend([SequenceExtension(0, [7] * length, False) for length in lengths]) == sum(lengths)
    assert {phase: cost[:2] for phase, cost in meter.costs.items()} == {"prefill": (1, 6), "decode": (2, 3)}


def test_a_table_lines_its_columns_up():
    assert table(["name", "n"], [["a", "10"], ["long name", "7"]]) == (
        "name        n\n---------  --\na          10\nlong name   7"
    )


def test_a_ratio_of_what_is_unknown_is_not_told():
    assert (ratio(9.0, 4.0), ratio(None, 4.0), ratio(9.0, 0.0)) == ("2.25", "", "")


def test_jobs_and_results_survive_their_files(tmp_path):
    job = replace(JOB, groups=[1, 2], never=[3])
    result = Result([[1, 2]], [Lap(1.0, 2.0, 3), Lap(0.5, 0.25, 4)], 5.0, 6.0, notes=["n"])
    write_json(job, tmp_path / "job")
    write_json(result, tmp_path / "result")
    assert read_job(tmp_path / "job") == job
    assert read_result(tmp_path / "result") == result
    assert (result.tokens, result.wall_s, result.cpu_s) == (7, 1.5, 2.25)


def test_a_fresh_process_does_not_begin_with_the_memory_of_the_one_that_started_it():
    ballast = bytearray(b"x") * 300_000_000
    script = "from bench.contest import memory_mb; now, peak = memory_mb(); assert now <= peak; print(peak)"
    said = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, check=True
    )
    assert len(ballast) and 1 < float(said.stdout) < 150


def test_documents_are_taken_at_even_distances(shared, tmp_path):
    bundle = link_bundle(tmp_path, shared("data").parent)
    tokenizer = ByteTokenizer()
    keys = [request.key.sample_id for request in make_requests(bundle, tokenizer, "tpo", documents=3)]
    assert sorted({key[:3] for key in keys}) == ["002", "007", "012"]
    assert len(make_requests(bundle, tokenizer, "tpo")) == 269
    (first, *_) = make_requests(bundle, tokenizer, "tpo", documents=1, window=5000)
    assert first.truncated
    assert tokenizer.encode(first.kept, special=False) == list(first.token_ids)[-len(first.kept.encode()) :]


def test_parameters_are_those_of_the_model():
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    for shape in (Shape(), TINY, FULL):
        with torch.device("meta"):
            model = transformers.LlamaForCausalLM(make_config(shape))
        assert sum(weight.numel() for weight in model.parameters() if weight.dim() > 1) == parameters(shape)
    assert parameters(FULL) > 1e9


def test_flops_are_those_that_torch_counts():
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from torch.utils.flop_counter import FlopCounterMode

    config = make_config(TINY)
    config._attn_implementation = "eager"
    model = transformers.LlamaForCausalLM(config).eval()
    tokens = 96
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        model(torch.arange(tokens)[None], logits_to_keep=1)
    output = 2 * TINY.vocabulary * TINY.hidden
    # Eager attention computes all pairs, those that the mask hides, too.
    hidden = 4 * TINY.hidden * TINY.layers * (tokens * tokens - tokens * (tokens + 1) // 2)
    assert counter.get_total_flops() == prefill_flops(TINY, tokens) + hidden + output
    assert layer_parameters(TINY) < parameters(TINY)


def test_without_a_gpu_the_benchmark_says_so(monkeypatch, capsys):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(sys, "argv", ["bench.gpu"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main() == gpu.NO_GPU
    assert "no CUDA device" in capsys.readouterr().err


@pytest.mark.long("starts four contenders of a benchmark, seconds each")
def test_contenders_answer_the_same_in_processes_of_their_own(tmp_path: Path):
    pytest.importorskip("transformers")
    pytest.importorskip("llama_cpp")
    make_hf(tmp_path, ["the cat sat on the mat; " * 40], TINY)
    make_gguf(tmp_path)
    cards = write_cards(tmp_path, threads=1, dtype="float32", device="cpu", cache_type_k="f32", cache_type_v="f32")
    made = prompts(random.Random(3), 256, 1, 100, 3)
    job = Job(
        prompts=made,
        new_tokens=6,
        window=TINY.context,
        weights={"hf": str(tmp_path / "hf"), "llamacpp": str(tmp_path / "model.gguf")},
        cards={name: str(path) for name, path in cards.items()},
        cores=usable_cores(1),
        groups=[1, 2],
    )
    naive = run_contender("hf-naive", job, tmp_path)
    batched = run_contender("llamacpp-lbx", job, tmp_path)
    reusing, caching = (run_contender(f"{backend}-reuse", job, tmp_path) for backend in ("llamacpp", "hf"))
    from tokenizers import Tokenizer

    decode = Tokenizer.from_file(str(tmp_path / "hf" / "tokenizer.json")).decode
    assert batched.outputs == decode_outputs(naive.outputs, decode)
    assert [lap.tokens for lap in naive.laps] == [164 + 5, 2 * (164 + 5)]
    # The memory is laid out with 32 fillers, once; alone, each step is padded to two tokens.
    assert [lap.tokens for lap in batched.laps] == [32 + 164 + 5 * 2, 100 + 2 * (64 + 5)]
    for one in (reusing, caching):  # they keep the prompt before, across groups
        assert [lap.tokens for lap in one.laps] == [164 + 5, 2 * (64 + 5)]
    assert caching.outputs == naive.outputs
    assert 0 < batched.loaded_mb <= batched.peak_mb


def test_a_contender_that_fails_says_why(tmp_path):
    with pytest.raises(ContenderFailedError, match="KeyError"):
        run_contender("nobody", JOB, tmp_path)


def test_files_for_reports_have_the_answers_asked_for(tmp_path):
    large_files.make_file(tmp_path / "whole", runs=2, answers=50)
    large_files.make_file(tmp_path / "shard", runs=1, answers=50, begin=5)
    rows = []
    for name in ("whole", "shard"):
        with Store(tmp_path / name, read_only=True) as store:
            rows += store.query(
                "SELECT run_id, count(DISTINCT task), count(*) FROM generations GROUP BY 1 ORDER BY 1"
            ).rows
    assert rows == [("run-0000", 5, 50), ("run-0001", 5, 50), ("run-0000", 5, 25)]


def test_costs_are_those_of_the_child_process():
    (_, light), (_, heavy) = (contest.measure([sys.executable, "-c", f"b'x' * {size}"]) for size in (1, 300_000_000))
    assert heavy - light > 200
    with pytest.raises(subprocess.CalledProcessError):
        contest.measure([sys.executable, "-c", "1 / 0"])


def test_every_report_is_measured(tmp_path):
    commands = bench_report.report_commands(tmp_path / "results.duckdb", list(REPORTS))
    assert set(REPORTS) - {"reference", "expected"} == set(commands) - {"one screen", "the page"}


def test_without_chromium_a_page_has_no_seconds_of_opening(monkeypatch, capsys):
    monkeypatch.setattr(pages.shutil, "which", lambda name: None)  # type: ignore[attr-defined]
    with pages._browser() as browser:
        assert browser is None
    assert "chromium is not installed" in capsys.readouterr().err


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; .ci/browser-tools.sh installs it")
def test_chromium_tells_when_a_page_is_painted_and_its_answers_are_listed(tmp_path):
    pytest.importorskip("playwright.sync_api", reason="no playwright here; it is in lbx[dev]")
    file = page_parts.results_file(tmp_path / "r.duckdb")
    arguments = ["report", str(file), "--format", "html", "-o", str(tmp_path / "r.html")]
    subprocess.run([sys.executable, "-P", "-m", "lbx.cli", *arguments], check=True)
    with pages._browser() as browser:
        painted, listed = map(float, pages._opening_seconds(browser, tmp_path / "r.html"))
    assert painted > 0
    assert listed > 0


COMMANDS = [
    " ".join(command.replace("[", "").replace("]", "").split())
    for page in ("speed.md", "bundling.md")
    for command in re.findall(r"`just (bench-[^`]+)`", (REPOSITORY / "docs" / page).read_text("utf-8"))
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_pages_are_understood(command, monkeypatch):
    recipe, *arguments = command.split()
    module = importlib.import_module(f"bench.{recipe.removeprefix('bench-')}")
    monkeypatch.setattr(sys, "argv", [recipe, *arguments])
    if arguments:
        module.parse_arguments()
