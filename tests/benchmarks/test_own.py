"""A benchmark of one's own: what its files say, and what is said of every mistake in them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.base.records import Sample, ScoredSample, Truncation, canonical_json, sha256_text
from lbx.benchmarks.base import data_files
from lbx.benchmarks.metrics.registry import METRICS, ScoringTarget
from lbx.benchmarks.own import rows as own_rows
from lbx.benchmarks.own.benchmark import CustomBenchmark, custom_names, read_for_bundle
from lbx.benchmarks.own.definition import FILE, READERS, read_definition
from lbx.benchmarks.registry import BENCHMARKS, all_tasks, reserved_names
from lbx.opinions.judge_run import read_rubric
from lbx.options.task_selection import select_tasks

EXAMPLE = Path(__file__).parents[2] / "bundle" / "examples" / "handbook"
MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]

TOML = """
name = "mine"
[[task]]
name = "one"
data = "one.jsonl"
prompt = "{document}|{question}|{{x}}"
metrics = ["f1"]
max_new_tokens = 8
"""
ROW = {"id": "a", "document": "A text.", "question": "What?", "references": ["It."]}


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def written(folder: Path, toml: str | bytes = TOML, data: bytes = lines(ROW)) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "benchmark.toml").write_bytes(toml if isinstance(toml, bytes) else toml.encode())
    (folder / "one.jsonl").write_bytes(data)
    return folder / "benchmark.toml"


@pytest.fixture
def handbook(make_bundle: MakeBundle) -> Bundle:
    return make_bundle({f"files/benchmarks/handbook/{path.name}": path.read_bytes() for path in EXAMPLE.iterdir()})


def test_the_example_is_listed_chosen_and_read(handbook: Bundle) -> None:
    tasks = ["handbook/facts", "handbook/choices", "handbook/facts_zh"]
    assert [task.full_name for task in all_tasks(handbook)] == tasks
    assert [task.full_name for task in select_tasks(handbook, ["handbook/facts*"])] == [tasks[0], tasks[2]]
    with pytest.raises(UsageError, match="Did you mean handbook/facts"):
        select_tasks(handbook, ["handbook/fact"])
    family = BENCHMARKS["handbook"]
    facts, choices, zh = (list(family.samples(handbook, task.name)) for task in all_tasks(handbook))
    assert [len(facts), len(choices), len(zh)] == [5, 3, 4]
    assert [sample.references for sample in choices] == [("B",), ("A",), ("C",)], "a letter, a text, a place"
    assert (zh[0].language, zh[0].length_unit, zh[0].sample_id) == ("zh", "characters", "tower")
    prompt = family.prompt(handbook, choices[0])
    assert (prompt.before, prompt.document) == ("", choices[0].context), "the document leads: it is read once"
    assert prompt.after.endswith("B. The horn\nC. The blue book\nAnswer with one letter, such as {B}.\nAnswer:")
    assert (prompt.max_new_tokens, prompt.truncation) == (8, Truncation.DOCUMENT_MIDDLE)
    assert family.prompt(handbook, facts[0]).stop == ("\n",)


def test_scores_need_the_sample_alone(handbook: Bundle) -> None:
    family = BENCHMARKS["handbook"]
    rows = {}
    for task in all_tasks(handbook):
        samples = list(family.samples(handbook, task.name))
        rows[task.name] = []
        for sample in samples:
            scores = CustomBenchmark("handbook").score(sample, f"{sample.references[0]}.")
            assert tuple(score.metric for score in scores) == task.metrics
            assert {score.score for score in scores} == {1.0}
            rows[task.name].append(ScoredSample(sample, {score.metric: score.score for score in scores}))
        assert family.score(samples[0], "")[0].score == 0
        assert [number.official for number in family.aggregate(task.name, rows[task.name])] == [100] * len(task.metrics)
    found = [(group.grouping, group.name, group.n, group.official) for group in family.groups(rows)]
    assert found == [("language", "en", 8, 100), ("language", "zh", 4, 100), ("overall", "all", 12, 100)]


SHOTS = TOML.replace("{{x}}", "{examples}") + 'example = "{a}{b}"\n[[task.examples]]\na = "1"\nb = "2"\n'


def test_an_example_takes_choices_as_rows_do(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text(SHOTS.replace("{a}{b}", "{a}\\n{choices}\\n{b}") + 'choices = ["a stone", "a cork"]\n')
    assert read_definition(path).tasks[0].examples == "1\nA. a stone\nB. a cork\n2"


TALK = TOML + 'fields = { turns = "turns" }\n'
TURNS = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "She."}]
PER_ROW = TOML + 'fields = { stop = "stop", max_new_tokens = "max_new_tokens" }\n'
RUBRIC = """[rubric]
name = "ours"
kind = "score"
user = "{answer}"
rating = "[[{rating}]]"
low = 1
high = 5
"""
QUIZZES = TOML.replace('"f1"', '"accuracy"')
COLUMNS = QUIZZES + 'fields = { choices = ["a", "b", "c"] }\n'
QUIZ = {"id": "a", "document": "A text.", "question": "What?", "a": "x", "b": "y", "c": "z"}
HEAD, TASK = TOML.split("[[task]]")
MISTAKES: dict[str, tuple[str | bytes, bytes, str]] = {
    "no such metric": (
        TOML.replace('"f1"', '"f11"'), lines(ROW), r"number 1: there is no metric 'f11'. Did you mean f1"),
    "a missing field": (TOML, lines(*[ROW | {"id": str(n)} for n in range(16)], {"id": "z", "document": "x"}),
                        r"one\.jsonl, line 17: the field 'references' is missing"),
    "a renamed field": (TOML + 'fields = { question = "input" }', lines({"document": "x", "references": "y"}),
                        "the field 'input' is missing"),
    "a blank question": (TOML, lines(ROW | {"question": " "}), "line 1: the field 'question' must be text"),
    "an unknown variable": (TOML.replace("{question}", "{qestion}"), lines(ROW), r"contains {qestion}, but has only"),
    "an attribute": (TOML.replace("{question}", "{question.__class__}"), lines(ROW), r"contains {question.__class__}"),
    "an index": (TOML.replace("{question}", "{question[0]}"), lines(ROW), r"contains {question\[0\]}"),
    "a conversion": (TOML.replace("{question}", "{question!r}"), lines(ROW), "has a conversion"),
    "a place": (TOML.replace("{question}", "{}"), lines(ROW), "the prompt contains {0}"),
    "a lone brace": (TOML.replace("{{x}}", "{x"), lines(ROW), "Write literal braces as {{"),
    "two documents": (TOML.replace("{question}", "{document}"), lines(ROW), "contains {document} twice"),
    "nothing to put in": (TOML.replace("{document}|{question}|", ""), lines(ROW), "every sample would be the same"),
    "an id twice": (TOML, lines(ROW, ROW), r"line 2: the id 'a' is also used at .*line 1"),
    "a hidden sign": (TOML, lines(ROW | {"id": "a\u202eb"}), "line 1: the id 'a.u202eb' must be"),
    "an endless id": (TOML, lines(ROW | {"id": "a" * 300}), "at most 200 characters"),
    "no answer": (TOML, lines(ROW | {"references": []}), "must be a text or a non-empty list"),
    "a number": (TOML, lines(ROW | {"references": [4]}), "must be a text or a non-empty list"),
    "a built-in name": (TOML.replace("mine", "leval"), lines(ROW), "'leval' is reserved: --tasks leval means a"),
    "a built-in selection": (TOML.replace("mine", "longbench_e"), lines(ROW), "is reserved"),
    "all": (TOML.replace("mine", "all"), lines(ROW), "means everything in the bundle"),
    "no name": (TOML.replace("mine", "../mine"), lines(ROW), "is not a valid benchmark name"),
    "a task's name": (TOML.replace('"one"', '"a/b"'), lines(ROW), "is not a valid task name"),
    "a task twice": (TOML + "[[task]]" + TASK, lines(ROW), "an earlier task is also named 'one'"),
    "a file elsewhere": (TOML.replace("one.jsonl", "../one.jsonl"), lines(ROW), "leads out of the folder"),
    "an absolute file": (TOML.replace("one.jsonl", "/etc/passwd"), lines(ROW), "it is absolute"),
    "another file": (TOML.replace("one.jsonl", "one.py"), lines(ROW), r"name such as \*\.jsonl, \*\.json, \*\.csv"),
    "no file": (TOML.replace("one.jsonl", "two.jsonl"), lines(ROW), r"there is no file .*two\.jsonl"),
    "an unknown key": (TOML + 'stopp = ["x"]', lines(ROW), "no setting 'stopp'. Did you mean stop"),
    "a wrong type": (TOML.replace("= 8", '= "8"'), lines(ROW), "max_new_tokens must be a whole number"),
    "a truth for a number": (TOML.replace("= 8", "= true"), lines(ROW), "max_new_tokens must be a whole number"),
    "no room": (TOML.replace("= 8", "= 0"), lines(ROW), "from 1 to"),
    "an empty stop": (TOML + 'stop = [""]', lines(ROW), "would end every answer"),
    "a rule": (TOML + 'truncation = "head"', lines(ROW), "must be one of middle, end, none"),
    "a language": (TOML + 'language = "English"', lines(ROW), "a code such as"),
    "a needed key": (TOML.replace("prompt", "description"), lines(ROW), "no setting 'description'"),
    "no metrics": (TOML.replace('["f1"]', "[]"), lines(ROW), "metrics must list at least one"),
    "no task": (HEAD, lines(ROW), "lacks task"),
    "an empty file": (TOML, b"", r"one\.jsonl: it contains no questions"),
    "not UTF-8": (TOML, b'{"id": "\xff"}', r"line 1 is damaged: it is not UTF-8"),
    "not UTF-8 itself": (TOML.encode() + b"# \xff", lines(ROW), "line 9: it is not UTF-8"),
    "no TOML": (TOML + "]", lines(ROW), "is not valid TOML"),
    "no JSON": (TOML, b"{", "line 1 is damaged"),
    "no object": (TOML, b"[]", "a JSON list instead of an object"),
    "brackets": (TOML, b"[" * 100_000, "cannot parse its JSON"),
    "a gigantic line": (TOML, b" " * (1 << 26) + b"xx", "has more than"),
    "choices": (TOML.replace('"f1"', '"accuracy"'), lines(ROW), "the field 'choices' is missing"),
    "one choice": (TOML, lines(ROW | {"choices": ["a"]}), "a list of 2 to 26"),
    "no choice": (TOML, lines(ROW | {"choices": ["a", "b"], "references": "C"}), r"the choices \(A, B\) or their"),
    "an example's key": (SHOTS.replace('b = "2"', 'c = "2"'), lines(ROW), r"examples\]\] number 1 has no setting 'c'"),
    "an example's type": (SHOTS.replace('"2"', "2"), lines(ROW), "b must be text in quotes"),
    "an example that is none": (TOML.replace("{{x}}", "{examples}") + 'example = "x"\nexamples = [3]', lines(ROW),
                                "must be a table, not 3"),
    "examples that nobody sees": (SHOTS.replace("{examples}", ""), lines(ROW), "does not contain {examples}"),
    "examples that are not there": (TOML.replace("{{x}}", "{examples}"), lines(ROW), "the task has no examples"),
    "examples without a template": (TOML + 'examples = [{ a = "1" }]', lines(ROW), "example and examples must be set"),
    "an example's choices": (
        SHOTS.replace("{a}{b}", "{a}{b}{choices}") + "choices = ['x', 3]", lines(ROW), "must be a list of texts"
    ),
    "an example's braces": (SHOTS.replace("{a}{b}", "{a}{b"), lines(ROW), "cannot fill in the example"),
    "a document without one": (TOML + 'no_context_prompt = "{document}"', lines(ROW), "_prompt contains {doc"),
    "a blind follow_up": (TALK + 'follow_up = "go on"', lines(ROW), "does not contain {question}"),
    "a user's turn last": (TALK, lines(ROW | {"turns": TURNS[:1]}), "line 1: the turns must be a list from"),
    "no turn of a user": (TALK, lines(ROW | {"turns": TURNS[::-1]}), r'turn 1 must be {"role": "u'),
    "a blank turn": (TALK, lines(ROW | {"turns": [TURNS[0], TURNS[1] | {"content": " "}]}), "turn 2 must be"),
    "a turn that says more": (TALK, lines(ROW | {"turns": [TURNS[0], TURNS[1] | {"name": "x"}]}), "turn 2 must be"),
    "a row's budget": (PER_ROW, lines(ROW | {"max_new_tokens": "9"}), "line 1: max_new_tokens must be a whole"),
    "no room in a row": (PER_ROW, lines(ROW | {"max_new_tokens": 0}), "from 1 to"),
    "a row's empty stop": (PER_ROW, lines(ROW | {"stop": [""]}), "line 1: stop must be a text or a list"),
    "lookahead": (TOML + "extract = '(?=x)'", lines(ROW), r"'\(\?=x\)' is not a valid RE2 .* invalid perl operator"),
    "an endless expression": (TOML + f"extract = '{'a' * 1001}'", lines(ROW), "more than 1,000 characters"),
    "a rubric": (TOML.replace("[[task]]", "[rubric]\nname = 'x'\n[[task]]"), lines(ROW), r"\[rubric\]: kind must"),
    "an empty column of choices": (
        COLUMNS, lines(QUIZ | {"b": " ", "references": "C"}), "the choice 'b' is empty but 'c' follows"),
    "a reference beyond the choices": (COLUMNS, lines(QUIZ | {"c": None, "references": 2}), r"the choices \(A, B\)"),
    "a text that is a position": (QUIZZES, lines(ROW | {"choices": ["1", "2", "3", "5"], "references": "3"}),
                                  "'3' means choice C by its text and choice D by its position from 0"),
    "a text that is a letter": (QUIZZES, lines(ROW | {"choices": ["B", "A"], "references": ["B"]}),
                                "'B' means choice A by its text and choice B by its letter"),
    "a text twice": (QUIZZES, lines(ROW | {"choices": ["x", "y", "x"], "references": "x"}),
                     "'x' means choice A by its text and choice C by its text"),
    "a right choice twice": (QUIZZES, lines(ROW | {"choices": ["x", "y", "x"], "references": "A"}),
                             "several choices have the text of the right one: A and C"),
    "no reference to choices": (QUIZZES, lines(ROW | {"choices": ["x", "y"], "references": []}), "must be a text"),
    "a blank choice": (QUIZZES, lines(ROW | {"choices": ["x", ""], "references": "A"}), "choice 2 is blank"),
    "a JSON list as text": (TOML, lines(ROW | {"references": '["a", "b"]'}), r'list inside a text, \["a", "b"\]'),
    "a Python list as text": (TOML, lines(ROW | {"references": "['a', 'b']"}), "Python or JSON list inside a text"),
    "a list in a list": (TOML, lines(ROW | {"references": ['["a", "b"]']}), "Python or JSON list inside a text"),
    "stops as text": (PER_ROW, lines(ROW | {"stop": "['.']"}), "stop is a Python or JSON list inside a text"),
    "half a character": (TOML, lines(ROW).replace(b"It.", b"It \\ud83d."), r"line 1: it contains half of a surrogate"),
    "cues of no metric": (TOML + 'answer_cues = ["So"]', lines(ROW), "answer_cues need the metric accuracy"),
    "a truth": (TOML, lines(ROW | {"choices": ["a", "b"], "references": True}), "must be letters of the choices"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_is_named(tmp_path: Path, mistake: str) -> None:
    toml, data, words = MISTAKES[mistake]
    path = written(tmp_path / "mine", toml, data)
    with pytest.raises(UsageError, match=words) as caught:
        read_for_bundle(path, reserved_names())
    assert "docs/own-benchmark.md" in caught.value.fix
    assert caught.value.command == f"lbx bundle {path} --dry-run"
    # The same in a bundle that somebody made by hand: known before a model is loaded.
    bundle = tmp_path / "bundle"
    shutil.copytree(tmp_path / "mine", bundle / "data" / "files" / "benchmarks" / "mine")
    (bundle / "lbx").mkdir()
    (bundle / "lbx" / "bundle.json").write_text("{}")
    (bundle / "tagmanifest-sha256.txt").write_text("")
    with pytest.raises(BundleError):
        for task in all_tasks(Bundle(bundle)):
            list(BENCHMARKS[task.benchmark].samples(Bundle(bundle), task.name))


@pytest.mark.parametrize("chunk", [1, 7, 1 << 22])
@pytest.mark.parametrize("suffix", READERS)
def test_rows_are_counted_as_they_are_read(
    tmp_path: Path, suffix: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "_CHUNK", chunk)
    texts = ['{"a": [', "\\", 'x\\"', '"]}', "\n\n", " ", "ключ", "{}[]" * 9]
    rows = [{"id": str(at), "question": text, "turns": [{"role": text}, [{}]]} for at, text in enumerate(texts)]
    path = tmp_path / f"rows{suffix}"
    forms = {
        ".jsonl": "\ufeff\n \n" + "\n\n".join(map(json.dumps, rows)) + "\n\t\n",
        ".json": f"\ufeff\n{json.dumps(rows, indent=1, ensure_ascii=False)}\n",
        ".csv": "\ufeffsep=;\r\nid;question;\r\n" + ";;\r\n" + "".join(
            f'{row["id"]};"{str(row["question"]).replace(chr(34), chr(34) * 2)}"\r\n' for row in rows
        ),
    }  # fmt: skip
    path.write_bytes(forms[suffix].encode())
    reader = READERS[suffix]
    assert reader.count_rows(path) == len(list(reader.read_rows(path))) == len(rows)


def test_listing_tasks_reads_no_row(make_bundle: MakeBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To check 300,000 rows takes half a minute, which only bundling and asking need."""
    bundle = as_bundle(make_bundle, written(tmp_path / "mine", TOML, lines(*[ROW | {"id": at} for at in range(9)])))

    def parse(*_: object) -> object:
        raise AssertionError("a row was parsed")

    monkeypatch.setattr(own_rows, "_sample", parse)
    assert [(task.full_name, task.samples) for task in all_tasks(bundle)] == [("mine/one", 9)]


def as_bundle(make_bundle: MakeBundle, definition: Path) -> Bundle:
    files = {f"files/benchmarks/mine/{path.name}": path.read_bytes() for path in definition.parent.iterdir()}
    return make_bundle(dict(files))


@pytest.mark.parametrize(
    "toml, extra, words",
    [
        (TOML, {"refrence": 1}, r"line 1: unknown field 'refrence'. Did you mean references\? To ignore it"),
        (TOML, {"xyz": "?"}, r'under another name, set fields = { document = "xyz" }, for example. To ignore it'),
        (TOML, {"stop": ["x"]}, r'To read it, set fields = { stop = "stop" }.'),
        (TOML + 'fields = { question = "ask" }', {"ask": "Why?"}, "unknown field 'question'"),
    ],
)
def test_an_unread_field_is_refused(
    tmp_path: Path, make_bundle: MakeBundle, toml: str, extra: dict[str, Any], words: str
) -> None:
    path = written(tmp_path / "mine", toml, lines(ROW | extra))
    with pytest.raises(UsageError, match=words) as caught:
        read_for_bundle(path, reserved_names())
    assert "ignore = [" in caught.value.fix and "--dry-run" in caught.value.command
    (key,) = extra.keys() if "fields" not in toml else ["question"]
    ignoring = written(tmp_path / "other", f'{toml}\nignore = ["{key}"]', lines(ROW | extra))
    assert read_for_bundle(ignoring, reserved_names())[1] == ["one.jsonl"]
    with pytest.raises(BundleError, match=words):
        list(BENCHMARKS["mine"].samples(as_bundle(make_bundle, path), "one"))


@pytest.mark.parametrize(
    ("metric", "reference"),
    [
        ("rouge1", "船は火曜日に来る。"), ("rouge2", "Лодка приходит во вторник"), ("rougeL", "它星期二来，2024年"),
        ("rouge1", "يأتي القارب يوم الثلاثاء"), ("rouge2", "Tuesday"), ("count", "three"), ("rouge_l", "."),
        ("edit_similarity", "# a comment"),
    ],
)  # fmt: skip
def test_a_reference_that_its_metric_cannot_score_is_refused(tmp_path: Path, metric: str, reference: str) -> None:
    path = written(tmp_path / "mine", TOML.replace("f1", metric), lines(ROW | {"references": reference}))
    with pytest.raises(UsageError, match=f"line 1: {metric} cannot score the reference") as caught:
        read_for_bundle(path, reserved_names())
    assert "Choose another metric" in caught.value.fix


@pytest.mark.parametrize(
    ("choices", "reference", "letter"),
    [
        (["1", "2", "3", "5"], 2, "C"), (["4", "0", "2", "6"], 0, "A"), (["0", "1"], "0", "A"), (["x", "y"], "1", "B"),
        (["x", "y"], "y", "B"), (["x", "y", "y"], "x", "A"), (["x", "y"], "B", "B"),
    ],
)  # fmt: skip
def test_the_right_choice_is_a_letter_a_text_or_a_position(
    tmp_path: Path, make_bundle: MakeBundle, choices: list[str], reference: object, letter: str
) -> None:
    path = written(tmp_path / "mine", QUIZZES, lines(ROW | {"choices": choices, "references": reference}))
    read_for_bundle(path, reserved_names())
    (sample,) = BENCHMARKS["mine"].samples(as_bundle(make_bundle, path), "one")
    assert sample.references == (letter,)


@pytest.mark.parametrize("written_id, name", [(1.0, "1.0"), (7, "7"), (1e300, "1e+300"), ("1.0", "1.0")])
def test_a_number_is_an_id(tmp_path: Path, make_bundle: MakeBundle, written_id: object, name: str) -> None:
    path = written(tmp_path / "mine", TOML, lines(ROW | {"id": written_id}))
    (sample,) = BENCHMARKS["mine"].samples(as_bundle(make_bundle, path), "one")
    assert sample.sample_id == name


def test_own_cues_are_scored_with_the_sample(tmp_path: Path, make_bundle: MakeBundle) -> None:
    toml = QUIZZES + 'answer_cues = ["Ezért"]\n'
    path = written(tmp_path / "mine", toml, lines(ROW | {"choices": ["x", "y"], "references": "B"}))
    (sample,) = BENCHMARKS["mine"].samples(as_bundle(make_bundle, path), "one")
    (score,) = CustomBenchmark("mine").score(sample, "Nem A. Ezért B!")
    assert (score.score, score.extracted) == (1.0, "B")


def test_a_rubric_has_no_built_in_name(tmp_path: Path) -> None:
    path = written(tmp_path / "mine", TOML.replace("[[task]]", RUBRIC.replace("ours", "leval") + "[[task]]"))
    with pytest.raises(UsageError, match=r"\[rubric\]: name = 'leval' is reserved: it means a built-in benchmark"):
        read_for_bundle(path, reserved_names())
    with pytest.raises(
        UsageError, match=r"\[rubric\]: name = 'leval' is reserved: it means the official rubric of L-Eval"
    ):
        read_rubric(path)


def test_definitions_of_before_ask_what_they_asked(handbook: Bundle) -> None:
    """The prompts and the samples of a run that is half finished, to the byte."""
    told = []
    for task in all_tasks(handbook):
        for sample in BENCHMARKS["handbook"].samples(handbook, task.name):
            prompt = BENCHMARKS["handbook"].prompt(handbook, sample)
            told.append([asdict(sample), prompt.text, prompt.document, prompt.max_new_tokens, prompt.stop, prompt.chat,
                         prompt.truncation, prompt.system, prompt.source])  # fmt: skip
    digest = sha256_text(canonical_json(told))
    assert digest == "386bdb82cdb7e3a2188700e885aae5fef9022b2221c0f81bf5088568b3b4d74a"


FORMS: dict[str, tuple[str, bytes]] = {
    "jsonl": ("one.jsonl", b'{"id": 7, "document": "A \xc3\xa4.", "question": "What?", "references": ["a", "b"]}\n'),
    "json": ("one.json", b'[{"id": 7, "document": "A \xc3\xa4.", "question": "What?", "references": ["a", "b"]}]'),
    "csv": ("one.csv", b'id,document,question,references\n\n7,A \xc3\xa4.,What?,"[""a"", ""b""]"\n'),
    "semicolons": ("one.csv", b'id;document;question;references\n\n7;A \xc3\xa4.;What?;"[""a"", ""b""]"\n'),
    "a separator line": (
        "one.csv",
        b'sep=|\r\nid|document|question|references\r\n7|A \xc3\xa4.|What?|"[""a"", ""b""]"',
    ),
    "commas at the ends": ("one.csv", b'id,document,question,references,,\n7,A \xc3\xa4.,What?,"[""a"", ""b""]",\n'),
    "a comma in a quoted name": (
        "one.csv",
        b'id;document;question;references;"x, y"\n7;A \xc3\xa4.;What?;"[""a"", ""b""]";\n',
    ),
    "tabs": ("one.csv", b'id\tdocument\tquestion\treferences\n7\tA \xc3\xa4.\tWhat?\t"[""a"", ""b""]"\n'),
}


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data_gives_the_same_samples(
    tmp_path: Path, make_bundle: MakeBundle, form: str, mark: bytes
) -> None:
    name, data = FORMS[form]
    path = written(tmp_path / "mine", TOML.replace("one.jsonl", name))
    (tmp_path / "mine" / name).write_bytes(mark + data)
    assert read_for_bundle(path, reserved_names())[1] == [name]
    (sample,) = BENCHMARKS["mine"].samples(as_bundle(make_bundle, path), "one")
    assert (sample.sample_id, sample.context, sample.references) == ("7", "A ä.", ("a", "b"))


CSV = TOML.replace("one.jsonl", "one.csv")
HEADER = b"id,document,question,references\n"


@pytest.mark.parametrize(
    "data, words",
    [
        (HEADER + b"a,b,c\n", "line 2 is damaged: it has 3 cells, but the first line has 4 columns"),
        (HEADER + b'a,"x\ny",c,d\n\n"a,b', r"row 4 \(line 5\) is damaged: it is not valid CSV"),
        (HEADER + b'a,"x"y,c,d\n', "line 2 is damaged: it is not valid CSV"),
        (HEADER + b"a,\xff,c,d\n", r"line 2 is damaged: it is not UTF-8 \(.*; spreadsheets save it as \"CSV UTF-8\"\)"),
        (HEADER + b'a,"x\ny",c,d\nb,\xff,c,d\n', r"row 3 \(line 4\) is damaged: it is not UTF-8"),
        (HEADER + b'a,"x\r\ny",c,d\r\n\r\nb,,c,d\r\n', r"row 4 \(line 5\): the field 'document' is missing"),
        (HEADER + b'a,"x\ny",c,d\na,"x\ny",c,d\n', r"row 3 \(line 4\): the id 'a' is also used at .*, line 2"),
        (b"id,id,question\n", "line 1 is damaged: every column must have a name, and no two columns the same"),
        (b"id,,question\n", "line 1 is damaged: every column must have a name"),
        (HEADER.replace(b",", b"|") + b"a|b|c|d\n", r"unknown field 'id\|document\|question\|references'"),
        (
            HEADER.replace(b",", b";") + b"a;b;c\n",
            "line 2 is damaged: it has 3 cells, but the first line has 4 columns",
        ),
        (HEADER + b"a,b,c,d,e\n", "line 2 is damaged: it has 5 cells, but the first line has 4 columns"),
        (HEADER.replace(b"question", b"ques;tion"), "line 1 is damaged: the column separator may be ',' or ';'"),
        (b"sep=;\n" + HEADER.replace(b",", b";") + b"a;b;c\n", "line 3 is damaged: it has 3 cells"),
        (b"sep=;\n" + HEADER.replace(b",", b";") + b'a;"b\nb";c;d\ne;f;g\n', r"row 4 \(line 5\) is damaged: it has 3"),
        (HEADER + b"a,b,c,\"['d', 'e']\"\n", "line 2: references is a Python or JSON list inside a text"),
        (HEADER, "it contains no questions"),
        (b"", "it contains no questions"),
        (HEADER + b"a,,c,d\n", "line 2: the field 'document' is missing"),
    ],
)
def test_what_is_wrong_with_csv_is_said(tmp_path: Path, data: bytes, words: str) -> None:
    path = written(tmp_path / "mine", CSV)
    (tmp_path / "mine" / "one.csv").write_bytes(data)
    with pytest.raises(UsageError, match=words):
        read_for_bundle(path, reserved_names())


def test_a_row_of_a_spreadsheet_without_a_text_is_no_row(tmp_path: Path, make_bundle: MakeBundle) -> None:
    path = written(tmp_path / "mine", CSV)
    (tmp_path / "mine" / "one.csv").write_bytes(HEADER + b"a,b,c,d\n,,,\n ,,,\ne,f,g,h\n,,,\n,\n")
    assert [one.sample_id for one in BENCHMARKS["mine"].samples(as_bundle(make_bundle, path), "one")] == ["a", "e"]


def test_a_cell_is_as_long_as_a_document(tmp_path: Path, make_bundle: MakeBundle) -> None:
    path = written(tmp_path / "mine", CSV)
    (tmp_path / "mine" / "one.csv").write_bytes(HEADER + b'a,"' + b"long, text\n" * 100_000 + b'",c,d\n')
    (sample,) = BENCHMARKS["mine"].samples(as_bundle(make_bundle, path), "one")
    assert len(sample.context) == 1_100_000


def test_names_that_a_bundle_cannot_bring(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({"files/benchmarks/leval/benchmark.toml": TOML.encode()})
    with pytest.raises(BundleError, match="'leval', which means a built-in"):
        custom_names(bundle, reserved_names())
    bundle = make_bundle({"files/benchmarks/a b/benchmark.toml": TOML.encode()})
    with pytest.raises(BundleError, match="'a b', which is not a valid name"):
        custom_names(bundle, {})


def test_data_that_a_link_leads_out_to(make_bundle: MakeBundle, tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_bytes(lines(ROW))
    bundle = make_bundle({"files/benchmarks/mine/benchmark.toml": TOML.encode()})
    (bundle.file("benchmarks/mine") or tmp_path).joinpath("one.jsonl").symlink_to(tmp_path / "secret.jsonl")
    with pytest.raises(BundleError, match="is outside the bundle"):
        all_tasks(bundle)


anything = st.text(st.characters(codec=None, exclude_categories=()), max_size=80)


@given(output=anything, reference=anything, letters=st.sampled_from(["", "AB", "ABCD"]))
@pytest.mark.parametrize("metric", METRICS)
def test_no_output_upsets_a_metric(metric: str, output: str, reference: str, letters: str) -> None:
    for language in ("en", "zh"):
        for references in ((), (reference,), (output, reference)):
            assert (
                0.0
                <= METRICS[metric](output, ScoringTarget(references, language, dict.fromkeys(letters, reference))).value
                <= 1.0
            )


@given(meta=st.dictionaries(st.sampled_from(["metrics", "choices", "extract"]), st.none() | st.integers() | anything | st.lists(st.integers() | st.sampled_from(["f1", "no"]))))  # fmt: skip  # noqa: E501
def test_a_hostile_results_file_gets_no_score(meta: dict[str, Any]) -> None:
    for score in CustomBenchmark("x").score(Sample("x", "y", "z", "", "", ("a",), meta=meta), "a"):
        assert score.metric == "f1"
