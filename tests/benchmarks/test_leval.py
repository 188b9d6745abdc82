"""L-Eval on the real data and predictions beside the checkout, asked as a bundle without the scripts has it.

What the scripts change is in ``test_leval_prompts.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError
from lbx.base.records import Chunk, Sample, ScoredSample, Truncation
from lbx.benchmarks.leval.benchmark import LEval
from lbx.benchmarks.leval.prompts import RETRIEVAL_SCRIPT, SCRIPT, STUFF
from lbx.benchmarks.leval.tasks import KINDS
from lbx.benchmarks.registry import BENCHMARKS, judged_samples
from lbx.options.asking import Mode
from lbx.options.run_spec import SampleOptions
from lbx.options.sample_selection import select_samples

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
QUESTIONS = {
    "coursera": 172, "gsm100": 100, "quality": 202, "topic_retrieval_longchat": 150, "tpo": 269, "sci_fi": 64,
    "financial_qa": 52, "legal_contract_qa": 130, "multidoc_qa": 136, "natural_question": 104, "scientific_qa": 161,
    "gov_report_summ": 13, "meeting_summ": 156, "news_summ": 11, "paper_assistant": 61, "patent_summ": 13,
    "review_summ": 120, "tv_show_summ": 13,
}  # fmt: skip
"""Those of the published prediction files; one each of scientific_qa and paper_assistant is for the judge alone."""

OPEN = [task for task, kind in KINDS.items() if kind in ("f1", "rouge")]


def test_tasks(bundle: Bundle) -> None:
    assert {task.name: task.samples for task in LEval().tasks(bundle)} == QUESTIONS


@pytest.mark.parametrize("task", QUESTIONS)
def test_real_questions(bundle: Bundle, task: str) -> None:
    samples = list(LEval().samples(bundle, task))
    assert len(samples) == QUESTIONS[task]
    assert len({sample.sample_id for sample in samples}) == len(samples)
    assert samples[0].sample_id == "000-00"
    documents = [context for context, _ in groupby(sample.context for sample in samples)]
    assert len(documents) == len(set(documents))  # questions on one document follow each other
    for sample in samples:
        prompt = LEval().prompt(bundle, sample)
        assert prompt.document == sample.context
        assert sample.question in prompt.after
        assert prompt.text.count(sample.context) >= 1
        assert (prompt.max_new_tokens, prompt.truncation, prompt.source) == (512, Truncation.WORDS_END, SCRIPT)
        if task in OPEN:
            assert f" {len(sample.references[0].split())} words" in prompt.after


def test_the_choice_of_judged_questions_is_what_the_files_mark(bundle: Bundle) -> None:
    tasks = LEval().tasks(bundle)
    selection = select_samples(SampleOptions(questions="judged"), bundle, tasks, BENCHMARKS)
    selected = {
        sample.key for task in tasks for _, sample in selection.select(task, LEval().samples(bundle, task.name))
    }
    assert selected == {sample.key for sample, _ in judged_samples(bundle)}


@pytest.mark.parametrize("task", QUESTIONS)
def test_the_reference_itself_scores_one(bundle: Bundle, task: str) -> None:
    scored = []
    for sample in LEval().samples(bundle, task):
        reference = sample.references[0]
        output = f"The answer is {reference}." if task == "gsm100" else reference
        scores = LEval().score(sample, output)
        judged = sample.meta["evaluation"] in ("LLM", "human")
        assert bool(scores) != judged
        if scores:
            scored.append(ScoredSample(sample, {score.metric: score.score for score in scores}))
    first = LEval().aggregate(task, scored)[0]
    assert first.official == pytest.approx(100.0)
    assert first.score == pytest.approx(1.0)


def test_published_predictions_find_their_questions(shared: Callable[[str], Path], bundle: Bundle) -> None:
    """Each row of a published file is one sample, in the same order."""
    for path in sorted(shared("data/predictions/leval/ngram_eval/llama2-13b-chat-4k").iterdir()):
        task = path.name.removesuffix(".pred.jsonl")
        if task not in QUESTIONS:
            continue
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        samples = [sample for sample in LEval().samples(bundle, task) if sample.meta["evaluation"] != "LLM"]
        assert [(row["query"], row["gt"]) for row in rows] == [(s.question, s.references[0]) for s in samples], task


def test_a_part_of_sci_fi_s_answer_counts(bundle: Bundle) -> None:
    sample = next(iter(LEval().samples(bundle, "sci_fi")))
    wrong = {score.metric: score.score for score in LEval().score(sample, "False [fact: False]")}
    assert wrong == {"exact_match": 0.5, "loyalty": 0.0, "fact": 1.0}
    assert {score.score for score in LEval().score(sample, "False")} == {0.0}


def test_topics_are_told_apart_by_row(bundle: Bundle) -> None:
    samples = list(LEval().samples(bundle, "topic_retrieval_longchat"))
    assert [sample.meta["topic"] for sample in samples[:6]] == [0, 1, 2, 0, 1, 2]
    rows = [ScoredSample(sample, {"exact_match": float(sample.meta["topic"] == 0)}) for sample in samples]
    numbers = {score.metric: (score.n, score.official) for score in LEval().aggregate("topic_retrieval_longchat", rows)}
    assert numbers == {
        "exact_match": (150, 100 / 3),
        "exact_match/first": (50, 100.0),
        "exact_match/second": (50, 0.0),
        "exact_match/third": (50, 0.0),
    }


def test_a_question_marked_twice_is_asked_once(make_bundle: MakeBundle) -> None:
    rows = [
        {"input": "d", "instructions": ["a", "b"], "outputs": ["A", "B"], "evaluation": "f1"},
        {"input": "e", "instructions": ["c"], "outputs": ["C"], "evaluation": "f1"},
        {"input": "d", "instructions": ["b", "x"], "outputs": ["B", "X"], "evaluation": "LLM"},
        {"input": "d", "instructions": ["b"], "outputs": ["B"], "evaluation": "human"},
    ]
    text = "\n".join(json.dumps(row) for row in rows).encode()
    bundle = make_bundle({"hub:L4NLP/LEval/LEval/Generation/multidoc_qa.jsonl": text})
    samples = list(LEval().samples(bundle, "multidoc_qa"))
    assert [(s.sample_id, s.question) for s in samples] == [
        ("000-00", "a"),
        ("000-01", "b"),
        ("002-01", "x"),
        ("001-00", "c"),
    ]
    assert [s.meta["judged_by"] for s in samples] == [[], ["LLM", "human"], [], []]
    assert [len(LEval().score(s, "b")) for s in samples] == [1, 1, 0, 1]
    assert LEval().tasks(bundle)[0].samples == 4


def scored(task: str, **scores: float) -> ScoredSample:
    return ScoredSample(Sample("leval", task, "000-00", "", "", ("x",), meta={"topic": 0}), scores)


def test_the_papers_averages() -> None:
    """The paper's closed table of one model, and its leaderboard's F1 and ROUGE of another."""
    closed = {"coursera": 75.58, "gsm100": 96.0, "quality": 82.17, "tpo": 84.38, "codeU": 25.55}
    f1 = {
        "financial_qa": 45.36, "legal_contract_qa": 24.87, "multidoc_qa": 31.45,
        "narrative_qa": 18.20, "natural_question": 45.90, "scientific_qa": 28.25,
    }  # fmt: skip
    rouge = {
        "gov_report_summ": (45.90, 15.60, 23.64), "news_summ": (35.30, 8.12, 16.06),
        "paper_assistant": (39.55, 10.92, 18.61), "patent_summ": (45.98, 20.30, 29.28),
        "review_summ": (30.18, 7.14, 18.67), "tv_show_summ": (31.97, 5.36, 16.87),
        "meeting_summ": (30.20, 7.22, 19.31),
    }  # fmt: skip
    tasks = {task: [scored(task, exact_match=score / 100)] for task, score in closed.items()}
    tasks |= {"sci_fi": [scored("sci_fi", exact_match=0.7499, loyalty=0.7499, fact=0.7499)]}
    tasks |= {"topic_retrieval_longchat": [scored("topic_retrieval_longchat", exact_match=0.1)]}
    tasks |= {task: [scored(task, f1=score / 100)] for task, score in f1.items()}
    tasks |= {
        task: [scored(task, rouge1=one / 100, rouge2=two / 100, rougeL=long / 100)]
        for task, (one, two, long) in rouge.items()
    }
    found = {(group.grouping, group.metric): group for group in LEval().groups(tasks)}
    assert {key: group.official for key, group in found.items()} == {
        ("closed", "exact_match"): 73.11,
        ("open", "f1"): 32.34,
        ("open", "rouge1"): 37.01,
        ("open", "rouge2"): 10.67,
        ("open", "rougeL"): 20.35,
        ("overall", "average"): None,
    }
    assert (found["closed", "exact_match"].n, found["open", "f1"].n, found["overall", "average"].n) == (6, 6, 20)
    assert found["closed", "exact_match"].score == pytest.approx(0.731117, abs=1e-6)
    del tasks["sci_fi"], tasks["meeting_summ"]
    part = {(group.grouping, group.metric): group for group in LEval().groups(tasks)}
    assert part["closed", "exact_match"].official is None
    assert part["closed", "exact_match"].score == pytest.approx(sum(closed.values()) / 500)
    assert part["open", "rouge1"].official is None
    assert part["open", "f1"].official == 32.34
    assert LEval().groups({}) == []


SCRIPT_FILE = """
def main():
    for inst, out in pairs:
        if "gsm" in file_name:
            message = f" Sums."
        elif "topic" in file_name:
            message = " Briefly."
        else:
            message = {closed}
        if x:
            message = f" In {{len(out.split())}} words."
"""
STUFFED = 'prompt_template = """Read:\n\n{context}\n\nAsked: {question}\nSo:"""\nOTHER = f(prompt_template)\n'
CHUNKS = [Chunk(2, 1, 1.0, "second {question}"), Chunk(7, 0, 2.0, "first")]


def retrieval_files(closed: str = '" One letter."', stuffed: str = STUFFED) -> dict[str, bytes | Path]:
    return {f"files/{RETRIEVAL_SCRIPT}": SCRIPT_FILE.format(closed=closed).encode(), f"files/{STUFF}": stuffed.encode()}


@pytest.mark.parametrize(
    ("task", "form"),
    [
        ("gsm100", " Sums."),
        ("codeU", " Briefly."),
        ("topic_retrieval_longchat", " Briefly."),
        ("coursera", " One letter."),
        ("sci_fi", " One letter."),
        ("gov_report_summ", " In 2 words."),
        ("narrative_qa", " In 2 words."),
    ],
)
def test_retrieved_chunks_stand_in_langchain_s_prompt(make_bundle: MakeBundle, task: str, form: str) -> None:
    bundle = make_bundle(retrieval_files())
    sample = Sample("leval", task, "000-00", "the whole document", "Why {context}?", ("one two",))
    assert LEval().query(sample, bundle) == f"Why {{context}}?{form}"
    prompt = LEval().prompt(bundle, sample, Mode(rag=2), CHUNKS)
    assert prompt.text == f"Read:\n\nfirst\n\nsecond {{question}}\n\nAsked: Why {{context}}?{form}\nSo:"
    assert prompt.document == "first\n\nsecond {question}"
    assert (prompt.max_new_tokens, prompt.source) == (512, STUFF)


def test_a_bundle_without_the_retrieval_files(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({})
    sample = Sample("leval", "tpo", "000-00", "doc", "question", ("A",))
    with pytest.raises(BundleError, match="which L-Eval needs for --rag") as caught:
        LEval().query(sample, bundle)
    assert caught.value.command == "lbx bundle bundle/leval.toml bundle/leval_retrieval.toml"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (retrieval_files(closed="5"), "four texts to message"),
        (retrieval_files(closed='f" {out}"'), "four texts to message"),
        (retrieval_files(closed="("), "it is not valid Python"),
        (retrieval_files(stuffed="prompt_template = 7"), "is not text"),
        (retrieval_files(stuffed="other = 7"), "assigns no value to prompt_template"),
        (
            retrieval_files(stuffed="prompt_template = '{context} {more}'"),
            "Cannot fill in the prompt template in .*: 'more'",
        ),
    ],
)
def test_damaged_retrieval_files(make_bundle: MakeBundle, files: dict[str, bytes | Path], message: str) -> None:
    bundle = make_bundle(files)
    sample = Sample("leval", "tpo", "000-00", "doc", "question", ("A",))
    with pytest.raises(BundleError, match=message):
        LEval().prompt(bundle, sample, Mode(rag=2), CHUNKS)
