"""OpenAI MRCR on made-up rows in parquet; no real row has been seen here."""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.backends.scripted import ByteTokenizer
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, NoDataError, PromptError
from lbx.base.records import Sample, Sampling, ScoredSample, Truncation
from lbx.benchmarks.base.data_files import DataRow
from lbx.benchmarks.mrcr import LENGTHS, TASKS, _messages, _sample, grade
from lbx.benchmarks.registry import BENCHMARKS
from lbx.engine.prompter import ChatTemplate, Prompter, ReadPrompt
from tests.command_line import Lbx
from tests.made_parquet import write_parquet
from tests.profiles import examples

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
Row = dict[str, Any]

MRCR = BENCHMARKS["mrcr"]
PREFIX = "aYooSG8CQg"
POEMS = ("One tapir\nsleeps. ", " Two tapirs\n\nwake.")
QUESTION = f"Prepend {PREFIX} to the 2nd (1 indexed) poem about tapirs. Do not include any other text."
COLUMNS = {"prompt": "VARCHAR", "answer": "VARCHAR", "random_string_to_prepend": "VARCHAR", "n_needles": "BIGINT",
           "desired_msg_index": "BIGINT", "total_messages": "BIGINT", "n_chars": "BIGINT",
           "date_added": "VARCHAR"}  # fmt: skip


def said(*messages: tuple[str, object]) -> str:
    return json.dumps([{"role": role, "content": content} for role, content in messages], indent=1)


CONVERSATION = [
    ("user", "Here are some examples:\n\n======EXAMPLE======\nUser: hi\n======END EXAMPLE======\n"),
    ("user", "write a poem about tapirs"), ("assistant", POEMS[0]),
    ("user", "write a email about rocks"), ("assistant", "Dear rocks,"),
    ("user", "write a poem about tapirs"), ("assistant", POEMS[1]),
    ("user", QUESTION),
]  # fmt: skip


def row(*conversation: tuple[str, object], **changes: Any) -> Row:
    messages = conversation or CONVERSATION
    return {"prompt": said(*messages), "answer": PREFIX + POEMS[1], "random_string_to_prepend": PREFIX, "n_needles": 2,
            "desired_msg_index": 5, "total_messages": len(messages), "n_chars": 0, "date_added": "04-12-2025",
            **changes}  # fmt: skip


@pytest.fixture
def bundled(make_bundle: MakeBundle, tmp_path: Path) -> Callable[..., Bundle]:
    """bundled(row, ...): a bundle with these rows of two needles, a shard for each."""

    def make(*rows: Row) -> Bundle:
        shards = [write_parquet(tmp_path / f"{at}.parquet", [row], COLUMNS) for at, row in enumerate(rows)]
        return make_bundle({f"hub:openai/mrcr/2needle/2needle_{at}.parquet": shard for at, shard in enumerate(shards)})

    return make


def only_sample(bundle: Bundle) -> Sample:
    (sample,) = MRCR.samples(bundle, "2needle")
    return sample


def test_a_row_is_a_conversation_and_a_question(bundled: Callable[..., Bundle]) -> None:
    bundle = bundled(row())
    assert [(task.full_name, task.metrics, task.samples) for task in MRCR.tasks(bundle)] == [
        ("mrcr/2needle", ("ratio", "prefix"), 1)
    ]
    sample = only_sample(bundle)
    contents = [content for _, content in CONVERSATION]
    first = f"{contents[0]}\n\n{contents[1]}"
    assert sample.context == (
        f"User: {first}\n\nAssistant: {POEMS[0]}\n\nUser: {contents[3]}\n\nAssistant: {contents[4]}\n\n"
        f"User: {contents[5]}\n\nAssistant: {POEMS[1]}"
    )
    assert (sample.question, sample.references) == (QUESTION, (PREFIX + POEMS[1],))
    assert (sample.length, sample.length_unit) == (sum(map(len, contents)) + 2, "characters")
    (evidence,) = MRCR.evidence(sample)
    assert evidence == POEMS[1] and evidence in sample.context
    assert POEMS[0] not in json.dumps(dict(sample.meta)), "documents are not stored"
    prompt = MRCR.prompt(bundle, sample)
    assert (prompt.text, *prompt.turns) == (first, *contents[2:])
    assert (prompt.truncation, prompt.max_new_tokens, prompt.temperature) == (Truncation.REFUSE, 4096, None)
    assert (prompt.document, prompt.chat, prompt.system) == (first, True, "")


messages = st.text(max_size=12)


@settings(max_examples=examples(200))
@given(first=st.lists(messages, min_size=1, max_size=2), others=st.lists(st.tuples(messages, messages), min_size=1))
def test_any_messages_are_kept(first: list[str], others: list[tuple[str, str]]) -> None:
    said_by = [("user", text) for text in first]
    said_by += [turn for answer, ask in others for turn in (("assistant", answer), ("user", ask))]
    sample = _sample("2needle", DataRow("made up", row(*said_by)))
    assert [*_messages(sample), sample.question] == ["\n\n".join(first), *(text for pair in others for text in pair)]


def test_ids_stay_when_other_rows_change(
    bundled: Callable[..., Bundle], make_bundle: MakeBundle, tmp_path: Path
) -> None:
    fixed = row(("user", "another"), *CONVERSATION[1:])
    three = list(MRCR.samples(bundled(row(), fixed, row()), "2needle"))
    assert [sample.sample_id for sample in three][2] == f"{three[0].sample_id}-2"
    released = make_bundle(
        {"hub:openai/mrcr/4needle.parquet": write_parquet(tmp_path / "4.parquet", [fixed, row()], COLUMNS)}
    )
    assert [task.name for task in MRCR.tasks(released)] == ["2needle", "4needle"]
    assert [sample.sample_id for sample in MRCR.samples(released, "4needle")] == [
        three[1].sample_id, three[0].sample_id
    ]  # fmt: skip


MISSING = object()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"prompt": "[{]"}, "the field 'prompt' is not JSON"),
        ({"prompt": "7"}, "the field 'prompt' is not a list of messages"),
        ({"prompt": '["write a poem"]'}, "the field 'prompt' is not a list of messages"),
        (
            {"prompt": said(*CONVERSATION[:-1])},
            "must be the user's and the assistant's in turn, and end with the user's",
        ),
        ({"prompt": said(*CONVERSATION[:3], *CONVERSATION[4:])}, "in turn, and end with the user's"),
        ({"prompt": said(("system", "s"), *CONVERSATION)}, "in turn, and end with the user's"),
        ({"prompt": said(("user", "alone"))}, "in turn, and end with the user's"),
        ({"prompt": said(*CONVERSATION[:-1], ("user", None))}, "in turn, and end with the user's"),
        ({"prompt": None}, "the field 'prompt' is NoneType, not str"),
        ({"answer": POEMS[1]}, "the answer does not start with random_string_to_prepend"),
        ({"random_string_to_prepend": ""}, "the answer does not start with random_string_to_prepend"),
        ({"random_string_to_prepend": MISSING}, "the field 'random_string_to_prepend' is missing"),
    ],
)
def test_damaged_rows(changes: Row, what: str, bundled: Callable[..., Bundle]) -> None:
    damaged = {key: value for key, value in row(**changes).items() if value is not MISSING}
    with pytest.raises(BundleError, match=rf"2needle, row 1 is damaged: {what}|damaged: .*{what}"):
        list(MRCR.samples(bundled(damaged), "2needle"))


def test_a_bundle_without_the_data(make_bundle: MakeBundle) -> None:
    empty = make_bundle({"files/other": b""})
    assert MRCR.tasks(empty) == []
    with pytest.raises(NoDataError, match="does not contain openai/mrcr, 8needle") as caught:
        list(MRCR.samples(empty, "8needle"))
    assert caught.value.command == "lbx bundle bundle/mrcr.toml"


def as_in_the_card(response: str, answer: str, random_string_to_prepend: str) -> float:
    """The card's rule in other words: the prefix must begin the response, then difflib compares what follows both."""
    if response[: len(random_string_to_prepend)] != random_string_to_prepend:
        return 0
    parts = [text[len(random_string_to_prepend) :] for text in (response, answer)]
    return difflib.SequenceMatcher(None, *parts).ratio()


@pytest.mark.parametrize(
    ("output", "ratio", "has_prefix"),
    [
        (PREFIX + POEMS[1], 1.0, 1.0),
        (PREFIX, 0.0, 1.0),
        (POEMS[1], 0.0, 0.0),
        (f" {PREFIX}{POEMS[1]}", 0.0, 0.0),
        (f"{PREFIX} {POEMS[1]}", 2 * 18 / 37, 1.0),
        (f"{PREFIX}{POEMS[1].strip()}", 2 * 17 / 35, 1.0),
        ("", 0.0, 0.0),
    ],
)
def test_scores(output: str, ratio: float, has_prefix: float, bundled: Callable[..., Bundle]) -> None:
    scores = MRCR.score(only_sample(bundled(row())), output)
    assert [(score.metric, score.score) for score in scores] == [
        ("ratio", pytest.approx(ratio)),
        ("prefix", has_prefix),
    ]


def test_ratios_are_difflibs() -> None:
    """Texts of more than 200 characters, too, where difflib leaves out popular ones; both orders of the texts."""
    chance = random.Random(7)
    for _ in range(300):
        text = "".join(chance.choice("abcd efgh\nü") for _ in range(chance.choice((0, 5, 199, 200, 201, 900))))
        parts = list(text)
        for _ in range(chance.randrange(40)):
            at = chance.randrange(len(parts) + 1)
            parts[at : at + chance.randrange(4)] = chance.choice(("", "x", "yz", text[:50]))
        response, answer = PREFIX + "".join(parts), PREFIX + text
        assert grade(response, answer, PREFIX) == as_in_the_card(response, answer, PREFIX)
        assert grade(answer, response, PREFIX) == as_in_the_card(answer, response, PREFIX)


def scored(length: int, ratio: float) -> ScoredSample:
    sample = Sample("mrcr", "2needle", f"{length}", "", "", (), length=length, length_unit="characters")
    return ScoredSample(sample, {"ratio": ratio, "prefix": 1.0})


def test_numbers_by_needles_and_length() -> None:
    assert list(LENGTHS) == [
        "0-40k", "40-80k", "80-160k", "160-320k", "320-640k", "640-1280k", "1280-2560k", "2560k+"
    ]  # fmt: skip
    rows = [scored(39_999, 1.0), scored(40_000, 0.5), scored(41_000, 0.25), scored(9_000_000, 0.0)]
    numbers = [(score.metric, score.n, score.official) for score in MRCR.aggregate("2needle", rows)]
    assert numbers == [
        ("ratio", 4, 43.8), ("ratio/0-40k", 1, 100.0), ("ratio/40-80k", 2, 37.5), ("ratio/2560k+", 1, 0.0),
        ("prefix", 4, None),
    ]  # fmt: skip
    assert MRCR.headline("2needle", rows) == MRCR.aggregate("2needle", rows)[0]
    assert MRCR.aggregate("2needle", []) == [] == MRCR.groups({})
    groups = MRCR.groups({"2needle": rows, "8needle": rows[:1]})
    assert [(group.grouping, group.name, group.n, group.score, group.official) for group in groups] == [
        ("overall", "all", 5, 0.71875, None), ("characters", "0-40k", 2, 1.0, None),
        ("characters", "40-80k", 2, 0.375, None), ("characters", "2560k+", 1, 0.0, None),
    ]  # fmt: skip
    (overall,) = MRCR.groups(dict.fromkeys(TASKS, rows), averages_only=True)
    assert (overall.grouping, overall.official) == ("overall", 43.8)


CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"


def test_a_conversation_is_never_cut(bundled: Callable[..., Bundle]) -> None:
    bundle = bundled(row())
    sample = only_sample(bundle)
    prompt = MRCR.prompt(bundle, sample)
    messages = (prompt.text, *prompt.turns)
    text = "".join(f"<{role}>{said}</>" for role, said in zip(("user", "assistant") * 4, messages, strict=False))
    text += "<assistant>"
    # The limit counts BOS twice.
    window = len(text.encode()) + 2 + prompt.max_new_tokens

    def read(window: int) -> ReadPrompt:
        prompter = Prompter(ByteTokenizer(), context_window=window, template=ChatTemplate(CHAT))
        return prompter.read(sample.key, prompt, Sampling())

    whole = sum(len(said.encode()) for said in messages) + 1
    assert read(window).text == text
    assert read(window).request.original_tokens == whole, "all messages count"
    for missing in (1, 500):
        with pytest.raises(PromptError, match=f"has {whole} tokens, more than the {whole - missing} that fit"):
            read(window - missing)


def test_from_bundle_to_board(tmp_path: Path) -> None:
    """The command line, on parquet files in a bundle that it makes and a model with scripted answers."""
    lbx, data = Lbx(), tmp_path / "data"
    long = [("user", "x" * 50_000), *CONVERSATION[1:]]
    rows = {"2needle": [row(), row(*long)], "4needle": [row()], "8needle": [row()]}
    for task, some in rows.items():
        write_parquet(data / task / f"{task}_0.parquet", some, COLUMNS)
    recipe = 'name = "r"\n[[source]]\nkind = "path"\npath = "data"\nrepo = "openai/mrcr"\ntype = "dataset"\n'
    (tmp_path / "r.toml").write_text(recipe)
    bundle = lbx.unpacked(tmp_path / "r.toml", tmp_path)
    samples = [sample for task in TASKS for sample in MRCR.samples(Bundle(bundle), task)]
    right = {str(sample.key): sample.references[0] for sample in samples if sample.task != "8needle"}
    (tmp_path / "answers.jsonl").write_text(json.dumps({"*": "I cannot.", **right}))
    card = 'name = "m"\nbackend = "scripted"\ncontext_window = 100000\n[weights]\npath = "answers.jsonl"\n'
    (tmp_path / "m.toml").write_text(card)
    tasks = lbx.ok("tasks", "--bundle", bundle).stdout
    assert all(f"mrcr/{task}" in tasks for task in TASKS)
    results = tmp_path / "r.duckdb"
    lbx.ok("run", "--bundle", bundle, "--model", tmp_path / "m.toml", "--tasks", "mrcr", "-o", results)
    board = json.loads(lbx.ok("report", results, "board_mrcr", "--format", "json", "--no-interval").stdout)
    cells = {line["needles"]: (line["average"], line["0-40k"], line["40-80k"], line["2560k+"]) for line in board}
    assert cells == {
        "all": (66.7, 66.7, 100.0, None),
        "2needle": (100.0, 100.0, 100.0, None),
        "4needle": (100.0, 100.0, None, None),
        "8needle": (0.0, 0.0, None, None),
    }
    for report in ("paper", "task_scores", "leaderboard", "effective_context"):
        assert "mrcr" in lbx.ok("report", results, report).stdout.casefold()
