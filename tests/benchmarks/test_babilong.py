"""BABILong on made-up rows and a prompts.py of its form; no real row has been seen here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, NoDataError
from lbx.base.number import group_number, task_number
from lbx.base.records import Sample, ScoredSample, Truncation
from lbx.benchmarks.babilong import LABELS, LEADERBOARD, LENGTHS, PROMPTS, REPOS, TASKS
from lbx.benchmarks.base.paper_tables import BoardEntry
from lbx.benchmarks.registry import BENCHMARKS
from lbx.options.asking import PLAIN, Mode
from tests.command_line import Lbx
from tests.made_parquet import write_parquet

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
Row = dict[str, Any]

BABILONG = BENCHMARKS["babilong"]
TEXTS = {
    kind: {"instruction": f"Read {{{kind}}}.", "examples": "<example>\nOne.\n</example>\n", "post_prompt": "Be brief."}
    for kind in LABELS
}
PROMPTS_PY = f"""
TASK_TEMPLATE = '{{instruction}}\\n\\n{{examples}}\\n\\n{{post_prompt}}'
USER_TEMPLATE = '<context>\\n{{context}}\\n</context>\\n\\nQuestion: {{question}}'
DEFAULT_TEMPLATE = f'{{TASK_TEMPLATE}}\\n\\n{{USER_TEMPLATE}}'
DEFAULT_PROMPTS = {TEXTS!r}
"""
ROW = {"input": " Mary went to the garden. {x} \n", "question": "Where is Mary? ", "target": "garden"}


def made(make_bundle: MakeBundle, prompts: str = PROMPTS_PY, **tasks: list[Row]) -> Bundle:
    """A bundle with these rows in the JSON form of the first dataset."""
    content: dict[str, bytes | Path] = {f"files/{PROMPTS}": prompts.encode()}
    for task, rows in tasks.items():
        kind, length = task.split("_")
        content[f"hub:{REPOS[0]}/data/{kind}/{length}.json"] = json.dumps(rows).encode()
    return make_bundle(content)


def test_rows_are_samples_in_both_forms(make_bundle: MakeBundle, tmp_path: Path) -> None:
    bundle = made(make_bundle, qa1_0k=[ROW, {**ROW, "target": "Office"}], qa8_1M=[{**ROW, "target": "apple,milk"}])
    columns = dict.fromkeys(ROW, "VARCHAR")
    file = write_parquet(tmp_path / "0.parquet", [ROW], columns)
    bundle = make_bundle({f"hub:{REPOS[1]}/32k/{kind}/0000.parquet": file for kind in ("qa1", "qa10")})
    found = [(task.full_name, task.metrics, task.samples) for task in BABILONG.tasks(bundle)]
    assert found == [
        ("babilong/qa1_0k", ("accuracy",), 2), ("babilong/qa1_32k", ("accuracy",), 1),
        ("babilong/qa8_1M", ("accuracy",), 1), ("babilong/qa10_32k", ("accuracy",), 1),
    ]  # fmt: skip
    assert [task.name for task in BABILONG.tasks(bundle, ["qa1_32k", "qa2_32k"])] == ["qa1_32k"]
    first, second = BABILONG.samples(bundle, "qa1_0k")
    assert (first.sample_id, second.sample_id, second.references) == ("0000", "0001", ("Office",))
    assert (first.context, first.question) == ("Mary went to the garden. {x}", ROW["question"])
    assert (first.length, first.length_unit) == (0, "tokens")
    (long,) = BABILONG.samples(bundle, "qa8_1M")
    assert (long.length, long.references, BABILONG.chance(long)) == (1_000_000, ("apple,milk",), 0.25)


def test_prompts_have_the_parts_that_are_asked_for(make_bundle: MakeBundle) -> None:
    bundle = made(make_bundle, qa1_0k=[ROW])
    (sample,) = BABILONG.samples(bundle, "qa1_0k")
    end = "<context>\nMary went to the garden. {x}\n</context>\n\nQuestion: Where is Mary?"
    example = "<example>\nOne.\n</example>\n"
    for mode, start in (
        (PLAIN, f"Read {{qa1}}.\n\n{example}\n\nBe brief.\n\n"),
        (Mode(examples=False), "Read {qa1}.\n\n\n\nBe brief.\n\n"),
        (Mode(instruction=False), f"{example}\n\nBe brief.\n\n"),
        (Mode(instruction=False, examples=False, post_prompt=False), ""),
    ):
        prompt = BABILONG.prompt(bundle, sample, mode)
        assert prompt.text == start + end
        assert (prompt.document, prompt.max_new_tokens, prompt.truncation) == (sample.context, 20, Truncation.REFUSE)
        assert (prompt.temperature, prompt.chat, prompt.source) == (None, True, PROMPTS)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"input": None}, "the field 'input' is NoneType, not str"),
        ({"question": 3}, "the field 'question' is int, not str"),
        ({"target": ["garden"]}, "the field 'target' is list, not str"),
        ({"target": "cellar"}, "the field 'target' is 'cellar', no answer to qa1_0k"),
        ({"target": ""}, "the field 'target' is '', no answer"),
        ({"target": ...}, "the field 'target' is missing"),
    ],
)
def test_damaged_rows(changes: Row, what: str, make_bundle: MakeBundle) -> None:
    row = {name: value for name, value in {**ROW, **changes}.items() if value is not ...}
    with pytest.raises(BundleError, match=f"0k.json, line 1 is damaged: {what}"):
        list(BABILONG.samples(made(make_bundle, qa1_0k=[row]), "qa1_0k"))


@pytest.mark.parametrize(
    "text",
    [
        PROMPTS_PY.replace("DEFAULT_PROMPTS", "OTHER"), PROMPTS_PY.replace("'qa1'", "'qa0'"),
        PROMPTS_PY.replace("'examples'", "'example'"), PROMPTS_PY.replace("'Be brief.'", "3"),
        "TASK_TEMPLATE = USER_TEMPLATE = 3\nDEFAULT_PROMPTS = []", PROMPTS_PY.replace("{context}", "{text}"), "x = (",
    ],
)  # fmt: skip
def test_damaged_prompts(text: str, make_bundle: MakeBundle) -> None:
    bundle = made(make_bundle, text, qa1_0k=[ROW])
    (sample,) = BABILONG.samples(bundle, "qa1_0k")
    with pytest.raises(BundleError, match=r"prompts\.py"):
        BABILONG.prompt(bundle, sample)


def test_missing_and_doubled_data(make_bundle: MakeBundle, tmp_path: Path) -> None:
    empty = make_bundle({"files/other": b""})
    assert BABILONG.tasks(empty) == []
    with pytest.raises(NoDataError, match=r"does not contain RMT-team/babilong or .*, qa1_0k") as caught:
        list(BABILONG.samples(empty, "qa1_0k"))
    assert caught.value.command == "lbx bundle bundle/babilong.toml"
    file = write_parquet(tmp_path / "0.parquet", [ROW], dict.fromkeys(ROW, "VARCHAR"))
    both = made(make_bundle, qa1_0k=[ROW])
    both = make_bundle({f"hub:{REPOS[1]}/0k/qa1/0000.parquet": file})
    with pytest.raises(BundleError, match="qa1_0k of BABILong in two datasets"):
        BABILONG.tasks(both)


def score(task: str, target: str, output: str, question: str = "Where is it?") -> tuple[float, str | None]:
    (found,) = BABILONG.score(Sample("babilong", task, "0", "", question, (target,)), output)
    return found.score, found.extracted


@pytest.mark.parametrize(
    ("task", "target", "output", "right", "extracted"),
    [
        ("qa1_0k", "garden", "The most recent location is Garden.", 1, "garden"),
        ("qa1_0k", "garden", "In the garden. Not the office", 1, "garden"),
        ("qa1_0k", "garden", "The garden or the office", 0, "garden, office"),
        ("qa1_0k", "garden", "garden\n<EXAMPLE>office", 1, "garden"),
        ("qa1_0k", "garden", "", 0, ""),
        ("qa1_0k", "garden", "St. garden", 0, ""),
        ("qa5_0k", "Bill", "bill", 1, "bill"),
        ("qa6_0k", "no", "nothing is known", 1, "no"),
        ("qa8_0k", "apple,milk", "Milk and apple", 1, "apple, milk"),
        ("qa8_0k", "apple,milk", "apple", 0, "apple"),
        ("qa19_0k", "n,w", "n,w", 1, "n,w"),
        ("qa19_0k", "n,w", "n, w", 0, ""),
    ],
)
def test_scores(task: str, target: str, output: str, right: float, extracted: str) -> None:
    assert score(task, target, output) == (right, extracted)


def test_labels_of_the_question_do_not_count() -> None:
    assert score("qa4_0k", "garden", "The kitchen is south of the garden", "What is the kitchen south of?")[0] == 1
    assert score("qa4_0k", "kitchen", "kitchen", "Is it the kitchen?") == (0, "")


def rows(task: str, *scores: float) -> list[ScoredSample]:
    return [
        ScoredSample(Sample("babilong", task, f"{at}", "", "", ()), {"accuracy": value})
        for at, value in enumerate(scores)
    ]


def test_the_leaderboards_mean_needs_its_five_tasks() -> None:
    assert len(TASKS) == 20 * len(LENGTHS) == 280
    tasks = {f"{kind}_4k": rows(f"{kind}_4k", 1.0, 0.0, 0.0) for kind in LEADERBOARD}
    tasks |= {"qa6_4k": rows("qa6_4k", 1.0), "qa1_8k": rows("qa1_8k", 1.0), "qa2_8k": rows("qa2_8k", 0.0)}
    groups = {(group.grouping, group.name): group for group in BABILONG.groups(tasks)}
    assert [*groups] == [("overall", "all"), ("length", "4k"), ("length", "8k"), ("question type", "qa1"),
                         ("question type", "qa2")]  # fmt: skip
    assert groups["length", "4k"].official == pytest.approx(100 / 3, abs=1e-9)
    assert (groups["length", "8k"].official, groups["length", "8k"].score) == (None, 0.5)
    assert groups["overall", "all"].official is None
    assert BABILONG.aggregate("qa1_4k", []) == [] == BABILONG.groups({})
    assert [group.grouping for group in BABILONG.groups(tasks, averages_only=True)] == ["overall"]


def test_the_board_names_what_a_mean_lacks() -> None:
    """The means over the lengths are lbx's, and no reason for a note at complete lengths."""
    tasks = {f"{kind}_{length}": rows(f"{kind}_{length}", 1.0) for kind in LEADERBOARD for length in ("0k", "4k")}
    assert note_of(tasks) is None
    assert note_of({**tasks, "qa1_8k": rows("qa1_8k", 1.0)}) is None, "a length without a mean"
    more = {f"{kind}_{length}": rows(f"{kind}_{length}", 1.0) for kind in ("qa1", "qa3") for length in ("1k", "16k")}
    more |= {f"{kind}_2k": rows(f"{kind}_2k", 1.0) for kind in LEADERBOARD[:4]}
    assert note_of({**tasks, **more}) == "1k, 16k without qa2, qa4, qa5; 2k without qa5"
    assert note_of({**tasks, **more}, "9 of 99") == "9 of 99; 1k, 16k without qa2, qa4, qa5; 2k without qa5"


def note_of(tasks: dict[str, list[ScoredSample]], note: str | None = None) -> str | None:
    groups = {group_number(one.grouping, one.name, metric=one.metric): one.official for one in BABILONG.groups(tasks)}
    numbers = dict.fromkeys([*map(task_number, tasks), *groups], 1.0)
    unofficial = frozenset(key for key, official in groups.items() if official is None)
    entry = BABILONG.boards.complete_entry(BoardEntry("m", "r", numbers=numbers, unofficial=unofficial, note=note))
    assert {key.grouping for key in entry.unofficial} <= {"length"}
    return entry.note


def test_from_bundle_to_board(tmp_path: Path) -> None:
    """The command line, on a bundle that it makes and a model with scripted answers."""
    lbx, data = Lbx(), tmp_path / "data"
    for kind in LEADERBOARD:
        for length in ("0k", "4k"):
            file = data / f"hub/data/{kind}/{length}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            target = LABELS[kind][0]
            file.write_text(json.dumps([{**ROW, "target": target}, {**ROW, "target": LABELS[kind][1]}]))
    (data / "prompts.py").write_text(PROMPTS_PY)
    (tmp_path / "r.toml").write_text(
        f'name = "r"\n[[source]]\nkind = "path"\npath = "data/hub"\nrepo = "{REPOS[0]}"\ntype = "dataset"\n'
        f'[[source]]\nkind = "path"\npath = "data/prompts.py"\nto = "{PROMPTS}"\nallow = ["prompts.py"]\n'
    )
    bundle = lbx.unpacked(tmp_path / "r.toml", tmp_path)
    answers = {
        str(sample.key): f"It is {LABELS[kind][0]}."
        for kind in LEADERBOARD
        for sample in BABILONG.samples(Bundle(bundle), f"{kind}_0k")
    }
    (tmp_path / "answers.jsonl").write_text(json.dumps({"*": "no idea", **answers}))
    card = 'name = "m"\nbackend = "scripted"\ncontext_window = 100000\n[weights]\npath = "answers.jsonl"\n'
    (tmp_path / "m.toml").write_text(card)
    results = tmp_path / "r.duckdb"
    ask = ("run", "--bundle", bundle, "--model", tmp_path / "m.toml", "-o", results)
    lbx.ok(*ask, "--tasks", "babilong/*_0k,babilong/qa[1-5]_4k")
    lbx.ok(*ask, "--tasks", "babilong/qa1_0k", "--no-instruction", "--no-examples", "--no-post-prompt")
    board = json.loads(lbx.ok("report", results, "board_babilong", "--format", "json", "--no-interval").stdout)
    plain = {line["questions"]: line for line in board if not line["mode"]}
    assert (plain["all"]["0k"], plain["all"]["4k"], plain["all"]["mean"]) == (50.0, 0.0, 25.0)
    assert plain["qa1"]["0k"] == 50.0 and not any(line["note"] for line in plain.values())
    assert {line["mode"] for line in board} == {None, "no instruction no examples no post-prompt"}
    for report in ("paper", "task_scores", "leaderboard", "effective_context", "guards"):
        assert "babilong" in lbx.ok("report", results, report).stdout.casefold()
    query = "SELECT run_id FROM runs WHERE settings->>'instruction' IS NULL"
    ((name,),) = (row.values() for row in lbx.rows(results, query))
    lbx.ok("export", "babilong", results, "--run", name, "-o", tmp_path / "out")
    again = lbx.ok("import", "babilong", tmp_path / "out/m", "--model-name", "again", "-o", results, "--bundle", bundle)
    assert "no match" not in again.stdout + again.stderr
    same = f"SELECT same_outputs FROM comparison WHERE run_a = '{name}' OR run_b = '{name}'"
    assert any(row["same_outputs"] == 2 for row in lbx.rows(results, same))
    # A file without the first row's answer still answers the second question, and its name states the prompt.
    part = tmp_path / "part"
    part.mkdir()
    (written,) = (tmp_path / "out/m").glob("qa1_0k_*.csv")
    lines = written.read_text().splitlines(keepends=True)
    name = written.name.replace("examples_yes", "examples_no").replace("chat_template_yes", "chat_template_no")
    (part / name).write_text("".join([lines[0], *lines[2:]]))
    done = lbx.ok("import", "babilong", part, "--model-name", "part", "-o", results, "--bundle", bundle)
    assert "no match" not in done.stdout + done.stderr
    (row,) = lbx.rows(
        results, "SELECT settings, sample_id FROM runs JOIN generations USING (run_id) WHERE model = 'part'"
    )
    assert row["sample_id"] == "0001"
    stated = json.loads(row["settings"]) if isinstance(row["settings"], str) else row["settings"]
    assert (stated["examples"], stated["chat"], "instruction" in stated) == (False, False, False)
    with pytest.raises(AssertionError, match="does not apply to needle"):
        lbx.ok(*ask, "--tasks", "needle", "--no-examples")
    # The right answers of one question type are wrong for another one.
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    (renamed / written.name.replace("qa1", "qa5")).write_text(written.read_text())
    refused = lbx("import", "babilong", renamed, "--model-name", "renamed", "-o", results)
    assert refused.returncode and f"'target' is {LABELS['qa1'][0]!r}, no answer to qa5_0k" in refused.stderr
