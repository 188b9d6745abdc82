"""LongBench v1 on the real data and prompts beside the checkout, and on files made up here."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.base.number import Number
from lbx.base.records import Chunk, Sample, ScoredSample, Truncation
from lbx.benchmarks.base.data_files import DataRow
from lbx.benchmarks.longbench.benchmark import METRICS, NEW_TOKENS, PROMPTS, TASKS, LongBench, make_sample, rules_of
from lbx.benchmarks.longbench.tasks import BUCKETS
from lbx.options.asking import Mode

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
ROW = {
    "input": "q",
    "context": "c",
    "answers": ["a"],
    "length": 5000,
    "language": "en",
    "all_classes": None,
    "_id": "x",
}


def zipped(**tasks: list[dict[str, object]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for task, rows in tasks.items():
            archive.writestr(f"data/{task.replace('__', '-')}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return buffer.getvalue()


def made(make_bundle: MakeBundle, template: str = "{context}|{input}", **tasks: list[dict[str, object]]) -> Bundle:
    names = [*TASKS]
    names.remove("nq")
    return make_bundle(
        {
            "hub:THUDM/LongBench/data.zip": zipped(**tasks),
            f"files/{PROMPTS}": json.dumps(dict.fromkeys(names, template)).encode(),
            f"files/{NEW_TOKENS}": json.dumps(dict.fromkeys(names, 32)).encode(),
        }
    )


def test_tasks_are_what_the_zip_holds(bundle: Bundle) -> None:
    found = {task.name: task for task in LongBench().tasks(bundle)}
    assert list(found) == ["multifieldqa_zh", "multi_news", "passage_retrieval_zh"]
    assert all(task.samples == 200 for task in found.values())
    assert found["multi_news"].metrics == ("rouge_l", "rouge_l_unlimited")
    assert (found["multi_news"].language, found["multifieldqa_zh"].language) == ("en", "zh")


@pytest.mark.parametrize("task", ["multifieldqa_zh", "multi_news", "passage_retrieval_zh"])
def test_real_samples(bundle: Bundle, task: str) -> None:
    """Ids, lengths and prompts, the prompts against the official way of making them."""
    path = bundle.snapshot("dataset", "THUDM/LongBench")
    assert path
    with zipfile.ZipFile(path / "data.zip") as archive:
        rows = [json.loads(line) for line in archive.read(f"data/{task}.jsonl").splitlines()]
    config = bundle.file(PROMPTS)
    assert config
    template = json.loads(config.read_text("utf-8"))[task]
    samples = list(LongBench().samples(bundle, task))
    assert [sample.sample_id for sample in samples] == [row["_id"] for row in rows]
    assert len({sample.sample_id for sample in samples}) == 200
    assert [sample.length for sample in samples] == [row["length"] for row in rows]
    for sample, row in zip(samples, rows, strict=True):
        prompt = LongBench().prompt(bundle, sample)
        assert prompt.text == template.format(**row)
        assert prompt.document == row["context"]
        assert row["context"] not in json.dumps(dict(sample.meta), ensure_ascii=False)
        assert (prompt.truncation, prompt.chat, prompt.stop) == (Truncation.MIDDLE, True, ())
        assert prompt.limits[4096] == 3500
    assert samples[0].length_unit == ("words" if task == "multi_news" else "characters")


@pytest.mark.parametrize("task", TASKS)
def test_every_official_template(bundle: Bundle, task: str) -> None:
    """With a document that is full of braces; nq is asked in triviaqa's words."""
    config, limits = bundle.file(PROMPTS), bundle.file(NEW_TOKENS)
    assert config
    assert limits
    source = "triviaqa" if task == "nq" else task
    template = json.loads(config.read_text("utf-8"))[source]
    (sample,) = _samples_of(task, {"context": "{context} {} {input} {", "input": "{input}?"})
    prompt = LongBench().prompt(bundle, sample)
    assert prompt.text == template.format(context=sample.context, input=sample.question)
    assert prompt.document == sample.context
    assert prompt.max_new_tokens == json.loads(limits.read_text("utf-8"))[source]
    assert prompt.chat == (task not in ("trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p", "nq"))
    assert (prompt.stop_tokens, prompt.min_new_tokens) == ((("\n",), 1) if task == "samsum" else ((), 0))
    assert prompt.source.startswith("THUDM/LongBench/")


def _samples_of(task: str, row: dict[str, object]) -> tuple[Sample]:
    return (make_sample(task, DataRow("made up", {**ROW, **row}), 0, ()),)


@pytest.mark.parametrize("task", ["multifieldqa_zh", "multi_news", "passage_retrieval_zh"])
def test_the_reference_itself_scores_one(bundle: Bundle, task: str) -> None:
    rows = list(LongBench().samples(bundle, task))[:40]
    for sample in rows:
        scores = {score.metric: score.score for score in LongBench().score(sample, sample.references[0])}
        assert next(reversed(scores.values())) == pytest.approx(1.0, abs=1e-7), sample.sample_id


def test_e_tasks_and_nq(make_bundle: MakeBundle) -> None:
    bundle = made(
        make_bundle, qasper=[ROW], qasper_e=[ROW, {**ROW, "length": 8000}], nq=[ROW], other=[ROW], vcsum_e=[ROW]
    )
    assert [(task.name, task.samples) for task in LongBench().tasks(bundle)] == [
        ("qasper", 1),
        ("nq", 1),
        ("qasper_e", 2),
    ]
    first, second = LongBench().samples(bundle, "qasper_e")
    assert (first.sample_id, second.sample_id) == ("x", "x-2")  # a repeated id stays unique
    assert LongBench().prompt(bundle, first).text == "c|q"
    (nq,) = LongBench().samples(bundle, "nq")
    assert LongBench().prompt(bundle, nq).source == f"{PROMPTS} (triviaqa)"
    assert [score.score for score in LongBench().score(nq, "a\nb")] == [0.0]  # the whole answer counts: "b" is left


def test_the_last_rows_classes_serve_all(make_bundle: MakeBundle) -> None:
    rows = [{**ROW, "all_classes": ["old"]}, {**ROW, "_id": "y", "all_classes": ["a", "b"]}]
    samples = list(LongBench().samples(made(make_bundle, trec=rows), "trec"))
    assert [sample.meta["all_classes"] for sample in samples] == [["a", "b"], ["a", "b"]]
    (score,) = LongBench().score(samples[0], "\na b\nold")
    assert (score.metric, score.score, score.extracted) == ("classification", 0.5, "a b")


@pytest.mark.parametrize("template", ["{context}{answer}", "{context", "{context!r}"])
def test_a_template_that_cannot_be_filled(make_bundle: MakeBundle, template: str) -> None:
    bundle = made(make_bundle, template, qasper=[ROW])
    (sample,) = LongBench().samples(bundle, "qasper")
    with pytest.raises(BundleError, match=r"Cannot fill in the prompt template in .*dataset2prompt\.json"):
        LongBench().prompt(bundle, sample)


QUESTIONS = (
    "narrativeqa",
    "qasper",
    "multifieldqa_en",
    "multifieldqa_zh",
    "hotpotqa",
    "2wikimqa",
    "musique",
    "dureader",
)
"""What the authors' retrieval/pred.py asks."""


@pytest.mark.parametrize("task", [*TASKS, "qasper_e", "trec_e"])
def test_retrieved_chunks_stand_in_the_documents_place(bundle: Bundle, task: str) -> None:
    """The best first and nothing between them; other tasks than questions on a document are refused."""
    chunks = (Chunk(2, 1, 0.5, "second. "), Chunk(5, 2, 0.1, "{third}"), Chunk(9, 0, 0.9, "first "))
    (sample,) = _samples_of(task, {"input": "who?"})
    if task.removesuffix("_e") not in QUESTIONS:
        with pytest.raises(UsageError, match=r"cannot run with retrieved chunks.*longbench/dureader"):
            LongBench().protocol.check_mode(task, Mode(rag=3))
        with pytest.raises(UsageError):
            LongBench().prompt(bundle, sample, Mode(rag=3), chunks)
        return
    LongBench().protocol.check_mode(task, Mode(rag=3))
    config = bundle.file(PROMPTS)
    assert config
    template = json.loads(config.read_text("utf-8"))[task.removesuffix("_e")]
    prompt = LongBench().prompt(bundle, sample, Mode(rag=3), chunks)
    assert prompt.document == "first second. {third}"
    assert prompt.text == template.format(context=prompt.document, input="who?")
    plain = LongBench().prompt(bundle, sample)
    assert (prompt.max_new_tokens, prompt.truncation, prompt.chat) == (
        plain.max_new_tokens,
        plain.truncation,
        plain.chat,
    )
    assert LongBench().query(sample, bundle) == "who?"


def test_what_stands_in_the_document(bundle: Bundle) -> None:
    """Real documents have the heading of the paragraph to be found exactly once."""
    for sample in LongBench().samples(bundle, "passage_retrieval_zh"):
        (heading,) = LongBench().evidence(sample)
        assert sample.context.count(heading) == 1
    found = [
        any(text in sample.context for text in LongBench().evidence(sample))
        for sample in LongBench().samples(bundle, "multifieldqa_zh")
    ]
    assert any(found)

    def evidence(task: str, *answers: str) -> list[str]:
        return list(LongBench().evidence(_samples_of(task, {"answers": list(answers)})[0]))

    assert evidence("passage_retrieval_en", "Paragraph 2") == ["Paragraph 2:"]
    assert evidence("qasper_e", "BERT", "Yes", "unanswerable", "no.") == ["BERT"]
    for task in ("multi_news", "trec", "triviaqa", "samsum", "passage_count", "lcc"):
        assert evidence(task, "12") == []


def test_classes_that_are_missing() -> None:
    (sample,) = _samples_of("trec", {"answers": ["Date"]})
    for meta in (
        {},
        {"all_classes": None},
        {"all_classes": ["Date", 2]},
        {"all_classes": 5},
        {"all_classes": {"Date": 1}},
    ):
        (score,) = LongBench().score(replace(sample, meta=meta), "Date")
        assert score.score == 0
        assert score.error
        assert "all_classes is no list of names" in score.error
    (score,) = LongBench().score(replace(sample, meta={"all_classes": ["Date"]}), "Date")
    assert (score.score, score.error) == (1, None)


TABLE = {
    "GPT-3.5-Turbo-16k": (44.0, 44.5, 44.7),
    "Llama2-7B-chat-4k": (31.0, 14.3, None),
    "LongChat-v1.5-7B-32k": (34.3, 23.9, None),
    "XGen-7B-8k": (28.3, 15.1, None),
    "InternLM-7B-8k": (24.2, 18.3, None),
    "ChatGLM2-6B-32k": (40.9, 41.7, None),
    "Vicuna-v1.5-7B-16k": (31.9, 26.4, None),
    "ChatGLM3-6B-32k": (48.5, 52.8, None),
}
"""The averages that the authors published: English, Chinese; and of one model over everything."""


def scored(task: str, **scores: float) -> ScoredSample:
    return ScoredSample(Sample("longbench", task, "x", "", "", (), length=5000), scores)


def grouped(tasks: Mapping[str, float]) -> dict[tuple[str, str, str], Number]:
    """The groups of tasks' percentages."""
    rows = {task: [scored(task, **{METRICS[rules_of(task).metric][0]: score / 100})] for task, score in tasks.items()}
    return {(group.grouping, group.name, group.metric): group for group in LongBench().groups(rows)}


def test_the_published_averages(shared: Callable[[str], Path]) -> None:
    """Of the published tasks' figures, over categories and not over tasks."""
    with (shared("reference") / "longbench.csv").open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if "2025-01" in row["source"]]
    for model, (english, chinese, everything) in TABLE.items():
        found = grouped({row["task"]: float(row["score_percent"]) for row in rows if row["model"] == model})
        assert found["language", "en", "average"].official == english
        assert found["language", "zh", "average"].official == chinese
        if everything:
            assert found["overall", "all", "average"].official == everything
        assert all(group.official is not None for group in found.values())


def all_but(*without: str) -> dict[str, float]:
    """The present release's tasks but some, each with 10 percent."""
    return dict.fromkeys((task for task in TASKS if task != "nq" and task not in without), 10.0)


def test_a_category_that_lacks_a_task_has_no_official_figure() -> None:
    found = grouped({**all_but("vcsum"), "qasper": 50.0})
    assert found["category", "single-document QA", "average"].official == 20.0
    assert found["category_en", "single-document QA", "average"].official == 23.3
    assert found["category", "summarization", "average"].official is None
    assert found["category", "summarization", "average"].score == pytest.approx(0.1)
    assert found["category", "summarization", "average"].n == 3
    assert found["category_en", "summarization", "average"].official == 10.0
    assert ("category_zh", "summarization", "average") not in found
    assert found["language", "en", "average"].official == 12.2
    assert found["language", "zh", "average"].official is None
    assert found["overall", "all", "average"].official is None
    assert [key for key in grouped({"qasper": 1.0}) if "zh" in key[0] + key[1]] == []
    assert LongBench().groups({}) == []


def test_the_early_release_is_whole_without_its_later_tasks() -> None:
    early = {**all_but("samsum", "multi_news"), "nq": 10.0}
    assert all(group.official == 10.0 for group in grouped(early).values())
    assert grouped(all_but("samsum"))["overall", "all", "average"].official is None


def test_e_is_added_up_apart() -> None:
    names = [task for task, kind in TASKS.items() if kind.in_e]
    rows = {
        f"{task}_e": [
            replace(one, sample=replace(one.sample, length=length))
            for length, value in ((100, 0.2), (4000, 0.4), (9000, 0.6))
            for one in [scored(f"{task}_e", **{METRICS[rules_of(task).metric][0]: value})]
        ]
        for task in names
    }
    found = {(g.grouping, g.name, g.metric): (g.n, g.official) for g in LongBench().groups(rows)}
    assert {key[0] for key in found} == {"category_e", "overall_e"}
    assert [found["overall_e", "all", bucket] for bucket in BUCKETS] == [(13, 20.0), (13, 40.0), (13, 60.0)]
    assert found["category_e", "few-shot learning", "4-8k"] == (3, 40.0)
    del rows["trec_e"][2]  # a task without long samples
    found = {(g.grouping, g.name, g.metric): (g.n, g.official) for g in LongBench().groups(rows)}
    assert found["overall_e", "all", "8k+"] == (12, None)
    assert found["overall_e", "all", "4-8k"] == (13, 40.0)


def test_groups_of_the_plain_tasks_do_not_change_with_e() -> None:
    plain = {task: [scored(task, **{METRICS[rules_of(task).metric][0]: 0.5})] for task in all_but()}
    both = {**plain, "qasper_e": [scored("qasper_e", f1=0.1)]}
    groups = LongBench().groups(both)
    assert [g for g in groups if not g.grouping.endswith("_e")] == LongBench().groups(plain)
    assert [g.name for g in groups if g.grouping == "category"] == [
        "single-document QA",
        "multi-document QA",
        "summarization",
        "few-shot learning",
        "synthetic",
        "code completion",
    ]
    assert groups[-3].grouping == "overall"
