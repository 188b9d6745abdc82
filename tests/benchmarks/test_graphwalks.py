"""OpenAI GraphWalks on made-up rows in parquet; no real row has been seen here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.backends.scripted import ByteTokenizer
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, NoDataError, PromptError
from lbx.base.records import Sample, Sampling, ScoredSample, Truncation, sha256_text
from lbx.benchmarks.graphwalks import LEVELS, TASKS, read_nodes
from lbx.benchmarks.registry import BENCHMARKS
from lbx.engine.prompter import Prompter
from tests.command_line import Lbx
from tests.made_parquet import write_parquet
from tests.profiles import examples

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
Row = dict[str, Any]

GRAPHWALKS = BENCHMARKS["graphwalks"]
GRAPH = (
    "A graph follows.\n<begin example>\nuvwx -> alke\n\nOperation:\nPerform a BFS from node uvwx with depth 1.\n"
    "Final Answer: [alke]\n<end example>\nThe graph has the following edges:\n{}\n\n"
)
QUESTION = "Operation:\nFind the parents of node {}.\n\nReturn a list in the very last line of your response.\n"
COLUMNS = {"prompt": "VARCHAR", "answer_nodes": "VARCHAR[]", "prompt_chars": "BIGINT", "problem_type": "VARCHAR",
           "date_added": "VARCHAR"}  # fmt: skip


def row(graph: str = "aa -> bb\ncc -> bb", node: str = "bb", **changes: Any) -> Row:
    return {"prompt": GRAPH.format(graph) + QUESTION.format(node), "answer_nodes": ["aa", "cc"], "prompt_chars": 7,
            "problem_type": "parents", "date_added": "02-27-2026", **changes}  # fmt: skip


@pytest.fixture
def bundled(make_bundle: MakeBundle, tmp_path: Path) -> Callable[..., Bundle]:
    """bundled(row, ...): a bundle with these rows as short graphs."""

    def make(*rows: Row) -> Bundle:
        return make_bundle(
            {f"hub:openai/graphwalks/{LEVELS['128k']}": write_parquet(tmp_path / "short.parquet", rows, COLUMNS)}
        )

    return make


def test_a_row_is_a_graph_and_a_question(bundled: Callable[..., Bundle]) -> None:
    rows = [row(), row(node="aa", answer_nodes=[]), row(problem_type="bfs"), row("aa -> cc")]
    bundle = bundled(*rows)
    assert [(task.full_name, task.metrics, task.samples) for task in GRAPHWALKS.tasks(bundle)] == [
        ("graphwalks/bfs_128k", ("f1", "f1_card", "answered"), 1),
        ("graphwalks/parents_128k", ("f1", "f1_card", "answered"), 3),
    ]
    assert [task.name for task in GRAPHWALKS.tasks(bundle, ["bfs_128k", "bfs_1m"])] == ["bfs_128k"]
    first, second, other = GRAPHWALKS.samples(bundle, "parents_128k")
    assert first.context == second.context == GRAPH.format("aa -> bb\ncc -> bb") != other.context
    assert (first.question, first.references, second.references) == (QUESTION.format("bb"), ("aa", "cc"), ())
    assert (first.length, first.length_unit) == (len(first.context), "characters")
    assert (first.sample_id, other.sample_id) == tuple(sha256_text(one["prompt"])[:16] for one in (rows[0], rows[3]))
    documents = [sha256_text(sample.context) for sample in (first, second)]
    assert GRAPHWALKS.cluster(first, documents[0]) == GRAPHWALKS.cluster(second, documents[1])
    prompt = GRAPHWALKS.prompt(bundle, first)
    assert (prompt.text, prompt.document) == (rows[0]["prompt"], first.context)
    assert (prompt.truncation, prompt.turns, prompt.temperature, prompt.chat) == (Truncation.REFUSE, (), None, True)
    assert [GRAPHWALKS.prompt(bundle, one).max_new_tokens for one in (first, second)] == [4096 + 24, 4096]
    window = len(prompt.text.encode()) + 1 + prompt.max_new_tokens
    for context_window in (window, window - 1):
        prompter = Prompter(ByteTokenizer(), context_window=context_window)
        if context_window < window:
            with pytest.raises(PromptError, match="does not truncate prompts"):
                prompter.request(first.key, prompt, Sampling())
        else:
            assert not prompter.request(first.key, prompt, Sampling()).truncated


MISSING = object()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"prompt": None}, "the field 'prompt' is NoneType, not str"),
        ({"answer_nodes": None}, "the field 'answer_nodes' is NoneType, not list"),
        ({"answer_nodes": ["aa", None]}, "the field 'answer_nodes' is not a list of texts"),
        ({"answer_nodes": MISSING}, "the field 'answer_nodes' is missing"),
        ({"problem_type": "dfs"}, "the field 'problem_type' is 'dfs', not bfs or parents"),
    ],
)
def test_damaged_rows(changes: Row, what: str, bundled: Callable[..., Bundle]) -> None:
    damaged = {key: value for key, value in row(**changes).items() if value is not MISSING}
    with pytest.raises(BundleError, match=f"row 1 is damaged: {what}"):
        list(GRAPHWALKS.samples(bundled(damaged), "parents_128k"))


def test_a_prompt_of_another_form_is_asked_unchanged(bundled: Callable[..., Bundle]) -> None:
    bundle = bundled(*(row(prompt=text) for text in ("Who are the parents?", QUESTION)))
    for sample, text in zip(
        GRAPHWALKS.samples(bundle, "parents_128k"), ("Who are the parents?", QUESTION), strict=True
    ):
        assert (sample.context, sample.question, GRAPHWALKS.prompt(bundle, sample).text) == (text, "", text)


def test_a_bundle_without_the_data(make_bundle: MakeBundle) -> None:
    empty = make_bundle({"files/other": b""})
    assert GRAPHWALKS.tasks(empty) == []
    with pytest.raises(NoDataError, match="does not contain openai/graphwalks, bfs_1m") as caught:
        list(GRAPHWALKS.samples(empty, "bfs_1m"))
    assert caught.value.command == "lbx bundle bundle/graphwalks.toml"


def by_the_card(output: str, truth: set[str]) -> float:
    """The card's two rules, one after the other and with their faults."""
    last, found = output[output.rfind("\n") + 1 :], set()
    if "Final Answer:" in last and (form := re.search(r"Final Answer: ?\[.*\]", last)):
        found = {part.strip() for part in form.group().strip("[]").split(",")} - {""}
    both = len(found & truth)
    recall, precision = both / len(truth) if truth else 0, both / len(found) if found else 0
    return 2 * (recall * precision) / (recall + precision) if recall + precision > 0 else 1


def scores(output: str, *nodes: str) -> tuple[float, ...]:
    found = GRAPHWALKS.score(Sample("graphwalks", "bfs_128k", "x", "", "", nodes), output)
    assert tuple(score.metric for score in found) == ("f1", "f1_card", "answered")
    return tuple(score.score for score in found)


@pytest.mark.parametrize(
    ("output", "f1", "answered"),
    [
        ("Final Answer: [aa, cc]", 1.0, 1.0),
        ("I see.\nSo:\nFinal Answer:[cc,aa,aa]", 1.0, 1.0),
        ("The Final Answer: [ aa ] it is", 2 / 3, 1.0),
        ("Final Answer: [aa, bb, cc, dd]", 2 / 3, 1.0),
        ("Final Answer: [[aa, cc]]", 1.0, 1.0),
        ("Final Answer: []", 0.0, 1.0),
        ("Final Answer: [bb]", 0.0, 1.0),
        ("Final Answer: ['aa', 'cc']", 0.0, 1.0),
        ("Final Answer: aa, cc", 0.0, 0.0),
        ("Final Answer:  [aa, cc]", 0.0, 0.0),
        ("final answer: [aa, cc]", 0.0, 0.0),
        ("Final Answer: [aa, cc]\n", 0.0, 0.0),
        ("Final Answer: [aa,\ncc]", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_scores(output: str, f1: float, answered: float) -> None:
    assert scores(output, "aa", "cc") == (pytest.approx(f1), pytest.approx(by_the_card(output, {"aa", "cc"})), answered)


def test_empty_sets() -> None:
    assert scores("Final Answer: []") == (1.0, 1.0, 1.0)
    assert scores("Final Answer: [aa]") == (0.0, 1.0, 1.0)
    assert scores("None.") == (0.0, 1.0, 0.0)


def test_the_cards_code_loses_the_first_node_and_rewards_a_miss() -> None:
    """Its faults, for which ``f1`` does not follow it."""
    assert scores("Final Answer: [aa, cc]", "aa", "cc")[:2] == (1.0, 0.5)
    assert scores("I do not know.", "aa", "cc")[:2] == (0.0, 1.0)


def test_a_model_that_repeats_itself_is_read_at_once() -> None:
    """A search that starts again at each of these beginnings would take minutes."""
    repeated = "Final Answer: [" * 50_000
    assert scores(repeated, "aa") == (0.0, 1.0, 0.0)
    assert scores(f"{repeated}aa]", "aa")[2] == 1.0


names = st.sampled_from(["aa", "bb", "cc", "[dd", "", "e, f"])


@settings(max_examples=examples(300))
@given(
    nodes=st.lists(names),
    truth=st.sets(names),
    before=st.sampled_from(["", "x\n", "Final Answer: [aa]\n", "Final Answer:", "]", "Final Answer: [bb] or "]),
)
def test_any_list(nodes: list[str], truth: set[str], before: str) -> None:
    output = f"{before}Final Answer: [{', '.join(nodes)}]"
    found = set(read_nodes(output) or ())
    both = len(found & truth)
    f1 = 2 * both / (len(found) + len(truth)) if found | truth else 1.0
    assert scores(output, *truth)[:2] == (pytest.approx(f1), pytest.approx(by_the_card(output, truth)))


def test_numbers_by_operation_and_length() -> None:
    assert TASKS == ("bfs_128k", "parents_128k", "bfs_1m", "parents_1m")

    def rows(task: str, *values: float) -> list[ScoredSample]:
        samples = [Sample("graphwalks", task, f"{at}", "", "", ()) for at in range(len(values))]
        return [
            ScoredSample(sample, {"f1": value, "f1_card": 1.0, "answered": 1.0})
            for sample, value in zip(samples, values, strict=True)
        ]

    some = rows("bfs_128k", 1.0, 0.5, 0.25)
    assert [(score.metric, score.n, score.official) for score in GRAPHWALKS.aggregate("bfs_128k", some)] == [
        ("f1", 3, 58.3), ("f1_card", 3, None), ("answered", 3, None)
    ]  # fmt: skip
    assert GRAPHWALKS.aggregate("bfs_128k", []) == [] == GRAPHWALKS.groups({})
    tasks = {"bfs_128k": rows("bfs_128k", 1.0), "parents_128k": rows("parents_128k", 0.5, 0.5),
             "bfs_1m": rows("bfs_1m", 0.0)}  # fmt: skip
    groups = GRAPHWALKS.groups(tasks)
    assert [(group.grouping, group.name, group.n, group.score, group.official) for group in groups] == [
        ("overall", "all", 4, 0.5, None), ("operation", "bfs", 2, 0.5, 50.0), ("operation", "parents", 2, 0.5, None),
        ("length", "128k", 3, 0.75, 75.0), ("length", "1m", 1, 0.0, None),
    ]  # fmt: skip
    assert [group.grouping for group in GRAPHWALKS.groups(tasks, averages_only=True)] == ["overall"]


def test_from_bundle_to_board(tmp_path: Path) -> None:
    """The command line, on parquet files in a bundle that it makes and a model with scripted answers."""
    lbx, data = Lbx(), tmp_path / "data"
    for number, file in enumerate(LEVELS.values()):
        write_parquet(data / file, [row(f"aa -> bb\n{number} -> bb"), row(problem_type="bfs")], COLUMNS)
    recipe = 'name = "r"\n[[source]]\nkind = "path"\npath = "data"\nrepo = "openai/graphwalks"\ntype = "dataset"\n'
    (tmp_path / "r.toml").write_text(recipe)
    bundle = lbx.unpacked(tmp_path / "r.toml", tmp_path)
    answers = {str(sample.key): "Final Answer: [aa, cc]" for sample in GRAPHWALKS.samples(Bundle(bundle), "bfs_1m")}
    (tmp_path / "answers.jsonl").write_text(json.dumps({"*": "Final Answer: [cc]", **answers}))
    card = 'name = "m"\nbackend = "scripted"\ncontext_window = 100000\n[weights]\npath = "answers.jsonl"\n'
    (tmp_path / "m.toml").write_text(card)
    tasks = lbx.ok("tasks", "--bundle", bundle).stdout
    assert all(f"graphwalks/{task}" in tasks for task in TASKS)
    results = tmp_path / "r.duckdb"
    lbx.ok("run", "--bundle", bundle, "--model", tmp_path / "m.toml", "--tasks", "graphwalks", "-o", results)
    board = json.loads(lbx.ok("report", results, "board_graphwalks", "--format", "json", "--no-interval").stdout)
    assert {line["operation"]: (line["average"], line["128k"], line["1m"]) for line in board} == {
        "all": (75.0, 66.7, 83.3),
        "bfs": (83.3, 66.7, 100.0),
        "parents": (66.7, 66.7, 66.7),
    }
    for report in ("paper", "task_scores", "leaderboard", "effective_context"):
        assert "graphwalks" in lbx.ok("report", results, report).stdout.casefold()
