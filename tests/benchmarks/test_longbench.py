"""LongBench v1 on the real data and prompts beside the checkout, and on files made up here."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.benchmarks import LongBench
from lbx.benchmarks.longbench import NEW_TOKENS, PROMPTS, TASKS
from lbx.errors import BundleError
from lbx.layout import Bundle
from lbx.records import Truncation

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
    assert (prompt.stop, prompt.min_new_tokens) == ((("\n",), 1) if task == "samsum" else ((), 0))
    assert prompt.source.startswith("THUDM/LongBench/")


def _samples_of(task: str, row: dict[str, object]):  # type: ignore[no-untyped-def]
    from lbx.benchmarks.files import Row
    from lbx.benchmarks.longbench import make_sample

    return (make_sample(task, Row("made up", {**ROW, **row}), 0, ()),)


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


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({**ROW, "context": None}, "line 2 is damaged: the field 'context' is NoneType, not str"),
        ({"input": "q"}, "line 2 is damaged: the field 'context' is missing"),
        ({**ROW, "answers": "a"}, "line 2 is damaged: the field 'answers' is str, not list"),
    ],
)
def test_damaged_rows(make_bundle: MakeBundle, row: dict[str, object], what: str) -> None:
    with pytest.raises(BundleError, match=what):
        list(LongBench().samples(made(make_bundle, qasper=[ROW, row]), "qasper"))


@pytest.mark.parametrize("template", ["{context}{answer}", "{context", "{context!r}"])
def test_a_template_that_cannot_be_filled(make_bundle: MakeBundle, template: str) -> None:
    bundle = made(make_bundle, template, qasper=[ROW])
    (sample,) = LongBench().samples(bundle, "qasper")
    with pytest.raises(BundleError, match=r"dataset2prompt\.json cannot be filled in"):
        LongBench().prompt(bundle, sample)


def test_a_bundle_without_prompts_or_data(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({"hub:THUDM/LongBench/data.zip": zipped(qasper=[ROW])})
    (sample,) = LongBench().samples(bundle, "qasper")
    with pytest.raises(BundleError, match=r"lbx bundle bundle/longbench\.toml"):
        LongBench().prompt(bundle, sample)
    empty = make_bundle({"hub:other/data/x.json": b"{}"})
    (empty.snapshot("dataset", "THUDM/LongBench") / "data.zip").unlink()  # type: ignore[operator]
    assert LongBench().tasks(empty) == []


@pytest.mark.parametrize("model", ["llama2-7b-chat-4k", "llama3-8b-instruct"])
def test_published_predictions_give_the_published_results(shared: Callable[[str], Path], model: str) -> None:
    """Predictions of all 21 tasks that others published, against the numbers that they published with them."""
    from dataclasses import replace

    from lbx.benchmarks.base import ScoredSample

    folder = shared(f"data/predictions/longbench/{model}")
    published = json.loads((folder / "result.json").read_text("utf-8"))
    assert len(published) == 21
    got = {}
    for task in published:
        rows = [json.loads(line) for line in (folder / f"{task}.jsonl").read_text("utf-8").splitlines()]
        scored = []
        for row in rows:
            (sample,) = _samples_of(task, {"answers": row["answers"]})
            sample = replace(sample, meta={"all_classes": rows[-1]["all_classes"]})
            scored.append(ScoredSample(sample, {s.metric: s.score for s in LongBench().score(sample, row["pred"])}))
        got[task] = LongBench().aggregate(task, scored)[0].official
    assert got == published
