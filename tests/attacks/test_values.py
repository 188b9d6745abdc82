"""Files of every form that people hand on, whole but for one value: any of it may be of any type, size and sense.

Each is a small good file, which its command takes. Then one value of it, or one key, becomes something else.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests import profiles
from tests.attacks.jail import Ended, Jail
from tests.attacks.results_parts import results_file
from tests.profiles import files

Command = tuple[object, ...]

PHASES = (Phase.explicit, Phase.generate)
"""An example is small as it is; to shrink one would start hundreds of processes."""
STEERING = "\x1b]0;owned\x07\x9b31m\u202e"
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 7, 2**31 - 1, 2**31, 2**63, 2**70, -(2**70), 10**400, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "0", "x", "\0", "\ud800", STEERING, "a\nb",
    "../" * 9 + "etc/passwd", "/dev/zero", "~nobody/x", "file:///etc",
    "x" * 300, "x" * 100_000, "1" * 5000,
    "9999-12-31T23:59:59.999999+00:00", "0001-01-01T00:00:00+14:00", "'; rm -rf /",
    "{" * 50, "(" * 5000, "+".join("1" * 2000),
    "%s%n", "{0.__class__}", "$(touch PWNED)", "=1+1", "*", "[", "(a+)+$",
    [], {}, [[]], [None], [1, "x", {}], {"": {}}, {"a": [1]}, [0] * 100_000, {str(n): n for n in range(3000)},
)  # fmt: skip
DEEP = "[" * 5000 + "]" * 5000
DIGITS = "9" * 5000


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def toml(value: Any, *, top: bool = True) -> str:
    """TOML of tables, lists and values; a value that it cannot spell is left out."""
    if top:
        return "".join(f"{key} = {toml(item, top=False)}\n" for key, item in _spelled(value).items())
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item, top=False)}" for key, item in _spelled(value).items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(item, top=False) for item in value if item is not None) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value).replace("\\ud800", "\\u0000")


def _spelled(value: Mapping[str, Any]) -> dict[str, Any]:
    return {json.dumps(key).replace("\\ud800", ""): item for key, item in value.items() if item is not None}


JUDGED = {
    "g1_winner": "a", "g2_winner": "b", "judge": "gpt-4", "g1_user_prompt": "Q\nx\nA\nfoo\nB\nbar\nE",
    "g1_judgment": "[[A]]", "g2_user_prompt": "Q\nx\nA\nbar\nB\nfoo\nE", "g2_judgment": "[[A]]", "tstamp": 1.0,
}  # fmt: skip
RATED = {
    "ratings": [
        {"set_id": "s", "item": 0, "rater": "ann", "run_id": "r1", "iteration": 0, "score": 3.0, "revision": 0,
         "verdict": None, "comment": "c", "shown_at": 0, "seconds": 1.5, "created_at": "2026-01-01T00:00:00+00:00"}
    ]
}  # fmt: skip
SET = {
    "set": {"set_id": "s", "kind": "score", "question_source": "open", "runs": ["r1"],
            "scale_low": 1.0, "scale_high": 5.0, "seed": 0, "raters_per_item": 1,
            "created_at": "2026-01-01T00:00:00+00:00"},
    "items": [{"set_id": "s", "item": 0, "benchmark": "longbench", "task": "qasper", "sample_id": "0000",
               "position": 0, "meta": {}}],
}  # fmt: skip
TO = ("-o", "out/new.duckdb")

FORMS: dict[str, tuple[str, Any, Callable[[Any], str], Command]] = {
    "LongBench's answers": (
        "qasper.jsonl", [{"pred": "a", "answers": ["a", "b"], "all_classes": None, "length": 5}], lines,
        ("import", "longbench", "qasper.jsonl", "--model-name", "m", *TO),
    ),
    "LongBench v2's answers": (
        "m.jsonl",
        [{"_id": "1", "domain": "d", "sub_domain": "s", "difficulty": "easy", "length": "short", "question": "q",
          "choice_A": "a", "choice_B": "b", "choice_C": "c", "choice_D": "d", "answer": "A", "context": "c",
          "response": "The correct answer is (A)", "pred": "A", "judge": True}], lines,
        ("import", "longbench_v2", "m.jsonl", "--model-name", "m", *TO),
    ),
    "LongBench Pro's answers": (
        "m.jsonl",
        [{"id": "1", "context": "c", "language": "English", "token_length": "8k",
          "primary_task": "T1. Retrieval & Ranking", "secondary_task": "T1.1 Global Cohesive Retrieval",
          "contextual_requirement": "Full", "difficulty": "Easy",
          "question_nonthinking": "q", "question_thinking": "q", "answer": ["one"], "prediction": "[Answer]\none",
          "thinking": "", "bon_idx": 1}], lines,
        ("import", "longbench_pro", "m.jsonl", "--model-name", "m", *TO),
    ),
    "LV-Eval's answers": (
        "hotpotwikiqa_mixup_16k.jsonl",
        [{"pred": "a", "answers": ["a"], "gold_ans": "a b", "input": "q", "length": 5}], lines,
        ("import", "lveval", "hotpotwikiqa_mixup_16k.jsonl", "--model-name", "m", *TO),
    ),
    "L-Eval's answers": (
        "quality.pred.jsonl", [{"query": "q", "gt": "A", "m_pred": "A", "evaluation": "exam"}], lines,
        ("import", "leval", "quality.pred.jsonl", "--model-name", "m", *TO),
    ),
    "answers for a judge": (
        "m.pred.jsonl", [{"query": "q", "gt": "g", "a_pred": "x", "evaluation": "LLM"}], lines,
        ("import", "leval", "m.pred.jsonl", "--model-name", "m", *TO),
    ),
    "a judge's words": ("m.pred.judge.jsonl", [JUDGED], lines, ("import", "leval_judge", "m.pred.judge.jsonl", *TO)),
    "a journal of ratings": (
        "j.jsonl", [SET, RATED], lines, ("rate", "r.duckdb", "--collect", "--journal", "j.jsonl"),
    ),
    "a dataset": (
        "data.jsonl", [{"input": "text", "instructions": ["q", "r"], "outputs": ["a", "b"], "source": "s"}], lines,
        ("annotate", "data.jsonl", "--write", "-o", "out/data.jsonl"),
    ),
    "a run": (
        "run.json",
        {"lbx_run": 1, "bundle": "bundle", "model": "oracle.jsonl", "tasks": ["needle/single_en"], "name": "n",
         "limit": 2, "metadata": ["a=b"], "seed": 1, "sampling": "official", "max_new_tokens": 8},
        json.dumps, ("run", "--spec", "run.json", "--no-plan", *TO),
    ),
    "shards": (
        "shards.json",
        {"lbx_shards": 1, "bundle_digest": "?", "runs": ["n"], "iterations": {"needle/single_en": 1}, "unit": "tokens",
         "basis": "x", "shards": [{"cost": 1.5, "samples": {"needle/single_en": [[0, "len0064-depth000-00", 396.0]]}}]},
        json.dumps,
        ("run", "-b", "bundle", "-m", "oracle.jsonl", "-t", "needle/single_en", "--name", "n", "--no-plan",
         "--shard-plan", "shards.json", "--shard", "0", *TO),
    ),
    "a rubric": (
        "rubric.toml",
        {"name": "stars", "kind": "score", "user": "{question} {answer}", "rating": "[[{rating}]]", "low": 1, "high": 5,
         "max_new_tokens": 32},
        toml,
        ("judge", "r.duckdb", "-b", "bundle", "-j", "judge.jsonl", "--run", "r1", "--rubric", "rubric.toml",
         "--questions", "open", "--no-plan", "-o", "out/j.duckdb"),
    ),
    "a table of answers": (
        "model.jsonl",
        [{"key": "needle/single_en/len0064-depth000-00", "text": "x", "delay_s": 0}, {"key": "*", "text": "z"}], lines,
        ("run", "-b", "bundle", "-m", "model.jsonl", "-t", "needle/single_en", "-n", "2", "--no-plan", *TO),
    ),
    "a model's card": (
        "card.toml",
        {"name": "c", "backend": "scripted", "context_window": 4096, "weights": {"path": "oracle.jsonl"},
         "chat": {"enabled": True, "template": "{{ messages[0].content }}", "kwargs": {"enable_thinking": True},
                  "reasoning": ["<t>", "</t>"]},
         "sampling": {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.0, "seed": 1},
         "options": {}},
        toml,
        ("run", "-b", "bundle", "-m", "card.toml", "-t", "needle/single_en", "-n", "2", "--no-plan", *TO),
    ),
    "a recipe": (
        "recipe.toml",
        {"name": "b", "source": [{"kind": "path", "path": "needle", "to": "needle", "licence": "MIT"}]},
        toml, ("bundle", "recipe.toml", "-o", "out", "--dry-run"),
    ),
    "published figures": (
        "figures.csv", [["model", "benchmark", "qasper", "hotpotqa"], ["m", "longbench", "41.5", "7"]],
        lambda rows: "".join(",".join(map(str, row)) + "\n" if isinstance(row, list) else f"{row}\n" for row in rows),
        ("report", "r.duckdb", "reference", "--reference", "figures.csv"),
    ),
}  # fmt: skip


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a document, itself left out."""
    if way:
        yield way
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*way, key))


def changed(document: Any, way: tuple[Any, ...], value: Any, how: str) -> Any:
    document = copy.deepcopy(document)
    holder = document
    for key in way[:-1]:
        holder = holder[key]
    if how == "gone":
        del holder[way[-1]]
    elif how == "named" and isinstance(holder, dict):
        holder[str(value)] = holder.pop(way[-1])
    else:
        holder[way[-1]] = value
    return document


@pytest.fixture(scope="module")
def places_to_be(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A folder with what commands need, new each time."""
    model = tmp_path_factory.mktemp("model")
    results_file(model / "r.duckdb")
    (model / "judge.jsonl").write_text('{"key": "*", "text": "[[3]]"}\n')
    shutil.copy(small / "oracle.jsonl", model)

    def make() -> Path:
        folder = tmp_path_factory.mktemp("case") / "place"
        shutil.copytree(model, folder)
        (folder / "out").mkdir()
        for name in ("bundle", "needle"):
            (folder / name).symlink_to(small / name)
        return folder

    return make


def given_to(jail: Jail, folder: Path, form: str, text: str) -> Ended:
    name, _, _, command = FORMS[form]
    (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        return jail(folder, *command)
    finally:
        shutil.rmtree(folder)


OURS = ("out/", "r.duckdb")
KEPT = (".cache", "out/.b.partial", "out/new.duckdb.log")


def kept(form: str) -> tuple[str, ...]:
    """What a refusal may leave: a run that ends half-way keeps what it has."""
    return (*KEPT, "out/new.duckdb") if FORMS[form][3][0] == "run" else KEPT


@pytest.mark.parametrize("form", FORMS)
def test_the_whole_file_is_taken(form: str, jail: Jail, places_to_be: Callable[[], Path]) -> None:
    """Else nothing would be shown by what is refused."""
    _, document, spell, _ = FORMS[form]
    ended = given_to(jail, places_to_be(), form, spell(_right(document, places_to_be)))
    assert not ended.fault(may_change=OURS, may_leave=kept(form)), ended
    assert ended.code in (0, 3), ended


@cache
def _digest(bundle: Path) -> str:
    from lbx.base.bundle_folder import Bundle

    return Bundle(bundle).digest


def _right(document: Any, make: Callable[[], Path]) -> Any:
    if isinstance(document, dict) and "bundle_digest" in document:
        folder = make()
        return {**document, "bundle_digest": _digest((folder / "bundle").resolve())}
    return document


@pytest.mark.parametrize("form", FORMS)
def test_one_value_is_another(form: str, jail: Jail, places_to_be: Callable[[], Path]) -> None:
    _, document, spell, _ = FORMS[form]
    document = _right(document, places_to_be)
    ways = list(places(document))

    @settings(
        max_examples=files(300), deadline=None, suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    @given(
        st.sampled_from(ways), st.sampled_from(VALUES), st.sampled_from(("other", "other", "other", "gone", "named"))
    )
    def attack(way: tuple[Any, ...], value: Any, what: str) -> None:
        text = spell(changed(document, way, value, what))
        ended = given_to(jail, places_to_be(), form, text)
        assert not ended.fault(may_change=OURS, may_leave=kept(form)), (ended, text[:2000])

    attack()


@pytest.mark.parametrize("form", profiles.every(3, [form for form in FORMS if form != "published figures"]))
def test_one_value_is_deep_or_long(form: str, jail: Jail, places_to_be: Callable[[], Path]) -> None:
    _, document, spell, _ = FORMS[form]
    document = _right(document, places_to_be)
    for way in list(places(document)):
        text = spell(changed(document, way, "@@", "other"))
        for value in (DEEP, DIGITS):
            ended = given_to(jail, places_to_be(), form, text.replace('"@@"', value))
            assert not ended.fault(may_change=OURS, may_leave=kept(form)), (way, value[:9], ended)


ONCE_THROUGH = {
    "a place that no column holds": ("shards", ("shards", 0, "samples", "needle/single_en", 0, 0), 2**63),
    "a wait of less than nothing": ("a table of answers", (0, "delay_s"), -1),
    "a wait that is no number": ("a table of answers", (0, "delay_s"), float("nan")),
    "a number that no float holds": ("a model's card", ("sampling", "temperature"), 10**400),
}


@pytest.mark.parametrize("case", ONCE_THROUGH)
def test_what_got_through_once(case: str, jail: Jail, places_to_be: Callable[[], Path]) -> None:
    form, way, value = ONCE_THROUGH[case]
    text = FORMS[form][2](changed(_right(FORMS[form][1], places_to_be), way, value, "other"))
    ended = given_to(jail, places_to_be(), form, text)
    assert ended.refused and not ended.fault(may_leave=KEPT), ended
