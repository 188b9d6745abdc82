"""Runs of RULER from the archive to the report, with the authors' files and small corpora made here."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lbx.benchmarks.ruler import generator
from lbx.options.run_spec import RunSpec
from lbx.running.preparing import resolve
from lbx.running.sent_prompts import SentPrompt, prompts
from tests import profiles
from tests.command_line import Lbx, fails

HF = Path(__file__).resolve().parents[2] / "models" / "demo" / "hf"
TASKS = ("niah_single_1", "vt", "qa_1")
SAMPLES = 3
TEMPLATE = (
    "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}answer:{% endif %}"
    "{% if enable_thinking is false %}<think></think>{% endif %}"
)


@pytest.fixture
def lbx() -> Lbx:
    return Lbx()


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of kept token counts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(generator, "_LOGS", {})
    return tmp_path / "cache" / "lbx" / "ruler"


@pytest.fixture(scope="session")
def files(once: Callable[[str, Callable[[Path], object]], Path], shared: Callable[[str], Path]) -> Path:
    """Files of a bundle: the authors' scripts, few words and a small SQuAD."""
    (scripts,) = shared("data/upstream_more/NVIDIA/RULER").glob("*/scripts/data")

    def make(folder: Path) -> None:
        ours = folder / "NVIDIA" / "RULER" / "scripts" / "data"
        (ours / "synthetic" / "json").mkdir(parents=True)
        for name in ("template.py", "synthetic/constants.py", "synthetic/niah.py", "synthetic/qa.py"):
            shutil.copy(scripts / name, ours / name)
        (folder / "wonderwords").mkdir()
        for part in ("noun", "adjective", "verb"):
            words = "".join(f"{part}{chr(97 + n % 26)}{chr(97 + n // 26)}\n" for n in range(60))
            (folder / "wonderwords" / f"{part}list.txt").write_text(words, "utf-8")
        (ours / "synthetic" / "json" / "squad.json").write_text(json.dumps({"data": squad()}), "utf-8")
        (folder / "ruler").mkdir()
        (folder / "ruler" / "ruler.toml").write_text(f"samples = {SAMPLES}\n", "utf-8")

    return once("ruler-files", make)


def squad() -> list[object]:
    def paragraph(number: int) -> dict[str, object]:
        text = f"The bridge number {number} was built in {1800 + number}. " + "Its river is calm and clear. "
        answer = {"text": str(1800 + number), "answer_start": 0}
        question = {"question": f"When was bridge {number} built?", "answers": [answer], "is_impossible": False}
        return {"context": text, "qas": [question]}

    return [{"paragraphs": [paragraph(5 * article + number) for number in range(5)]} for article in range(12)]


@pytest.fixture(scope="session")
def bundle(once: Callable[[str, Callable[[Path], object]], Path], files: Path) -> Path:
    return once("ruler-bundle", lambda folder: make_bundle(files, folder)) / "bundle"


def make_bundle(files: Path, folder: Path, *, counts: Path | None = None) -> Path:
    """Pack, verify and unpack a bundle."""
    places = {name: files / name for name in ("NVIDIA", "wonderwords", "ruler/ruler.toml")}
    if counts:
        places["ruler/counts"] = counts
    lines = ['name = "small"']
    for place, path in places.items():
        lines += ["[[source]]", 'kind = "path"', f'path = "{path}"', f'to = "{place}"']
        lines += ['allow = ["template.py", "constants.py", "niah.py", "qa.py"]'] if place == "NVIDIA" else []
    recipe = folder / "small.toml"
    recipe.write_text("\n".join(lines), "utf-8")
    return Lbx().unpacked(recipe, folder)


@pytest.fixture
def scripted(tmp_path: Path) -> Path:
    """A model with bytes as tokens and a table of answers."""
    (tmp_path / "answers.jsonl").write_text('{"*": " special magic number 7"}\n', "utf-8")
    card = tmp_path / "scripted.toml"
    lines = ['backend = "scripted"', "context_window = 8192", "[weights]", 'path = "answers.jsonl"', "[chat]"]
    card.write_text("\n".join([*lines, f"template = '{TEMPLATE}'"]), "utf-8")
    return card


def copy_tokenizer(folder: Path, *, bos: bool = True) -> Path:
    """Copy the demo model without its weights."""
    copy = folder / "tokenizer"
    copy.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(HF / name, copy / name)
    if not bos:
        content = json.loads((HF / "tokenizer.json").read_text("utf-8"))
        (copy / "tokenizer.json").write_text(json.dumps({**content, "post_processor": None}), "utf-8")
    return copy


def spec(bundle: Path, model: Path, *tasks: str, **options: object) -> RunSpec:
    names = tuple(f"ruler/{task}" for task in tasks)
    return RunSpec(bundle=str(bundle), model=str(model), tasks=names, **options)  # type: ignore[arg-type]


def sent(run: RunSpec) -> Iterator[SentPrompt]:
    for prompt in prompts(run):
        assert prompt.prepared_prompt, prompt.error
        yield prompt


def test_a_bundle_lists_the_tasks_with_all_parts(lbx: Lbx, bundle: Path) -> None:
    listed = lbx.ok("tasks", "--bundle", bundle).stdout
    assert "niah_single_2" not in listed and "qa_2" not in listed and "cwe" in listed
    assert re.search(r"ruler/vt_\* +en +\d+ +4096 8192 16384 32768 65536 131072", listed), "in one row"
    names = [row["task"] for row in json.loads(lbx.ok("tasks", "--bundle", bundle, "--json").stdout)]
    assert "ruler/vt_4096" in names and "ruler/qa_1_131072" in names
    assert re.search(r"ruler +\d+ +\d+ +questions CC-BY-SA-4\.0", listed)


def test_prompts_are_the_sample_and_the_answer_prefix(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    names = [f"{task}_1500" for task in TASKS]
    samples = [row.sample for row in resolve(spec(bundle, HF, *names)).sample_rows()]
    output = tmp_path / "prompts.jsonl"
    lbx.ok("prompts", "--bundle", bundle, "--model", HF, "--tasks", ",".join(f"ruler/{n}" for n in names), "-o", output)
    rows = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert [row["text"] for row in rows] == [s.context + s.meta["answer_prefix"] for s in samples]
    assert len(rows) == SAMPLES * len(TASKS)
    budgets = {row["task"]: row["max_new_tokens"] for row in rows}
    assert budgets == {"niah_single_1_1500": 128, "vt_1500": 30, "qa_1_1500": 32}
    for row, sample in zip(rows, samples, strict=True):
        assert row["prompt_tokens"] - row["bos_tokens"] + row["max_new_tokens"] == sample.length <= 1500


@pytest.mark.parametrize("workers", profiles.chosen([0, 2], [2]))
def test_both_backends_answer_alike(
    lbx: Lbx, bundle: Path, demo_gguf: Path, tmp_path: Path, kept: Path, workers: int
) -> None:
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    results = tmp_path / "r.duckdb"
    card = tmp_path / "gguf.toml"
    options = '[options]\ncache_type_k = "f32"\ncache_type_v = "f32"\n[chat]\nenabled = false\n'
    card.write_text(f'backend = "llamacpp"\n[weights]\npath = "{demo_gguf}"\n{options}', "utf-8")
    tasks = ",".join(f"ruler/{task}_1000" for task in TASKS)
    for model in (HF, card):
        command = ("run", "--bundle", bundle, "--model", model, "--tasks", tasks, "--no-plan", "-o", results)
        lbx.ok(*command, "--limit", 1, "--workers", workers)
        done = lbx.ok(*command, "--limit", 2, "--workers", workers)
        assert "6 of 9 samples have an answer" in done.stdout
    joined = "generations JOIN runs USING (run_id) JOIN samples USING (benchmark, task, sample_id)"
    query = f"SELECT backend, task, output, question FROM {joined} ORDER BY backend, task, sample_id"
    rows = lbx.rows(results, query)
    of_hf, of_llama = (
        [(row["task"], row["question"], row["output"]) for row in rows if row["backend"] == name]
        for name in ("hf", "llamacpp")
    )
    assert len(of_hf) == 2 * len(TASKS) and of_hf == of_llama
    assert len([*kept.glob("*.json")]) == 2 * len(TASKS)
    for report in ("leaderboard", "paper", "board_ruler", "effective_context", "task_scores", "comparison", "guards"):
        assert lbx.ok("report", results, report).stdout
    page = tmp_path / "report.html"
    lbx.ok("report", results, "--format", "html", "-o", page)
    assert "vt_1000" in page.read_text("utf-8")


def test_predictions_come_back(lbx: Lbx, bundle: Path, scripted: Path, tmp_path: Path) -> None:
    results, out, other = tmp_path / "r.duckdb", tmp_path / "official", tmp_path / "other.duckdb"
    tasks = "ruler/niah_single_1_2000,ruler/qa_1_2000"
    lbx.ok("run", "--bundle", bundle, "--model", scripted, "--tasks", tasks, "--no-plan", "-o", results)
    (run,) = lbx.rows(results, "SELECT run_id FROM runs")
    lbx.ok("export", "ruler", results, "--run", run["run_id"], "-o", out)
    lbx.ok("export", "ruler", results, "--run", run["run_id"], "--results", "-o", out)
    written = sorted(path.name for path in out.rglob("*") if path.is_file())
    assert written == ["niah_single_1.jsonl", "qa_1.jsonl", "submission.csv", "summary.csv"]
    (folder,) = out.rglob("pred")
    lbx.ok("import", "ruler", folder, "--model-name", "M", "-o", other)
    scores = "SELECT task, metric, round(score, 6) AS score FROM task_scores ORDER BY ALL"
    assert lbx.rows(results, scores) == lbx.rows(other, scores)


def test_templates_wrap_the_same_length(bundle: Path, scripted: Path) -> None:
    task = "niah_single_1_2000"
    ids = set()
    for template, start in {"": "A special", "card": "<s>A special", "meta-llama3": "<|"}.items():
        for prompt in sent(spec(bundle, scripted, task, template=template)):
            assert prompt.prepared_prompt
            request, text = prompt.prepared_prompt.request, prompt.prepared_prompt.text
            assert text.startswith(start), text[:80]
            assert " is" in text[-80:] and len(request.token_ids) + request.max_new_tokens <= 2000
            ids.add(prompt.key.sample_id)
    assert len(ids) >= 2 * SAMPLES  # the card's few tokens may leave the samples the same


def test_reasoning_needs_the_cards_template_and_gets_no_prefix(lbx: Lbx, bundle: Path, scripted: Path) -> None:
    task = "niah_single_1_2000"
    of_task = ("prompts", "--bundle", bundle, "--model", scripted, "--tasks", f"ruler/{task}", "--thinking")
    fails(lbx(*of_task), 2, "Reasoning needs the model's chat template", "--prompt-template card")
    fails(lbx(*of_task, "--prompt-template", "meta-llama3"), 2, "Reasoning needs the model's chat template")
    fails(lbx(*of_task[:-1], "--prompt-template", "llama9"), 2, "no template 'llama9'", "meta-llama3")
    for prompt in sent(spec(bundle, scripted, task, template="card", thinking=True, thinking_tokens=500)):
        assert prompt.prepared_prompt
        assert prompt.prepared_prompt.text.endswith("</s>answer:")
        assert prompt.prepared_prompt.request.thinking_tokens == 500


def test_lengths_beyond_the_window_are_refused_or_left_out(lbx: Lbx, bundle: Path, scripted: Path) -> None:
    def names(*tasks: str, **options: object) -> set[int]:
        chosen = resolve(spec(bundle, scripted, *tasks, **options)).tasks
        return {int(task.name.rpartition("_")[2]) for task in chosen}

    thinking = {"template": "card", "thinking": True}
    assert names("qa_1_*") == {4096, 8192}
    assert names("qa_1_*", **thinking) == {4096}
    assert names("qa_1_6000", **thinking) == {6000}
    plan_of = ("plan", "--bundle", bundle, "--model", scripted, "--tasks")
    fails(lbx(*plan_of, "ruler/vt_8193"), 2, "ruler/vt_8193 does not fit", "8,192 tokens", "at most 8,192", "never cut")
    fails(lbx(*plan_of, "ruler/*_16384"), 2, "These tasks of RULER do not fit", "ruler/vt_8192")
    reasoning = ("--prompt-template", "card", "--thinking")
    fails(lbx(*plan_of, "ruler/vt_8192", *reasoning), 2, "2,048 of them for reasoning", "at most 6,144")
    fails(lbx(*plan_of, "ruler/vt_4096", *reasoning, "--thinking-tokens", 8192), 2, "smaller --thinking-tokens")
    scripted.write_text(scripted.read_text("utf-8").replace("8192", "2048"), "utf-8")
    fails(lbx(*plan_of, "ruler"), 2, "longer than the model's context window")
    assert "ruler/qa_1_2048" in lbx.ok(*plan_of, "all,ruler/qa_1_2048", "--no-measure-speed").stdout


@pytest.mark.parametrize("name", ["niah_single_1_200", "qa_1_100", "fwe_60"])
def test_a_length_that_is_too_short_is_explained(lbx: Lbx, bundle: Path, scripted: Path, name: str) -> None:
    done = lbx("plan", "--bundle", bundle, "--model", scripted, "--tasks", f"ruler/{name}")
    fails(done, 2, f"ruler/{name} cannot be made", "Choose a larger length")


def test_more_samples_than_questions_are_refused(lbx: Lbx, bundle: Path, scripted: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    settings = copy / "data" / "files" / "ruler" / "ruler.toml"
    settings.chmod(0o644)
    settings.write_text("samples = 61\n", "utf-8")
    command = ("prompts", "--bundle", copy, "--model", scripted, "--tasks", "ruler/qa_1_2000")
    fails(lbx(*command, "-o", tmp_path / "p.jsonl"), 2, "has 60 questions", "--limit 60")
    lbx.ok(*command, "--limit", 60, "-o", tmp_path / "p.jsonl")


@pytest.mark.parametrize("template", ["", "card"])
@pytest.mark.parametrize("model", ["hf", "without_bos", "gguf", "scripted"])
def test_a_sample_that_fills_the_window_is_answered(
    bundle: Path, demo_gguf: Path, scripted: Path, tmp_path: Path, model: str, template: str
) -> None:
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    backend, weights = {
        "hf": ("hf", HF),
        "without_bos": ("hf", copy_tokenizer(tmp_path, bos=False)),
        "gguf": ("llamacpp", demo_gguf),
        "scripted": ("scripted", scripted.with_name("answers.jsonl")),
    }[model]
    card = tmp_path / "card.toml"

    def of_window(window: int) -> RunSpec:
        lines = [f'backend = "{backend}"', f"context_window = {window}", "[weights]", f'path = "{weights}"', "[chat]"]
        card.write_text("\n".join([*lines, f"template = '{TEMPLATE}'"]), "utf-8")
        return spec(bundle, card, f"niah_single_1_{window}", template=template)

    def fill(window: int) -> int:
        (first, *_) = resolve(of_window(window)).sample_rows()
        return first.sample.length

    # The size of samples grows in steps, so that the window of a full one is found by trying.
    window = next(w for w in range(1400, 3000) if fill(w) >= w - (30 if template else 0))
    full = [prompt.prepared_prompt.request for prompt in sent(of_window(window)) if prompt.prepared_prompt]
    used = max(len(request.token_ids) + request.max_new_tokens for request in full)
    assert window - (30 if template else 0) <= used <= window
    assert {request.max_new_tokens for request in full} <= {128, 128 - (model != "without_bos" and not template)}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of characters of each text of which a sample set counts the tokens."""
    texts: list[int] = []
    counter = generator.CountLog.counter

    def counting(log: generator.CountLog, count: generator.CountTokens) -> generator.CountTokens:
        def counted_tokens(text: str) -> int:
            texts.append(len(text))
            return count(text)

        return counter(log, counted_tokens)

    monkeypatch.setattr(generator.CountLog, "counter", counting)
    return texts


def sample_ids(run: RunSpec) -> list[str]:
    generator._LOGS.clear()  # as in another process
    return [row.sample.sample_id + row.sample.context for row in resolve(run).sample_rows()]


def test_samples_are_counted_once(bundle: Path, scripted: Path, counted: list[int]) -> None:
    first = spec(bundle, scripted, "niah_single_1_2000")
    samples = sample_ids(first)
    assert counted
    counted.clear()
    other = scripted.with_name("other.toml")
    other.write_text(scripted.read_text("utf-8") + "\n", "utf-8")
    assert sample_ids(spec(bundle, other, "niah_single_1_2000")) == samples
    assert not counted
    assert sample_ids(spec(bundle, scripted, "niah_single_1_2001"))
    assert counted


def test_samples_need_no_folder_for_their_counts(lbx: Lbx, bundle: Path, scripted: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")  # no folder can be made below a file, also not by root
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "file")}
    tasks = ("--tasks", "ruler/niah_single_1_2000,ruler/qa_1_2000")
    command = ("run", "--bundle", bundle, "--model", scripted, *tasks, "--no-plan", "-o", tmp_path / "r.duckdb")
    done = lbx.process(*command, environment=environment)
    fails(done, 0, "cannot be kept", "set XDG_CACHE_HOME")
    assert done.stderr.count("cannot be kept") == 1


def test_interrupted_samples_continue(bundle: Path, scripted: Path, tmp_path: Path, kept: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    settings = copy / "data" / "files" / "ruler" / "ruler.toml"
    settings.chmod(0o644)
    settings.write_text("samples = 100000\n", "utf-8")
    command = [Path(sys.executable).with_name("lbx"), "prompts", "--bundle", copy, "--model", scripted]
    options = ["--tasks", "ruler/niah_multikey_2_8192", "-o", tmp_path / "prompts.jsonl"]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        progress = next(line for line in process.stderr if "of 100,000 samples made" in line)
        assert progress.startswith("ruler/niah_multikey_2_8192: ")
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait() == 130 and "Interrupted" in said and "Traceback" not in said, said
    (log,) = kept.glob("*.json")
    made = int(progress.split()[1].replace(",", ""))
    assert len(json.loads(log.read_bytes())["counts"]) >= made > 0
    settings.write_text(f"samples = {made}\n", "utf-8")
    before = log.read_bytes()
    assert len(sample_ids(spec(copy, scripted, "niah_multikey_2_8192"))) == made
    assert log.read_bytes() == before


def test_a_bundle_brings_the_counts(
    lbx: Lbx, files: Path, bundle: Path, tmp_path: Path, kept: Path, counted: list[int]
) -> None:
    """On the connected side, a tokenizer without weights suffices to make the counts."""
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    tokenizer = copy_tokenizer(tmp_path)
    tasks = ",".join(f"ruler/{task}_1500" for task in TASKS)
    lbx.ok("prompts", "--bundle", bundle, "--model", tokenizer, "--tasks", tasks, "-o", "/dev/null")
    with_counts = make_bundle(files, tmp_path, counts=kept)
    shutil.rmtree(kept)
    counted.clear()
    for model in (tokenizer, HF):
        samples = sample_ids(spec(with_counts, model, *(f"{task}_1500" for task in TASKS)))
        assert len(samples) == SAMPLES * len(TASKS) and not counted, model
    assert not kept.exists()


@pytest.fixture(scope="session")
def real_model(smollm2: Callable[[str], Path]) -> Path:
    return smollm2("gguf")  # before the cache folder changes


@pytest.mark.long("a real model at 4k, a minute for each task")
def test_a_real_model_answers_at_4k(lbx: Lbx, bundle: Path, real_model: Path, tmp_path: Path) -> None:
    results = tmp_path / "r.duckdb"
    asked = profiles.every(len(TASKS), TASKS)
    tasks = ",".join(f"ruler/{task}_4096" for task in asked)
    command = ("run", "--bundle", bundle, "--model", real_model, "--tasks", tasks, "--limit", 1, "--no-plan")
    assert f"{len(asked)} answered, 0 failed" in lbx.ok(*command, "-o", results).stdout
    rows = lbx.rows(results, "SELECT prompt_tokens FROM generations")
    assert all(3000 < row["prompt_tokens"] < 4096 for row in rows)
