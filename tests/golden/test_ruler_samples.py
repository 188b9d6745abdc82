"""Samples of RULER, equal to those of the authors' scripts for three tokenizers.

A golden file has the samples of a tokenizer, a length and a task, in sets: plain samples (A, G, I, T4096), in a model's
template (B), with --remove_newline_tab (C), with --prepare_for_ns (D), of chunks, which have other seeds (E), and with
the words of wonderwords 3 (F). Set N is left out: its nltk 3.10 splits essays into other sentences than nltk 3.9.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from itertools import count as numbers
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bench.inputs import link_tree
from lbx.base.bundle_folder import FILES, Bundle
from lbx.base.records import Sample
from lbx.benchmarks.base.benchmark import ModelTokenizer, UnloadedModel
from lbx.benchmarks.ruler import generator
from lbx.benchmarks.ruler.benchmark import Ruler
from lbx.benchmarks.ruler.generator import Candidate
from lbx.benchmarks.ruler.questions import QuestionTexts
from lbx.benchmarks.ruler.samples import SampleSet
from lbx.benchmarks.ruler.tasks import SETTINGS_FILE, TASKS, RulerSettings
from lbx.options.asking import PLAIN
from tests.golden.case import SOURCES

FOLDER = SOURCES["shared"] / "ruler"
GOLDEN = [path.name.removesuffix(".jsonl.gz") for path in sorted(FOLDER.glob("*.jsonl.gz"))]
QUICK = [name for name in GOLDEN if ".4096." in name]
QUICK_SAMPLES = 2
LEFT_OUT = "N"
BLOCK_CHARACTERS = 4096

Find = Callable[..., Any]
CountTokens = Callable[[str], int]
Run = tuple[Mapping[str, Any], list[dict[str, Any]]]

pytestmark = pytest.mark.skipif(not GOLDEN, reason="needs the golden samples in ../shared, which are not here")


@pytest.fixture(autouse=True)
def no_kept_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(generator, "_LOGS", {})


@pytest.fixture(scope="module")
def counter(ruler_tokenizer: Find) -> Callable[[str], CountTokens]:
    """counter("qwen3") -> counts tokens by the library ``tokenizers``."""
    from tokenizers import Tokenizer

    @cache
    def load(name: str) -> CountTokens:
        tokenizer = Tokenizer.from_file(str(ruler_tokenizer(name) / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return lambda text: len(tokenizer.encode_batch_fast([text], add_special_tokens=False)[0])

    return load


def runs(name: str) -> Iterator[Run]:
    """Yield each run of the authors' script in a golden file, and its samples."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            run = json.loads(line)
            yield run, [json.loads(row) for row in islice(lines, run["rows"])]


def generate(run: Mapping[str, Any], samples: int, bundle: Bundle, count: CountTokens) -> list[Sample]:
    arguments = run["prepare_args"]
    settings = RulerSettings(
        samples=samples,
        seed=run["script_seed"],
        remove_newline_tab="remove_newline_tab" in arguments,
        prepare_for_ns="prepare_for_ns" in arguments,
    )
    template = run["model_template_type"].removeprefix("base")
    made = SampleSet(bundle, settings, run["tokenizer"], count, template)
    return [*made.samples("ruler", f"{run['task']}_{run['max_seq_length']}")]


def facts(sample: Sample) -> dict[str, Any]:
    """Return the golden facts of a sample."""
    text, prefix = sample.context, str(sample.meta["answer_prefix"])
    return {
        "index": sample.meta["index"],
        "outputs": [*sample.references],
        "length": sample.length,
        "sha256_input": digest(text),
        "sha256_answer_prefix": digest(prefix),
        "sha256_prompt": digest(text + prefix),
        "input_chars": len(text),
        "blocks": [
            digest(text[at : at + BLOCK_CHARACTERS])[:8] for at in range(0, len(text), BLOCK_CHARACTERS)
        ],
    }  # fmt: skip


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def difference(found: Mapping[str, Any], golden: Mapping[str, Any]) -> str:
    """Return the names of the facts that differ, and the place of the first different characters; "" if equal."""
    names = [name for name in found if found[name] != golden[name]]
    if "blocks" not in names:
        return ", ".join(names)
    pairs = zip([*found["blocks"], None], [*golden["blocks"], None], strict=False)
    at = next(number for number, (block, wanted) in enumerate(pairs) if block != wanted) * BLOCK_CHARACTERS
    return f"{', '.join(names)}; first in characters {at:,} to {at + BLOCK_CHARACTERS:,}"


def compare(run: Mapping[str, Any], made: list[Sample], golden: list[dict[str, Any]]) -> None:
    differences = {
        row["line"]: text for sample, row in zip(made, golden, strict=True) if (text := difference(facts(sample), row))
    }
    name = " ".join([run["set"], run["task"], run["model_template_type"], *run["prepare_args"]])
    assert not differences, f"{name}: {len(differences)} of {len(golden)} samples differ: {differences}"


@pytest.mark.parametrize("name", QUICK)
def test_first_samples_of_4096_tokens(name: str, ruler_bundle: Find, counter: Find) -> None:
    compared = 0
    for run, golden in runs(name):
        if run["set"] in "ACD":
            made = generate(run, QUICK_SAMPLES, ruler_bundle(), counter(run["tokenizer"]))
            compare(run, made, golden[:QUICK_SAMPLES])
            compared += 1
    assert compared


def test_the_first_samples_are_of_all_tasks() -> None:
    assert {name.split(".")[2] for name in QUICK} == {*TASKS}


@pytest.mark.long("all samples of each set and length, of which the test above has the first")
@pytest.mark.parametrize("name", GOLDEN)
def test_all_samples(name: str, ruler_bundle: Find, counter: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for run, golden in runs(name):
        if run["set"] == LEFT_OUT:
            continue
        monkeypatch.setattr(generator, "_LOGS", {})  # counts of one run are not the evidence of another
        start_at(run["pre_samples"] or 0, monkeypatch)
        bundle = ruler_bundle("3.0.1" if run["set"] == "F" else "2.2.0")
        compare(run, generate(run, run["rows"], bundle, counter(run["tokenizer"])), golden)
        compared += 1
    assert compared


def start_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let question tasks begin with another question, like ``--pre_samples``, which lbx has no option for."""

    def samples(self: QuestionTexts, count: CountTokens) -> Iterator[Candidate]:
        size = self.find_size(count)
        return (self._fit(count, size, question) for question in numbers(number))

    monkeypatch.setattr(QuestionTexts, "samples", samples)


@pytest.mark.parametrize("name", [name for name in QUICK if name.endswith(".vt")])
def test_the_family_with_the_tokenizer_of_a_model(
    name: str, ruler_bundle: Find, ruler_tokenizer: Find, tmp_path: Path
) -> None:
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    from lbx.backends.cards import Chat
    from lbx.backends.tokenizer_loading import hash_tokenizer, open_tokenizer

    run, golden = next(runs(name))
    folder = ruler_tokenizer(run["tokenizer"])
    tokenizer, _ = open_tokenizer(folder, Chat(), own_template=True, debug=False)
    definition = hash_tokenizer(tokenizer, folder)
    model = UnloadedModel(None, lambda: ModelTokenizer(tokenizer, definition, 0, tokenizer.count))  # type: ignore[attr-defined]
    link_tree(ruler_bundle().root, tmp_path / "bundle")
    bundle = Bundle(tmp_path / "bundle")
    settings = tmp_path / "bundle" / FILES / SETTINGS_FILE
    settings.parent.mkdir(parents=True)
    settings.write_text(f"samples = {len(golden)}")
    family = Ruler().for_model(model, PLAIN)
    compare(run, [*family.samples(bundle, f"vt_{run['max_seq_length']}")], golden)
