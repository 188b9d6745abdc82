"""Runs of a family with samples that depend on the model's tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lbx.backends import resolve_model
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.benchmarks.registry import BENCHMARKS, all_tasks
from lbx.opinions.rating_sets import documents, make_rating_set
from lbx.options.run_spec import RunSpec
from lbx.options.task_selection import select_tasks
from lbx.results import Store
from lbx.running.execution import run
from lbx.running.models import load_model_tokenizer
from lbx.running.plan import plan_each
from lbx.running.preparing import resolve
from lbx.running.sent_prompts import prompts
from lbx.running.sharding import plan_shards
from lbx.web.browsing import BrowsingPages
from tests.command_line import Lbx, fails
from tests.model_family import NAME, SAMPLES, Words

HF = Path(__file__).resolve().parents[2] / "models" / "demo" / "hf"
TEMPLATE = "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}answer:{% endif %}"


@pytest.fixture(autouse=True)
def _family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BENCHMARKS._families, NAME, Words())  # type: ignore[attr-defined]


@pytest.fixture
def lbx() -> Lbx:
    return Lbx()


@pytest.fixture
def bundle(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    def make(folder: Path) -> None:
        (folder / "readme").write_text("The bundle needs a file.\n", "utf-8")
        recipe = 'name = "small"\n[[source]]\nkind = "path"\npath = "readme"\nto = "readme"\n'
        (folder / "small.toml").write_text(recipe, "utf-8")
        Lbx().unpacked(folder / "small.toml", folder)

    return once("model-samples", make) / "bundle"


@pytest.fixture
def scripted(tmp_path: Path) -> Path:
    (tmp_path / "answers.jsonl").write_text('{"*": " 7 boats"}\n', "utf-8")
    card = tmp_path / "scripted.toml"
    lines = ['backend = "scripted"', "context_window = 4096", "[weights]", 'path = "answers.jsonl"', "[chat]"]
    card.write_text("\n".join([*lines, f"template = '{TEMPLATE}'"]), "utf-8")
    return card


def spec(bundle: Path, model: Path, *tasks: str, **options: object) -> RunSpec:
    return RunSpec(bundle=str(bundle), model=str(model), tasks=tasks or (NAME,), **options)  # type: ignore[arg-type]


def answered(results: Path) -> dict[str, set[str]]:
    with Store(results, read_only=True) as store:
        rows = store.query("SELECT model, task || '/' || sample_id FROM generations JOIN runs USING (run_id)").rows
    return {model: {name for other, name in rows if other == model} for model, _ in rows}


def test_a_whole_family_has_the_tasks_that_fit_the_window(bundle: Path, scripted: Path) -> None:
    assert [task.name for task in resolve(spec(bundle, scripted)).tasks] == ["count_64", "count_128"]
    named = resolve(spec(bundle, scripted, f"{NAME}/count_100000", f"{NAME}/count_99"))
    assert [task.name for task in named.tasks] == ["count_100000", "count_99"]
    text = scripted.read_text("utf-8").replace("4096", "32")
    scripted.write_text(text, "utf-8")
    with pytest.raises(UsageError, match="longer than the model's context window"):
        resolve(spec(bundle, scripted))


@pytest.mark.parametrize("name", [f"{NAME}/count_8", f"{NAME}/count_x", f"{NAME}/*_99", f"{NAME}/counts"])
def test_an_unknown_length_is_explained(bundle: Path, scripted: Path, name: str) -> None:
    with pytest.raises(UsageError, match="There is no task"):
        resolve(spec(bundle, scripted, name))


def test_a_run_of_another_family_needs_no_tokenizer(bundle: Path) -> None:
    assert resolve(spec(bundle, Path("missing.toml"), "needle")).extra_benchmarks == []


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_continues(lbx: Lbx, bundle: Path, scripted: Path, tmp_path: Path, workers: int) -> None:
    results = tmp_path / "r.duckdb"
    command = ("run", "--bundle", bundle, "--model", scripted, "--workers", workers, "--no-plan", "-o", results)
    lbx.ok(*command, "--tasks", f"{NAME}/count_64", "--limit", 2)
    (begun,) = answered(results).values()
    lbx.ok(*command, "--tasks", f"{NAME}/count_64,{NAME}/count_99")
    (names,) = answered(results).values()
    assert len(begun) == 2 and begun < names and len(names) == 2 * SAMPLES
    shown = lbx.ok("show", results, f"{NAME}/{max(names)}", "--prompt").stdout
    assert " There are" in shown and "identical to the prompt of this answer" in shown


def test_each_model_of_a_file_has_its_own_samples(lbx: Lbx, bundle: Path, scripted: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    results = tmp_path / "r.duckdb"
    for model in (scripted, HF):
        options = ("--bundle", bundle, "--tasks", f"{NAME}/count_99", "-o", results, "--no-plan")
        lbx.ok("run", "--model", model, *options)
    names = answered(results)
    assert [len(samples) for samples in names.values()] == [SAMPLES] * 2
    assert not set.intersection(*names.values())
    assert "count_99" in lbx.ok("report", results, "--format", "json").stdout


def test_gguf_and_folder_make_samples_of_the_same_texts(bundle: Path, demo_gguf: Path) -> None:
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    texts = [
        [row.sample.context for row in resolve(spec(bundle, model, f"{NAME}/count_64")).sample_rows()]
        for model in (demo_gguf, HF)
    ]
    assert texts[0] == texts[1]


def test_a_plan_counts_each_models_samples(bundle: Path, scripted: Path) -> None:
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    forecasts = list(plan_each(spec(bundle, scripted, f"{NAME}/count_128"), [str(HF)], measure_speed=False))
    assert [forecast.total.samples for forecast in forecasts[:2]] == [SAMPLES] * 2
    assert all(115 <= forecast.total.longest <= 128 for forecast in forecasts), [o.total.longest for o in forecasts]


def test_samples_can_be_chosen_and_sharded(bundle: Path, scripted: Path, tmp_path: Path) -> None:
    (first, *_) = resolve(spec(bundle, scripted, f"{NAME}/count_64")).sample_rows()
    chosen = resolve(spec(bundle, scripted, f"{NAME}/count_64", ids=(first.sample.sample_id,)))
    assert [row.sample for row in chosen.sample_rows()] == [first.sample]
    whole = spec(bundle, scripted, f"{NAME}/count_64", name="x")
    shards = plan_shards(whole, SAMPLES)
    files = [tmp_path / f"{number}.duckdb" for number in range(SAMPLES)]
    for number, file in enumerate(files):
        run(whole, file, shard=(shards, number), plan=False)
    parts = [answered(file)["scripted"] for file in files]
    assert list(map(len, parts)) == [1] * SAMPLES and len(set.union(*parts)) == SAMPLES


def _texts(run: RunSpec) -> Iterator[str]:
    return (sent.prepared_prompt.text for sent in prompts(run) if sent.prepared_prompt)


def test_a_template_is_part_of_the_samples_and_the_run(bundle: Path, scripted: Path) -> None:
    task = f"{NAME}/count_64"
    plain, wrapped = (list(_texts(spec(bundle, scripted, task, template=name))) for name in ("", "card"))
    assert all(text.endswith("boats There are") and "<s>" not in text for text in plain)
    assert all(text.startswith("<s>") and text.endswith("</s>answer: There are") for text in wrapped)
    run = resolve(spec(bundle, scripted, task, template="card"))
    words = [len(row.sample.context) for row in run.sample_rows()]
    before = [len(row.sample.context) for row in resolve(spec(bundle, scripted, task)).sample_rows()]
    assert all(old - 12 <= new < old for new, old in zip(words, before, strict=True))
    assert run.settings[0].to_json()["template"] == "card"
    assert "template" not in spec(bundle, scripted, task).settings.to_json()


def test_a_template_is_refused_elsewhere(bundle: Path, scripted: Path) -> None:
    with pytest.raises(UsageError, match=r"--prompt-template does not apply to needle.*words"):
        resolve(spec(bundle, scripted, "needle", template="card"))
    with pytest.raises(UsageError, match="exclude each other"):
        spec(bundle, scripted, template="card", chat=False)
    scripted.write_text(scripted.read_text("utf-8").partition("[chat]")[0], "utf-8")
    with pytest.raises(UsageError, match="needs the model's chat template, but scripted has none"):
        next(_texts(spec(bundle, scripted, f"{NAME}/count_64", template="card")))


def test_parity_asks_the_first_models_samples(lbx: Lbx, bundle: Path, scripted: Path) -> None:
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    of_task = ("--bundle", bundle, "--tasks", f"{NAME}/count_64", "--limit", 1, "--json")
    shown = [json.loads(lbx.ok("parity", *models, *of_task).stdout) for models in ((scripted, HF), (HF, scripted))]
    names = [next(resolve(spec(bundle, model)).sample_rows()).sample.sample_id for model in (scripted, HF)]
    assert [parity["prompts"][0]["sample_id"] for parity in shown] == names


@pytest.mark.parametrize(
    ("switch", "more"), [("", 0), ("{% if enable_thinking is false %}<think></think>{% endif %}", 15)]
)
def test_the_tokens_around_a_message_count_the_longest_form(
    bundle: Path, scripted: Path, switch: str, more: int
) -> None:
    scripted.write_text(scripted.read_text("utf-8").replace("{% endif %}'", f"{switch}{{% endif %}}'"), "utf-8")
    opened = Bundle(bundle)
    tokenizer = load_model_tokenizer(resolve_model(str(scripted)), opened)
    assert tokenizer.wrapping_tokens == len("answer:") + 2 + more


def test_commands_without_a_model_work(lbx: Lbx, bundle: Path, scripted: Path, tmp_path: Path) -> None:
    opened = Bundle(bundle)
    assert NAME in {task.benchmark for task in all_tasks(opened)}
    assert f"{NAME}/count_64" in lbx.ok("tasks", "--bundle", bundle).stdout
    (task,) = select_tasks(opened, [f"{NAME}/count_77"])
    with pytest.raises(UsageError, match="this command does not have it"):
        list(BENCHMARKS[NAME].samples(opened, task.name))
    results = tmp_path / "r.duckdb"
    lbx.ok("run", "--bundle", bundle, "--model", scripted, "--tasks", f"{NAME}/count_64", "-o", results, "--no-plan")
    with Store(results, read_only=True) as store:
        questions, _ = make_rating_set(store, (), kind="score", questions="all", bundle=opened)
        (document, *_) = store.query("SELECT context_sha256 FROM samples").rows[0]
    assert len(questions.items) == SAMPLES and documents(opened, questions.items) == {}
    pages = BrowsingPages(results, bundle=opened)
    assert pages._document_text(document) is None
    (tmp_path / "count_64.jsonl").write_text('{"id": "0", "output": "8"}\n', "utf-8")
    imported = lbx.ok(
        "import", NAME, tmp_path / "count_64.jsonl", "--bundle", bundle, "--model-name", "M", "-o", results
    )
    assert "The bundle is not used" in imported.stderr


def test_a_server_without_a_tokenizer_is_refused(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    card = tmp_path / "server.toml"
    card.write_text('backend = "endpoint"\n[options]\nurl = "http://127.0.0.1:1/v1"\n', "utf-8")
    run = ("prompts", "--bundle", bundle, "--model", card, "--tasks", NAME, "--sample", 1)
    fails(lbx(*run), 2, "has no tokenizer", "[tokenizer]")
