"""LongBench Pro on made-up data files in real bundle folders; its official numbers are in tests/golden."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError
from lbx.base.number import Number
from lbx.base.records import Sample, ScoredSample, Truncation
from lbx.benchmarks.base.sources import JsonArray
from lbx.benchmarks.longbench_pro.benchmark import NO_MODEL, LongBenchPro
from lbx.benchmarks.longbench_pro.paper_tables import CATEGORIES, missing_category
from lbx.benchmarks.longbench_pro.tasks import TASKS, DataFile, _index_rows
from lbx.options.asking import Mode
from tests.profiles import examples

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
PLACE = "hub:caskcsg/LongBench-Pro/longbench_pro.json"
PRO = LongBenchPro()
TRAP = 'rows }, {"secondary_task": "T1.1", \\" }, {'
"""Text that looks like the borders and keys which the reader goes by."""


def data_row(number: int, task: str = "t3.2", **changes: Any) -> dict[str, Any]:
    title = TASKS[task].title
    head = title.split(".")[0] + "."
    row = {
        "id": f"q{number}",
        "context": f"\n Dokument {number} 文档 {TRAP}",
        "language": ("Chinese", "English")[number % 2],
        "token_length": CATEGORIES["length"][number % 6],
        "primary_task": next(name for name in CATEGORIES["primary_task"] if name.startswith(head)),
        "secondary_task": title,
        "contextual_requirement": ("Full", "Partial")[number % 2],
        "question_nonthinking": f"plain {number} {TRAP}",
        "question_thinking": f"think {number} ",
        "answer": ["Eins", "Zwei"],
        "difficulty": CATEGORIES["difficulty"][number % 4],
    }
    return row | changes


def as_array(rows: list[Any]) -> bytes:
    return json.dumps(rows, ensure_ascii=False, indent=4).encode()


def as_ascii_line(rows: list[Any]) -> bytes:
    return json.dumps(rows).encode() + b"\n"


def as_lines(rows: list[Any]) -> bytes:
    return b"\n\n".join(json.dumps(row, ensure_ascii=False).encode() for row in rows) + b"\n"


ROWS = [data_row(number, task) for number, task in enumerate(["t3.2", "t10.1", "t3.2", "t1.1", "t4.2", "t3.2"])]


@pytest.mark.parametrize("written", [as_array, as_ascii_line, as_lines])
def test_tasks_and_samples(make_bundle: MakeBundle, written: Callable[[list[Any]], bytes]) -> None:
    bundle = make_bundle({PLACE: written(ROWS)})
    tasks = PRO.tasks(bundle)
    assert [(task.full_name, task.samples) for task in tasks] == [
        ("longbench_pro/t1.1", 1),
        ("longbench_pro/t3.2", 3),
        ("longbench_pro/t4.2", 1),
        ("longbench_pro/t10.1", 1),
    ]
    assert tasks[2].metrics == ("summary", "rouge_l", "rouge_l_unlimited", "similarity")
    samples = list(PRO.samples(bundle, "t3.2"))
    assert [sample.sample_id for sample in samples] == ["q0", "q2", "q5"]
    assert [sample.meta["row"] for sample in samples] == [0, 2, 5]
    assert [sample.language for sample in samples] == ["zh", "zh", "en"]
    assert [sample.length for sample in samples] == [8192, 32768, 262144]
    assert samples[0].references == ("Eins", "Zwei")
    names = ("secondary_task", "primary_task", "token_length", "contextual_requirement", "difficulty")
    for sample in samples:
        row = ROWS[sample.meta["row"]]
        assert {name: sample.meta[name] for name in names} == {name: row[name] for name in names}
        assert (sample.context, sample.question) == (row["context"], row["question_nonthinking"])


def test_the_index_is_what_was_read(tmp_path: Path) -> None:
    """The quick way through the file must not be given up for odd but valid texts, or 25 tasks parse it 25 times."""
    for name, written in (("a", as_array), ("b", as_ascii_line), ("c", as_lines)):
        path = tmp_path / name
        path.write_bytes(written(ROWS))
        entries = _index_rows(path, path.stat().st_mtime_ns, path.stat().st_size)
        assert entries is not None
        content = path.read_bytes()
        assert [json.loads(content[entry.start : entry.end]) for entry in entries] == ROWS
        assert [entry.line for entry in entries] == [content[: entry.start].count(b"\n") + 1 for entry in entries]


@given(st.lists(st.text(alphabet='{}[],":\\ \nab', max_size=30), min_size=1, max_size=5), st.sampled_from([None, 0, 2]))
@settings(max_examples=examples(150))
def test_any_texts_can_stand_in_a_row(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], indent: int | None
) -> None:
    folder = tmp_path_factory.mktemp("pro")
    rows = [data_row(number, context=text, question_thinking=text + "}, {") for number, text in enumerate(texts)]
    place = folder / "hub" / "x"
    place.parent.mkdir()
    place.write_text(json.dumps(rows, indent=indent), "utf-8")
    data = DataFile(JsonArray(place, "id"), place)
    assert data.counts() == {TASKS["t3.2"].title: len(rows)}
    assert [(number, row.values) for number, row in data.rows(TASKS["t3.2"].title)] == list(enumerate(rows))


@pytest.mark.parametrize(
    ("mode", "question", "new_tokens"),
    [
        (Mode(), "plain", 1024),
        (Mode(context_window=262144), "plain", 1024),
        (Mode(thinking=True), "think", 8192),
        (Mode(thinking=True, context_window=131072), "think", 8192),
        (Mode(thinking=True, context_window=262144), "think", 32768),
        (Mode(thinking=True, thinking_tokens=4096, context_window=262144), "think", 1024),
        (Mode(thinking=True, context_window=262144, reasoning_block=True), "plain", 32768),
        (Mode(reasoning_block=True), "plain", 1024),
    ],
)
def test_prompt(make_bundle: MakeBundle, mode: Mode, question: str, new_tokens: int) -> None:
    bundle = make_bundle({PLACE: as_array(ROWS)})
    sample = list(PRO.samples(bundle, "t3.2"))[1]
    prompt = PRO.prompt(bundle, sample, mode)
    row = ROWS[2]
    asked = row["question_thinking" if question == "think" else "question_nonthinking"]
    assert prompt.text == (row["context"] + "\n\n\n\n" + asked).strip()
    assert prompt.text.startswith("Dokument 2")
    assert prompt.document == row["context"].lstrip()
    assert (prompt.max_new_tokens, prompt.truncation) == (new_tokens, Truncation.MIDDLE_FLOOR)
    assert (prompt.model_sampling, prompt.temperature, prompt.chat) == (True, None, True)
    assert (prompt.limits[131072], prompt.limits[262144]) == (120000, 224000)
    assert PRO.protocol.iterations == 3


def test_a_document_of_white_space_is_none(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({PLACE: as_array([data_row(0, context=" \n")])})
    (sample,) = PRO.samples(bundle, "t3.2")
    assert PRO.prompt(bundle, sample).text == sample.question.strip()


def test_behind_a_document_without_a_question_there_is_no_white_space(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({PLACE: as_array([data_row(0, context=" text \n", question_nonthinking=" \n")])})
    (sample,) = PRO.samples(bundle, "t3.2")
    assert PRO.prompt(bundle, sample).text == "text"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "damaged"),
        (b"[", r"line 1"),
        (b"oops", r"longbench_pro\.json, line 1 is damaged: it must start with"),
        (as_array(ROWS)[:-40], r"longbench_pro\.json, line \d+"),
        (as_lines(ROWS)[:-40], r"longbench_pro\.json, line 11 is damaged"),
        (
            as_array([data_row(0, secondary_task="T99 Nothing")]),
            r"line 2 is damaged: there is no secondary task 'T99 Nothing'",
        ),
        (as_lines([data_row(0)]).replace(b"plain", b"\xff"), "line 1 is damaged: it is not UTF-8"),
        (as_array([data_row(0)]).replace(b"Dokument", b"Doku\nment"), r"line 4 is damaged: Invalid control character"),
    ],
)
def test_damaged_files(make_bundle: MakeBundle, content: bytes, what: str) -> None:
    bundle = make_bundle({PLACE: content})
    with pytest.raises(BundleError, match=what):
        for task in PRO.tasks(bundle):
            list(PRO.samples(bundle, task.name))
        list(PRO.samples(bundle, "t3.2"))


def made(task: str, references: tuple[str, ...] = ("a", "b"), language: str = "en", **meta: Any) -> Sample:
    row = data_row(0, task)
    known = {name: row[name] for name in ("primary_task", "token_length", "contextual_requirement", "difficulty")}
    return Sample("longbench_pro", task, "q", "", "", references, language, meta={**known, "row": 0, **meta})


@pytest.mark.parametrize(
    ("task", "output", "score"),
    [
        ("t3.1", "thinking [Answer] A \n b", 1.0),
        ("t3.1", "b\na", 0.0),
        ("t5.1", "[答案]\nb\nB\n a ", 1.0),
        ("t5.1", "[答案] x [Answer] b", 2 / 3),
        ("t6.1", "b\nc", 0.5),
        ("t2.1", "a\nc\nb", 1 / 3),
        ("t2.1", "b\na", 0.0),
        ("t1.1", "a\nb", 1.0),
        ("t1.1", "b\na", (1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3))),
    ],
)
def test_metrics_by_hand(task: str, output: str, score: float) -> None:
    (found,) = PRO.score(made(task), output)
    assert found.metric == TASKS[task].metric
    assert found.score == pytest.approx(score, abs=1e-12)
    assert found.error is None


def test_official_failures_are_named() -> None:
    for task, kind in TASKS.items():
        scores = PRO.score(made(task), "", similarity=1.0)
        assert scores[0].metric == kind.metric
        assert all((score.score, score.error) == (0.0, "officially a failure: the output is empty") for score in scores)
        broken = PRO.score(made(task, ("a",), reference_is_no_text=True), "a", similarity=1.0)
        assert all(score.score == 0 and "a reference is no text" in (score.error or "") for score in broken)
    (pairs,) = PRO.score(made("t2.1", ("a", "b") * 3), "a\nb")
    assert (pairs.score, pairs.error) == (0.0, "officially a failure: the value 6.0 is not in 0..1")


def test_summary_with_and_without_a_model() -> None:
    sample = made("t4.1", ("One  two Three.", "four"))
    compared = PRO.similarity_input(sample, " ONE two\n[Answer] ")
    assert compared == ("one two [answer]", ("one two three.", "four"))
    whole = {score.metric: score for score in PRO.score(sample, "one two three", similarity=0.5)}
    assert list(whole) == ["summary", "rouge_l", "rouge_l_unlimited", "similarity"]
    assert whole["summary"].score == 0.5 * 0.5 + 0.5 * whole["rouge_l"].score
    assert all(score.partial is None for score in whole.values())
    alone = PRO.score(sample, "one two three")
    assert [(score.metric, score.partial) for score in alone] == [("rouge_l", NO_MODEL), ("rouge_l_unlimited", None)]
    for similarity in (1.2, -1.2, math.nan):
        headline = PRO.score(sample, "one two three", similarity=similarity)[0]
        assert (headline.metric, headline.score) == ("summary", 0.0)
        assert "is not in 0..1" in (headline.error or "")


@pytest.mark.parametrize(("output", "references"), [("", ("a",)), (" \n", ("a",)), ("a", ())])
def test_nothing_to_compare_is_a_whole_zero(output: str, references: tuple[str, ...]) -> None:
    sample = made("t4.1", references)
    assert PRO.similarity_input(sample, output) is None
    scores = PRO.score(sample, output)
    assert [score.metric for score in scores] == ["summary", "rouge_l", "rouge_l_unlimited"]
    assert all(score.score == 0 and score.partial is None for score in scores)


def test_one_bad_reference_takes_rouge_from_all() -> None:
    """A reference of dots alone, and one too long for the official recursion, which ``unlimited`` does not mind."""
    long = " ".join(f"w{number}" for number in range(990))
    assert PRO.score(made("t4.1", ("a b", "..")), "a b")[0].score == 0.0
    best, unlimited = PRO.score(made("t4.1", ("a b", long)), "a b " + long)
    assert (best.score, round(unlimited.score, 3)) == (0.0, 0.999)


def test_only_summaries_are_compared() -> None:
    assert [task for task in TASKS if PRO.similarity_input(made(task), "a")] == ["t4.1", "t4.2"]


# --- adding up


def scored(sample: Sample, iteration: int, **scores: float) -> ScoredSample:
    return ScoredSample(sample, scores, iteration, partial="summary" not in scores and "rouge_l" in scores)


def every_category() -> dict[str, list[ScoredSample]]:
    """One question of each secondary task, three iterations: 0, 0.5 and 1."""
    found: dict[str, list[ScoredSample]] = {}
    for number, (task, kind) in enumerate(TASKS.items()):
        row = data_row(number, task)
        meta = {name: row[name] for name in ("primary_task", "token_length", "contextual_requirement", "difficulty")}
        language = "zh" if row["language"] == "Chinese" else "en"
        sample = Sample("longbench_pro", task, row["id"], "", "", (), language, meta=meta | {"row": number})
        found[task] = [scored(sample, iteration, **{kind.metric: iteration / 2}) for iteration in range(3)]
    return found


def named(groups: list[Number]) -> dict[tuple[str, str, str], Number]:
    return {(group.metric, group.grouping, group.name): group for group in groups}


def test_the_whole_report() -> None:
    groups = PRO.groups(every_category())
    categories = sum(len(names) for names in CATEGORIES.values())
    assert len(groups) == 1 + 3 + categories + 3 * (2 + categories)
    assert all(group.official == group.score and not group.partial for group in groups)
    found = named(groups)
    for metric, value in {"average": 0.5, "iteration 1": 0.0, "iteration 3": 1.0, "bon@2": 0.5, "pass@3": 1.0}.items():
        assert (found[metric, "overall", "all"].score, found[metric, "overall", "all"].n) == (value, 25)
    assert found["pass@2", "overall", "all"].score == 0.0
    assert [group.name for group in groups if group.metric == "average"][1:] == [
        name for names in CATEGORIES.values() for name in names
    ]


def test_a_missing_category_leaves_no_official_number() -> None:
    tasks = {task: rows for task, rows in every_category().items() if not task.startswith("t9.")}
    groups = PRO.groups(tasks)
    assert missing_category(tasks) == "T9. Version & Code Diff Analysis"
    assert all(group.official is None for group in groups)
    assert ("average", "primary_task", "T9. Version & Code Diff Analysis") not in named(groups)
    assert named(groups)["average", "overall", "all"].n == 23
    assert PRO.groups({}) == []


def test_summaries_without_a_model_make_their_groups_partial() -> None:
    tasks = every_category()
    tasks["t4.1"] = [
        scored(row.sample, row.iteration, rouge_l=row.scores["summary"], rouge_l_unlimited=1.0) for row in tasks["t4.1"]
    ]
    found = named(PRO.groups(tasks))
    touched = found["average", "primary_task", "T4. Summarization & Synthesis"]
    assert (touched.partial, touched.official, touched.score, touched.n) == (True, None, 0.5, 2)
    assert found["pass@1", "overall", "all"].partial
    whole = found["average", "primary_task", "T3. Evidence-Grounded QA"]
    assert (whole.partial, whole.official) == (False, 0.5)
    (headline, unlimited) = PRO.aggregate("t4.1", tasks["t4.1"])
    assert (headline.metric, headline.partial, headline.score, headline.n) == ("rouge_l", True, 0.5, 3)
    assert (unlimited.metric, unlimited.partial) == ("rouge_l_unlimited", False)


def test_rows_that_are_missing() -> None:
    """A question's average is over what it has; without any of the first n it has no part in bon@n."""
    tasks = every_category()
    tasks["t1.1"] = tasks["t1.1"][2:]
    tasks["t3.1"] = tasks["t3.1"][:1]
    found = named(PRO.groups(tasks))
    assert found["average", "overall", "all"].n == 25
    assert found["average", "overall", "all"].score == pytest.approx((23 * 0.5 + 1.0 + 0.0) / 25)
    assert (found["bon@1", "overall", "all"].n, found["bon@3", "overall", "all"].n) == (24, 25)
    assert found["iteration 2", "overall", "all"].n == 23
    last = named(PRO.groups({"t1.1": tasks["t1.1"]}))
    assert ("bon@1", "overall", "all") not in last
    assert last["bon@3", "overall", "all"].score == 1.0


def test_rows_are_added_up_in_the_order_of_the_data() -> None:
    tasks = every_category()
    backwards = {task: rows[::-1] for task, rows in reversed(tasks.items())}
    assert PRO.groups(backwards) == PRO.groups(tasks)


def test_task_numbers() -> None:
    sample = made("t4.2")
    rows = [
        scored(sample, 0, summary=0.5, rouge_l=0.25, rouge_l_unlimited=0.5, similarity=0.75),
        scored(sample, 1, summary=0.0, rouge_l=0.0, rouge_l_unlimited=0.0),
    ]
    found = {
        score.metric: (score.n, score.score, score.official, score.partial) for score in PRO.aggregate("t4.2", rows)
    }
    assert found == {
        "summary": (2, 0.25, None, False),
        "rouge_l": (2, 0.125, None, False),
        "rouge_l_unlimited": (2, 0.25, None, False),
        "similarity": (1, 0.75, None, False),
    }
    assert PRO.aggregate("t4.2", []) == []
