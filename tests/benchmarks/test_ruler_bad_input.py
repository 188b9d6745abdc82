"""RULER with lengths, files and tokenizers that its samples cannot be made of: refused in seconds, with the reason."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.base.records import Sample
from lbx.benchmarks.ruler import generator
from lbx.benchmarks.ruler.benchmark import Ruler
from lbx.benchmarks.ruler.samples import SampleSet
from lbx.benchmarks.ruler.tasks import NEEDLES, TASKS, RulerSettings, constants_key
from tests import made_ruler as made
from tests import profiles
from tests.made_ruler import QUESTIONS, SCRIPTS, MakeBundle, ruler_files

TIMEOUT_S = 60
LENGTHS = {"vt": 900, "qa_1": 500, "qa_2": 400}
"""Lengths in words with room for samples of the made-up texts; 800 for other tasks."""


@pytest.fixture(autouse=True)
def timeout() -> Iterator[None]:
    """A generator that does not end fails the test."""

    def stop(*_: object) -> None:
        raise TimeoutError("the generator does not end")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(TIMEOUT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def no_kept_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(generator, "_LOGS", {})


def count_words(text: str) -> int:
    return len(text.split())


def generate(
    bundle: Bundle, task: str, length: int = 0, count: Callable[[str], int] = count_words, n: int = 3
) -> list[Sample]:
    samples = SampleSet(bundle, RulerSettings(samples=n), "words", count)
    return [*samples.samples("ruler", f"{task}_{length or LENGTHS.get(task, 800)}")]


@pytest.mark.parametrize("task", TASKS)
def test_every_task_can_be_made(make_bundle: MakeBundle, task: str) -> None:
    assert len(generate(make_bundle(ruler_files()), task)) == 3


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("length", [1, 31, 129])
def test_a_length_below_the_template_is_refused(make_bundle: MakeBundle, task: str, length: int) -> None:
    with pytest.raises(UsageError, match=f"ruler/{task}_{length} cannot be made") as refused:
        generate(make_bundle(ruler_files()), task, length)
    assert refused.value.fix == "Choose a larger length, or leave the task out."


@pytest.mark.parametrize("task", TASKS)
def test_no_room_is_left_by_the_chat_template(make_bundle: MakeBundle, task: str) -> None:
    bundle = make_bundle(ruler_files())
    samples = SampleSet(bundle, RulerSettings(samples=1), "words", count_words, "card", wrapping_tokens=5000)
    with pytest.raises(UsageError, match="cannot be made"):
        next(samples.samples("ruler", f"{task}_4096"))


def test_the_example_of_vt_has_the_same_room_at_every_length(make_bundle: MakeBundle) -> None:
    with pytest.raises(UsageError, match="the length leaves 500") as refused:
        generate(make_bundle(ruler_files()), "vt", 60_000, lambda text: 100 * count_words(text))
    assert refused.value.fix == "Leave the task out: at every length its example must fit into 500 tokens."


def test_qa_2_of_2048_tokens(ruler_bundle: Callable[[], Bundle], ruler_tokenizer: Callable[[str], Path]) -> None:
    """The authors' script tries for ever: ten documents of a question do not fit."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(ruler_tokenizer("qwen3") / "tokenizer.json"))
    with pytest.raises(UsageError, match=r"the smallest sample has 2,\d+ tokens, but the length leaves 2,048\."):
        generate(ruler_bundle(), "qa_2", 2048, lambda text: len(tokenizer.encode(text, add_special_tokens=False)), 20)


@pytest.mark.parametrize("task", ["qa_1", "qa_2"])
def test_more_samples_than_questions(make_bundle: MakeBundle, task: str) -> None:
    bundle = make_bundle(ruler_files())
    assert len(generate(bundle, task, n=QUESTIONS)) == QUESTIONS
    with pytest.raises(UsageError, match=f"has {QUESTIONS} questions and cannot make more samples"):
        generate(bundle, task, n=QUESTIONS + 1)


COUNTERS: dict[str, Callable[[str], int]] = {
    "none": lambda text: 0,
    "constant": lambda text: 300,
    "bytes": lambda text: len(text.encode()),
    "pairs": lambda text: len(text) // 2,
    "noise": lambda text: count_words(text) + crc32(text.encode()) % 100,
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("counter", COUNTERS)
def test_samples_follow_the_counts_of_any_tokenizer(make_bundle: MakeBundle, task: str, counter: str) -> None:
    bundle, count = make_bundle(ruler_files()), COUNTERS[counter]
    _, _, budget = made.TEMPLATES[constants_key(task)]
    for length in (500, 1000, 4096, 8192):
        try:
            samples = generate(bundle, task, length, count)
        except UsageError:
            assert counter in ("none", "constant") or length <= 4096
            continue
        assert counter != "none"
        lengths = [count(sample.context + str(sample.meta["answer_prefix"])) + budget for sample in samples]
        assert [sample.length for sample in samples] == lengths
        assert max(lengths) <= length
        if task in NEEDLES:
            assert all(output in sample.context for sample in samples for output in sample.references)
            for sample in samples:
                at = sample.context.index(sample.references[0]) / len(sample.context)
                assert sample.meta.get("evidence_depth") == (round(at, 1) if len(sample.references) == 1 else None)


@pytest.mark.parametrize("task", TASKS)
def test_any_length_is_filled_or_refused(make_bundle: MakeBundle, task: str) -> None:
    bundle = make_bundle(ruler_files())

    @settings(max_examples=profiles.examples(10))
    @given(st.integers(1, 3000))
    def check(length: int) -> None:
        try:
            samples = generate(bundle, task, length, n=2)
        except UsageError as exc:
            assert "cannot be made" in exc.cause
        else:
            assert all(0 < (sample.length or 0) <= length for sample in samples)

    check()


def without(place: str) -> dict[str, bytes | Path]:
    return {name: content for name, content in ruler_files().items() if name != place}


def paragraph(**changes: object) -> bytes:
    """Return a changed first paragraph of SQuAD and other ones."""
    content = made.squad()
    content["data"][0]["paragraphs"][0] |= changes
    return json.dumps(content).encode()


def question(**changes: object) -> bytes:
    """Return a changed first question of SQuAD and other ones."""
    return paragraph(qas=[made.squad()["data"][0]["paragraphs"][0]["qas"][0] | changes])


def hotpotqa(**changes: object) -> bytes:
    """Return a changed first question and other ones."""
    rows = made.hotpotqa()
    return json.dumps([rows[0] | changes, *rows[1:]]).encode()


def niah(**changes: object) -> bytes:
    return made.constants(niah=changes)


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:affcd6d4\nsize 8564991\n"
NIAH_SCRIPT, QA_SCRIPT, TEMPLATES = (f"{SCRIPTS}/{name}.py" for name in ("synthetic/niah", "synthetic/qa", "template"))
NOUNS = "files/wonderwords/nounlist.txt"
DAMAGED = {
    "LFS pointer": ("cwe", made.ENGLISH_WORDS, LFS_POINTER, "it is a Git LFS pointer"),
    "list of words": ("cwe", made.ENGLISH_WORDS, b'["a"]', "it is not an object of words"),
    "deep words": ("cwe", made.ENGLISH_WORDS, b"[" * 100_000, "cannot parse its JSON"),
    "bytes": ("cwe", made.ENGLISH_WORDS, b"\xff", "not UTF-8"),
    "no nouns": ("cwe", NOUNS, b"", "it has no words"),
    "binary nouns": ("niah_single_1", NOUNS, b"\xff\x00", "not UTF-8"),
    "no essays": ("niah_single_2", made.ESSAYS, b'{"text": "\\n "}', "it has no text"),
    "truncated essays": ("niah_single_2", made.ESSAYS, b'{"text": "a b', "Unterminated string"),
    "empty zip": ("niah_single_2", made.PUNKT, b"", "not a zip file"),
    "truncated zip": ("niah_single_2", made.PUNKT, made.punkt()[:-9], "not a zip file"),
    "changed zip": ("niah_single_2", made.PUNKT, made.punkt().replace(b"##number##", b"##numbxr##", 1), "CRC"),
    "no member": ("niah_single_2", made.PUNKT, made.punkt({"x.txt": [""]}), "collocations.tab"),
    "short line": ("niah_single_2", made.PUNKT, made.punkt({**made.MEMBERS, "ortho_context.tab": ["a"]}), "a line"),
    "no number": ("niah_single_2", made.PUNKT, made.punkt({**made.MEMBERS, "ortho_context.tab": ["a\tb"]}), "a line"),
    "no data": ("qa_1", made.SQUAD, b"{}", "KeyError: 'data'"),
    "truncated questions": ("qa_1", made.SQUAD, json.dumps(made.squad()).encode()[:300], "Unterminated string"),
    "no questions": ("qa_1", made.SQUAD, b'{"data": []}', "it has no questions"),
    "number as question": ("qa_1", made.SQUAD, question(question=5), "int, not a text"),
    "number as answer": ("qa_1", made.SQUAD, question(answers=[{"text": 5}]), "int, not a text"),
    "no answers": ("qa_1", made.SQUAD, question(answers=[]), "a question without answers"),
    "number as paragraph": ("qa_1", made.SQUAD, paragraph(context=5), "int, not a text"),
    "no array": ("qa_2", made.HOTPOTQA, b"{}", "it must start with"),
    "no hotpot questions": ("qa_2", made.HOTPOTQA, b"[]", "it has no questions"),
    "null as question": ("qa_2", made.HOTPOTQA, hotpotqa(question=None), "question"),
    "list as answer": ("qa_2", made.HOTPOTQA, hotpotqa(answer=["a"]), "answer"),
    "text for documents": ("qa_2", made.HOTPOTQA, hotpotqa(context="abc"), "str, not list"),
    "parquet form": ("qa_2", made.HOTPOTQA, hotpotqa(context={"title": ["a"], "sentences": [["b"]]}), "dict, not list"),
    "three parts": ("qa_2", made.HOTPOTQA, hotpotqa(context=[["a", ["b"], 1]]), "it is not a file of hotpotqa"),
    "number as sentence": ("qa_2", made.HOTPOTQA, hotpotqa(context=[["a", [1]]]), "it is not a file of hotpotqa"),
    "number as title": ("qa_2", made.HOTPOTQA, hotpotqa(context=[[1, ["a"]]]), "int, not a text"),
    "no tasks": ("niah_single_1", made.CONSTANTS, b"TASKS = {}", "no usable entry 'niah'"),
    "unknown field": ("niah_single_1", made.CONSTANTS, niah(template="{context} {other}"), r"field \{other\}"),
    "field of the prefix": ("niah_single_1", made.CONSTANTS, niah(answer_prefix="{other}"), r"field \{other\}"),
    "attribute": ("niah_single_1", made.CONSTANTS, niah(template="{context.__class__}"), "field"),
    "width": ("niah_single_1", made.CONSTANTS, niah(template="{context:>9999999999}"), "field"),
    "nested width": ("niah_single_1", made.CONSTANTS, niah(template="{context:{query}}"), "field"),
    "number as field": ("niah_single_1", made.CONSTANTS, niah(template="{context} {}"), "field"),
    "open brace": ("niah_single_1", made.CONSTANTS, niah(template="{context"), "unpaired braces"),
    "no budget": ("niah_single_1", made.CONSTANTS, niah(tokens_to_generate=0), "no usable entry 'niah'"),
    "fraction as budget": ("niah_single_1", made.CONSTANTS, niah(tokens_to_generate=1.5), "no usable entry 'niah'"),
    "no needle": ("niah_single_1", NIAH_SCRIPT, b"haystack = 'a'", "assigns no text to needle"),
    "field of the needle": ("niah_single_1", NIAH_SCRIPT, b"needle = '{a}'; haystack = 'b'", "field"),
    "no Python": ("vt", NIAH_SCRIPT, b"(", "not valid Python"),
    "no haystack": ("vt", NIAH_SCRIPT, b"", "assigns no text to haystack"),
    "no heading": ("qa_1", QA_SCRIPT, b"", "assigns no text to DOCUMENT_PROMPT"),
    "field of the heading": ("qa_2", QA_SCRIPT, b"DOCUMENT_PROMPT = '{x}'", "field"),
    "no templates": ("fwe", TEMPLATES, b"Templates = {}", "no entry 'base'"),
    "field of the base": ("fwe", TEMPLATES, b"Templates = {'base': '{task_template}{x}'}", "field"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_named(make_bundle: MakeBundle, case: str) -> None:
    task, place, content, message = DAMAGED[case]
    bundle = make_bundle({**ruler_files(), place: content})
    with pytest.raises(BundleError, match=message) as refused:
        generate(bundle, task)
    assert str(bundle.root / "data" / place) in refused.value.cause


MISSING = {
    made.CONSTANTS: {*TASKS},
    NIAH_SCRIPT: {*NEEDLES, "vt"},
    QA_SCRIPT: {"qa_1", "qa_2"},
    made.SQUAD: {"qa_1"},
    made.HOTPOTQA: {"qa_2"},
    made.ESSAYS: {task for task, rules in NEEDLES.items() if rules.haystack == "essay"},
    made.PUNKT: {task for task, rules in NEEDLES.items() if rules.haystack == "essay"},
    NOUNS: {*NEEDLES, "cwe"} - {"niah_multikey_3"},
    "files/wonderwords/verblist.txt": {"cwe"},
    made.ENGLISH_WORDS: set(),
}
"""Tasks that a missing part leaves out. The english words are read by long samples of cwe only."""


@pytest.mark.parametrize("place", MISSING)
def test_tasks_without_a_part_are_left_out(make_bundle: MakeBundle, place: str) -> None:
    bundle = make_bundle(without(place))
    listed = Ruler().tasks(bundle, [f"{task}_4096" for task in TASKS])
    left_out = {*TASKS} - {task.name.removesuffix("_4096") for task in listed}
    assert left_out == MISSING[place]
    for task in MISSING[place] or {"cwe"}:
        with pytest.raises(BundleError, match="does not contain"):
            generate(bundle, task)


@pytest.mark.parametrize(
    "text", ["samples =", "sample = 3", "samples = 0", 'samples = "3"', "samples = true", "samples = 1_000_000",
             "seed = -1", "seed = 1.5", "prepare_for_ns = 1", "[samples]\na = 1", "\0"],
)  # fmt: skip
def test_wrong_settings_are_refused(make_bundle: MakeBundle, text: str) -> None:
    bundle = make_bundle({**ruler_files(), made.SETTINGS: text.encode()})
    with pytest.raises(BundleError, match=r"ruler/ruler\.toml"):
        Ruler().tasks(bundle, ["vt_4096"])


def test_short_essays_repeat(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({**ruler_files(), made.ESSAYS: b'{"text": "One fish."}'})
    (sample,) = generate(bundle, "niah_single_2", n=1)
    assert sample.context.count("One fish.") > 200


def test_too_few_words(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({**ruler_files(), made.ENGLISH_WORDS: b'{"0": "a"}'})
    with pytest.raises(UsageError, match=r"needs 4,096 distinct words, but its word list has 1\."):
        generate(bundle, "cwe")
