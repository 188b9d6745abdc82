"""Every example of docs/own-benchmark.md as it stands there: bundled, asked, scored, exported, judged."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest
from markdown_it import MarkdownIt

from lbx.base.bundle_folder import Bundle
from lbx.base.records import Chunk, Prompt, Sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.options.asking import PLAIN, Mode
from tests.command_line import Lbx, fails

DOCUMENT = (Path(__file__).parents[2] / "docs" / "own-benchmark.md").read_text("utf-8")


def examples() -> dict[str, tuple[str, str, dict[str, str]]]:
    """{heading: (definition, data, {path: text of a document, which the line before its block names})}."""
    section = DOCUMENT.split("## Examples")[1].split("\n## ")[0]
    found = {}
    for part in section.split("\n### ")[1:]:
        definition, data, *texts = [one.content for one in MarkdownIt().parse(part) if one.type == "fence"]
        names = re.findall(r"^`(\S+)`:$", part, re.MULTILINE)
        found[part.partition("\n")[0]] = (definition, data, dict(zip(names, texts, strict=True)))
    return found


EXAMPLES = examples()


class Made:
    """An example's bundle, and a model that says the same to everything."""

    def __init__(self, lbx: Lbx, folder: Path, heading: str, change: Callable[[bytes], bytes] = bytes) -> None:
        definition, data, documents = EXAMPLES[heading]
        self.lbx, self.folder, self.bundle = lbx, folder, folder / "harbour"
        (table,) = tomllib.loads(definition)["task"]
        self.task: str = table["name"]
        (folder / "benchmark.toml").write_text(definition, "utf-8")
        for name, text in {table["data"]: data, **documents}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(change(text.encode()))
        self.call("bundle", folder / "benchmark.toml", "-o", folder / "out")
        self.call("unpack", folder / "out" / "harbour.tar", "--allow-unsigned", "--to", self.bundle)

    def call(self, *words: object) -> str:
        done = self.lbx(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def card(self, name: str, answer: str | Mapping[str, str]) -> Path:
        table = {"*": answer} if isinstance(answer, str) else answer
        (self.folder / f"{name}.json").write_text(json.dumps(table))
        card = f'name = "{name}"\nbackend = "scripted"\ncontext_window = 4000\n[weights]\npath = "{name}.json"\n'
        (self.folder / f"{name}.toml").write_text(card)
        return self.folder / f"{name}.toml"

    def run(self, answer: str | Mapping[str, str], *options: object, name: str = "mine") -> list[dict[str, Any]]:
        """What is stored of each answer."""
        self.call("run", "--bundle", self.bundle, "--model", self.card(name, answer), "--tasks", "harbour",
                  "--name", name, "--no-plan", "-o", self.results, *options)  # fmt: skip
        return self.rows(
            "SELECT g.*, s.score, s.extracted FROM generations g LEFT JOIN scores s USING "
            f"(run_id, benchmark, task, sample_id, iteration) WHERE run_id = '{name}' ORDER BY sample_id"
        )

    def rows(self, query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.call("sql", self.results, query, "--format", "json"))
        return found

    @property
    def results(self) -> Path:
        return self.folder / "results.duckdb"

    @property
    def samples(self) -> list[Sample]:
        return list(BENCHMARKS["harbour"].samples(Bundle(self.bundle), self.task))

    def prompts(self, mode: Mode = PLAIN, chunks: tuple[Chunk, ...] = ()) -> list[Prompt]:
        return [BENCHMARKS["harbour"].prompt(Bundle(self.bundle), one, mode, chunks) for one in self.samples]


Make = Callable[..., Made]


@pytest.fixture
def made(lbx: Lbx, tmp_path: Path) -> Make:
    def make(heading: str, change: Callable[[bytes], bytes] = bytes) -> Made:
        return Made(lbx, tmp_path, heading, change)

    return make


def bom(data: bytes) -> bytes:
    return b"\xef\xbb\xbf" + data


MARKED = pytest.mark.parametrize("change", [bytes, bom, lambda data: bom(data).replace(b"\n", b"\r\n")])


@MARKED
def test_csv_with_choices(made: Make, change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    one = made("CSV with choices", change)
    boat, flag = one.samples
    assert (boat.sample_id, boat.references, boat.meta["choices"]) == ("boat", ("B",), {"A": "Monday", "B": "Tuesday"})
    assert (flag.references, len(flag.meta["choices"])) == (("C",), 3)
    assert one.prompts()[0].text.endswith("When does it come?\nA. Monday\nB. Tuesday\nAnswer:")
    assert [row["score"] for row in one.run("B")] == [1, 0]
    shown = one.call("show", one.results, "harbour/quiz/flag")
    assert "choice    B. Green\n" in shown
    one.call("export", "harbour", one.results, "--run", "mine", "-o", tmp_path / "p")
    exported = [json.loads(line) for line in (tmp_path / "p" / "quiz.jsonl").read_text().splitlines()]
    assert exported[1]["choices"] == {"A": "Red", "B": "Green", "C": "Yellow"}
    one.call(
        "import",
        "harbour",
        tmp_path / "p",
        "--model-name",
        "m",
        "--bundle",
        one.bundle,
        "-o",
        tmp_path / "again.duckdb",
    )


@MARKED
def test_documents_in_files(made: Make, change: Callable[[bytes], bytes]) -> None:
    one = made("Documents in files", change)
    boat, oil, tower = one.samples
    assert boat.context == oil.context == change(b"The boat comes on Tuesdays and brings oil.\n").decode("utf-8-sig")
    assert tower.context.startswith("The tower has 31 metres")
    stored = one.bundle / "data" / "files" / "benchmarks" / "harbour"
    assert sorted(path.name for path in (stored / "texts").iterdir()) == ["boat.txt", "tower.txt"]
    assert [row["score"] for row in one.run("Tuesday")] == [1, 0, 0]


@MARKED
def test_json_array_and_a_system_message(made: Make, change: Callable[[bytes], bytes]) -> None:
    one = made("JSON array and a system message", change)
    assert [(sample.sample_id, sample.references) for sample in one.samples] == [
        ("0000", ("Tuesday", "Tuesdays")),
        ("0001", ("31",)),
    ]
    system = "You are the keeper of a lighthouse. Answer in one word."
    assert {prompt.system for prompt in one.prompts()} == {system}
    assert [(row["system_prompt"], row["score"]) for row in one.run("tuesdays")] == [("text", 1), ("text", 0)]
    sent = one.call("prompts", "--bundle", one.bundle, "--model", one.card("mine", "x"), "--tasks", "harbour")
    assert "system    at the beginning of the text\n" in sent


def test_few_shot_examples(made: Make) -> None:
    one = made("Few-shot examples", bom)
    (prompt,) = one.prompts()
    assert (prompt.before, prompt.chat) == ("", False)
    assert prompt.text == (
        "The boat comes on Tuesdays.\n\nQuestion: When is the lamp lit?\nAnswer: at sunset\n\n"
        "Question: Who keeps it?\nAnswer: the keeper\n\nQuestion: When does the boat come?\nAnswer:"
    )
    assert one.run("on Tuesdays")[0]["score"] == 1


def test_several_turns(made: Make) -> None:
    one = made("Several turns")
    several, alone = one.prompts()
    assert several.text == "The boat comes on Tuesdays and brings oil.\n\nWhen does the boat come?"
    assert several.turns == ("On Tuesdays.", "And what does it bring? Answer in one word.")
    assert alone.turns == () and alone.text.endswith("What comes on Tuesdays?")
    assert [row["score"] for row in one.run("Oil.")] == [1, 0]
    sent = one.call("prompts", "--bundle", one.bundle, "--model", one.card("mine", "x"), "--tasks", "harbour")
    assert "When does the boat come?\n\nOn Tuesdays.\n\nAnd what does it bring? Answer in one word.\n" in sent


def test_tokens_and_stop_texts_of_a_question(made: Make) -> None:
    one = made("Tokens and stop texts of a question")
    assert [(prompt.max_new_tokens, prompt.stop) for prompt in one.prompts()] == [(8, (".",)), (64, ())]
    first, second = one.run("Tuesday. It comes on Tuesdays.")
    assert (first["output"], first["score"]) == ("Tuesday", 1)
    assert second["output"] == "Tuesday. It comes on Tuesdays."


def test_a_regular_expression_for_the_answer(made: Make, tmp_path: Path) -> None:
    one = made("A regular expression for the answer")
    (row,) = one.run("31 and 20 are 51.\nAnswer: 51 metres.\nAnswer: 52 metres.")
    assert (row["score"], row["extracted"]) == (1, "51 metres.")
    assert "extracted '51 metres.'" in one.call("show", one.results, "harbour/steps/0000", "--run", "mine")
    (row,) = one.run("51 metres", name="bare")
    assert (row["score"], row["extracted"]) == (0, "")
    definition = tmp_path / "benchmark.toml"
    definition.write_text(definition.read_text().replace("(?i)", "(?s)(?i)"))
    one.call("bundle", definition, "-o", tmp_path / "other")
    one.call("unpack", tmp_path / "other" / "harbour.tar", "--allow-unsigned", "--to", tmp_path / "changed")
    done = one.lbx("run", "--bundle", tmp_path / "changed", "--model", one.card("other", "x"), "--tasks", "harbour",
                   "--no-plan", "-o", one.results)  # fmt: skip
    fails(done, 1, "harbour/steps/0000")


def test_an_answer_without_a_match_is_marked(made: Make) -> None:
    """A score of 0 because the expression found nothing is no wrong answer: the run, its tables and show say so."""
    one = made("A regular expression for the answer")
    run = one.lbx("run", "--bundle", one.bundle, "--model", one.card("bare", "51 metres"), "--tasks", "harbour",
                  "--no-plan", "-o", one.results)  # fmt: skip
    assert "No answer could be extracted from 1 of 1 output;" in " ".join(run.stderr.split())
    shown = one.call("show", one.results, "harbour/steps/0000")
    assert "extract   (?i)answer:\\s*(.+)\n" in shown
    assert "score     exact_match 0.0000, no answer extracted\n" in shown
    assert one.rows("SELECT unextracted FROM guards") == [{"unextracted": 1}]
    assert "nothing extracted 100%" in one.call("report", one.results, "task_scores", "--format", "csv")
    assert "no answer was extracted" in one.call("report", one.results)
    one.run("Answer: 51 metres", name="kept")
    assert one.rows("SELECT unextracted FROM guards WHERE run_id = 'kept'") == [{"unextracted": 0}]
    with duckdb.connect(str(one.results)) as older:  # an older lbx left NULL
        older.execute("UPDATE scores SET extracted = NULL WHERE extracted = ''")
    assert one.rows("SELECT max(unextracted) AS n FROM guards") == [{"n": 0}]
    one.call("score", one.results, "--bundle", one.bundle)
    assert one.rows("SELECT max(unextracted) AS n FROM guards") == [{"n": 1}]


def test_a_judges_rubric(made: Make, tmp_path: Path) -> None:
    one = made("A judge's rubric")
    one.run("It comes on Tuesdays.")
    judge = (
        "judge",
        one.results,
        "--bundle",
        one.bundle,
        "--judge",
        one.card("critic", "Fair. [[4]]"),
        "--run",
        "mine",
    )
    one.call(*judge, "--save-spec", tmp_path / "judge.json")
    assert json.loads((tmp_path / "judge.json").read_text())["tasks"] == ["harbour"]
    one.call(*judge)
    (verdict,) = one.rows("SELECT rubric, rating, output FROM judgements")
    assert verdict == {"rubric": "kept", "rating": 4.0, "output": "Fair. [[4]]"}
    (settings,) = one.rows("SELECT settings->>'rubric_source' AS source FROM runs WHERE run_id <> 'mine'")
    assert settings == {"source": "benchmark.toml"}
    (rubric,) = one.rows("SELECT count(*) AS judges FROM judges")
    one.call(*judge, "--rubric", tmp_path / "benchmark.toml")
    assert one.rows("SELECT count(*) AS judges FROM judges") == [rubric], "named, it is the same judge"


def test_of_two_rubrics_one_is_named(made: Make, tmp_path: Path) -> None:
    one = made("A judge's rubric")
    second = tmp_path / "second.toml"
    second.write_text((tmp_path / "benchmark.toml").read_text().replace('name = "harbour"', 'name = "pier"'))
    one.call("bundle", tmp_path / "benchmark.toml", second, "-o", tmp_path / "two")
    (archive,) = (tmp_path / "two").glob("*.tar")
    one.bundle = tmp_path / "both"
    one.call("unpack", archive, "--allow-unsigned", "--to", one.bundle)
    one.run("On Tuesdays.", "--tasks", "pier")
    judge = ("judge", one.results, "--bundle", one.bundle, "--judge", one.card("critic", "[[4]]"), "--run", "mine")
    fails(one.lbx(*judge), 2, "harbour and pier have different rubrics", "--tasks harbour")
    one.call(*judge, "--tasks", "pier")
    assert one.rows("SELECT benchmark, rating FROM judgements") == [{"benchmark": "pier", "rating": 4.0}]


def test_a_definition_without_a_rubric_is_none(made: Make, tmp_path: Path) -> None:
    one = made("Chunks, or no document")
    one.run("x")
    done = one.lbx("judge", one.results, "--bundle", one.bundle, "--judge", one.card("judge", "x"), "--run", "mine",
                   "--rubric", tmp_path / "benchmark.toml")  # fmt: skip
    fails(done, 2, "the definition has no [rubric]")


def test_chunks_or_no_document(made: Make) -> None:
    one = made("Chunks, or no document")
    (none,) = one.prompts(Mode(no_context=True))
    assert (none.text, none.document) == ("From memory: When is the lamp lit?", "")
    (best,) = one.prompts(Mode(rag=2), (Chunk(0, 1, 1.0, "The boat."), Chunk(1, 0, 2.0, "The lamp.")))
    assert best.text == "Read this:\nThe boat.\n\nThe lamp.\n\nWhen is the lamp lit?"
    assert one.run("at sunset", "--no-context", name="bare")[0]["score"] == 1
    (row,) = one.run("at sunset", "--rag", 1, "--chunk-words", 5, name="chunks")
    (whole,) = one.run("at sunset", name="whole")
    assert row["score"] == 1 and row["prompt_tokens"] < whole["prompt_tokens"]
    labels = one.rows("SELECT run_id, settings->>'rag' AS rag, settings->>'no_context' AS bare FROM runs ORDER BY ALL")
    assert labels[0] == {"run_id": "bare", "rag": None, "bare": "true"}
    assert labels[1]["rag"] == "1"


def test_every_example_is_run_here() -> None:
    assert len(EXAMPLES) == 9
    source = Path(__file__).read_text("utf-8")
    for heading in EXAMPLES:
        assert f'made("{heading}"' in source, heading
