"""Values that are valid but for their size: each is refused where it enters, before it takes memory or time."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.jail import Ended, Jail
from tests.attacks.results_parts import results_file

SPEC = {"lbx_run": 1, "bundle": "bundle", "model": "oracle.jsonl", "tasks": ["needle/single_en"], "name": "n"}
OUT = ("out/",)


@pytest.fixture
def place(small: Path, tmp_path: Path) -> Path:
    """A folder with a bundle, a table of answers and a folder for results."""
    folder = tmp_path / "place"
    (folder / "out").mkdir(parents=True)
    (folder / "bundle").symlink_to(small / "bundle")
    shutil.copy(small / "oracle.jsonl", folder)
    return folder


@pytest.fixture
def results(place: Path) -> Path:
    return results_file(place / "r.duckdb")


def refused(ended: Ended, *words: str) -> None:
    said = " ".join(ended.err.split())
    assert ended.refused and not ended.fault(may_leave=(".cache", "out/r.duckdb")), ended
    for word in words:
        assert word in said, (word, said[:2000])


# --- the spec of a run

VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "a billion workers": ({"workers": 10**9}, "--workers must be at most 1,024, not 1,000,000,000."),
    "a trillion iterations": ({"iterations": 2**40}, "--iterations must be at most 10,000"),
    "a million iterations": ({"iterations": 10**6}, "--iterations must be at most 10,000"),
    "more documents than a slice has": ({"documents": 2**70}, "--documents must be at most"),
    "a million tasks": (
        {"tasks": ["needle/single_en"] * 10**6},
        "--tasks accepts at most 10,000 names, not 1,000,000.",
    ),
    "a million tasks in one text": ({"tasks": ",".join(["x"] * 10**6)}, "--tasks accepts at most 10,000 names"),
    "a million pieces of metadata": ({"metadata": ["a=b"] * 10**6}, "--metadata accepts at most 10,000 names"),
    "two million ids": ({"ids": ["x"] * (2 * 10**6)}, "--ids accepts at most 1,000,000 names"),
    "half a character in a bundle's name": ({"bundle": "\ud800"}, "--bundle contains an incomplete character"),
    "half a character in a run's name": ({"name": "x\udfff"}, "--name contains an incomplete character"),
    "half a character in a task": ({"tasks": ["\ud800"]}, "--tasks contains an incomplete character"),
    "a name of ten million characters": ({"name": "x" * 10**7}, "--name contains a text of 10,000,000 characters"),
    "a model of ten million characters": ({"model": "x" * 10**7}, "--model contains a text of 10,000,000 characters"),
}


@pytest.mark.parametrize("case", VALUES)
def test_a_value_of_a_spec(case: str, place: Path, jail: Jail) -> None:
    values, words = VALUES[case]
    (place / "run.json").write_text(json.dumps({**SPEC, **values}))
    refused(jail(place, "run", "--spec", "run.json", "--no-plan", "-o", "out/r.duckdb"), words)


def test_as_many_as_may_be(place: Path, jail: Jail) -> None:
    values = {"tasks": ["needle/single_en"] * 10_000, "metadata": ["a=b"] * 10_000, "limit": 1}
    (place / "run.json").write_text(json.dumps({**SPEC, **values}))
    ended = jail(place, "run", "--spec", "run.json", "--no-plan", "-o", "out/r.duckdb")
    assert ended.code == 0 and not ended.fault(may_change=OUT), ended


def test_a_billion_processes_that_score(place: Path, results: Path, jail: Jail) -> None:
    refused(
        jail(place, "score", results, "--processes", 10**9), "--processes must be from 1 to 1,024, not 1,000,000,000."
    )


# --- what comes with a model


def hf_model(place: Path) -> Path:
    pytest.importorskip("torch", reason="needs lbx[hf]")
    return Path(shutil.copytree(Path(__file__).parents[2] / "models/demo/hf", place / "model"))


def run_model(jail: Jail, place: Path, model: str) -> Ended:
    return jail(
        place, "run", "-b", "bundle", "-t", "needle/single_en", "-n", 1, "-m", model, "--no-plan", "-o", "out/r.duckdb"
    )


@pytest.mark.parametrize("where", ["file", "configuration", "card"])
def test_a_chat_template_of_30_megabytes(where: str, place: Path, jail: Jail) -> None:
    template, model = "{{ messages[0].content }}" + "x" * (30 << 20), "model"
    if where == "card":
        template, model = template[: 15 << 20], "card.toml"
        (place / "long.jinja").write_text(template)
        weights = 'backend = "scripted"\n[weights]\npath = "oracle.jsonl"\n'
        (place / model).write_text(f'{weights}[chat]\ntemplate_file = "long.jinja"\n')
    elif where == "file":
        (hf_model(place) / "chat_template.jinja").write_text(template)
    else:
        configuration = hf_model(place) / "tokenizer_config.json"
        configuration.write_text(json.dumps({**json.loads(configuration.read_text()), "chat_template": template}))
    refused(run_model(jail, place, model), f"chat template has {len(template):,} characters")


def test_a_chat_template_that_multiplies_the_document(place: Path, jail: Jail) -> None:
    (hf_model(place) / "chat_template.jinja").write_text("{{ messages[0].content * 30000 }}")
    refused(run_model(jail, place, "model"), "more than 4 times as long as its input")


def replaced(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


TIMES_16 = [replaced({"String": "e"}, "e" * 16)] * 12
TOKENIZERS: dict[str, tuple[str, Any]] = {
    "its normalizer": ("normalizer", {"type": "Sequence", "normalizers": TIMES_16}),
    "its normalizer, nested": (
        "normalizer",
        {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [one]} for one in TIMES_16]},
    ),
    "a pattern": ("normalizer", {"type": "Sequence", "normalizers": [replaced({"Regex": "e|x"}, "ee")] * 30}),
    "its bytes": ("normalizer", {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 30}),
    "a long text": ("normalizer", {"type": "Prepend", "prepend": "e" * 10**6}),
    "its decoder": ("decoder", {"type": "Sequence", "decoders": TIMES_16}),
}


@pytest.mark.parametrize("case", TOKENIZERS)
def test_a_tokenizer_that_multiplies_text(case: str, place: Path, jail: Jail) -> None:
    part, value = TOKENIZERS[case]
    file = hf_model(place) / "tokenizer.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), part: value}))
    refused(run_model(jail, place, "model"), "tokenizer.json", "Do not trust this model")


def test_a_tokenizer_file_of_a_terabyte(place: Path, jail: Jail) -> None:
    os.truncate(hf_model(place) / "tokenizer.json", 1 << 40)
    refused(run_model(jail, place, "model"), "tokenizer.json cannot be read: it has more than 268,435,456 bytes")


# --- a dataset

LINE = json.dumps({"input": "text", "instructions": ["q"], "outputs": ["a"]}) + "\n"


@pytest.mark.parametrize("start", ["", LINE])
def test_a_dataset_of_20_gigabytes_of_nothing(start: str, place: Path, jail: Jail) -> None:
    (place / "data.jsonl").write_text(start)
    os.truncate(place / "data.jsonl", 20 << 30)
    ended = jail(place, "annotate", "data.jsonl", "--write", "-o", "out/y.jsonl")
    refused(ended, f"line {1 + bool(start)}: it has more than 67,108,864 bytes")


# --- a person's own queries

QUERIES = {
    "a list": "SELECT range(1000000000) AS a",
    "a list of lists": "SELECT [range(100000) FOR x IN range(100000)] AS a",
    "a text": "SELECT repeat('x', 4000000000) AS a",
    "all rows at once": "SELECT list(a.range) AS a FROM range(100000000) a",
    "long rows": "SELECT repeat('x', 100000000) AS a FROM range(1000)",
}


@pytest.mark.parametrize("wanted", ["table", "csv", "json", "parquet"])
@pytest.mark.parametrize("case", QUERIES)
def test_a_query_that_takes_all_memory(case: str, wanted: str, place: Path, results: Path, jail: Jail) -> None:
    output = ("-o", "out/x.parquet") if wanted == "parquet" else ()
    ended = jail(place, "sql", results, QUERIES[case], "--format", wanted, "--memory", 256, "--timeout", 20, *output)
    refused(ended, "--memory" if "--memory" in ended.err else "--timeout")


def test_a_query_has_limits_without_options(place: Path, results: Path, jail: Jail) -> None:
    ended = jail(place, "sql", results, QUERIES["a list"])
    assert ended.mib < 3000
    assert "needs more than 2,048 MiB of memory." in " ".join(ended.err.split()), ended


@pytest.mark.parametrize("wanted", ["table", "csv", "json", "parquet"])
def test_a_query_that_takes_all_time(wanted: str, place: Path, results: Path, jail: Jail) -> None:
    output = ("-o", "out/x.parquet") if wanted == "parquet" else ()
    endless = "SELECT max(hash(a.range + b.range)) FROM range(10000000000) a, range(1000000) b"
    ended = jail(place, "sql", results, endless, "--format", wanted, "--timeout", 1, *output)
    refused(ended, "took longer than 1 seconds. Query less data at once, or raise the limit with --timeout SECONDS.")


WIDE = "PIVOT (SELECT range AS a FROM range({})) ON a USING count(*)"


def test_an_answer_of_many_columns(place: Path, results: Path, jail: Jail) -> None:
    ended = jail(place, "sql", results, WIDE.format(3_000), "--format", "csv")
    assert ended.code == 0 and not ended.fault(), ended.err
    assert len(next(csv.reader(io.StringIO(ended.out)))) == 3_000
    same = jail(place, "sql", results, f"SELECT {', '.join(['1 AS a'] * 9_000)}", "--format", "csv")
    assert same.code == 0 and not same.fault(), same.err
    assert len(set(next(csv.reader(io.StringIO(same.out))))) == 9_000
    refused(jail(place, "sql", results, WIDE.format(99_999)), "Pivot column limit of 10000 exceeded")


# --- cells of a spreadsheet

FORMULAS = [
    "=1+1", " =1+1", "\u00a0=1+1", "\u3000＝1+1", "\t=1+1", "\n=1+1", " \n\t+1+1", "  -cmd|' /C calc'!A1", " @SUM(1)",
]  # fmt: skip


def test_a_formula_behind_white_space(place: Path, results: Path, jail: Jail) -> None:
    rows = ", ".join("(" + "'" + text.replace("'", "''") + "')" for text in FORMULAS)
    ended = jail(place, "sql", results, f"FROM (VALUES {rows}, (' -1.5'), (' a=b')) AS t(a)", "--format", "csv")
    assert ended.code == 0, ended
    _, *got = [row[0] for row in csv.reader(io.StringIO(ended.out))]
    assert got == [f"'{text}" for text in FORMULAS] + [" -1.5", " a=b"]
