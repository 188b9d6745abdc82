"""Kept token counts of RULER: the same samples without the tokenizer, after an interruption, and after damage."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from lbx.backends.scripted import ByteTokenizer
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import LbxError
from lbx.base.records import Sample
from lbx.benchmarks.base.benchmark import ModelTokenizer, UnloadedModel
from lbx.benchmarks.ruler import generator
from lbx.benchmarks.ruler.benchmark import Ruler
from lbx.benchmarks.ruler.samples import SampleSet
from lbx.benchmarks.ruler.tasks import RulerSettings
from lbx.options.asking import PLAIN
from tests.made_ruler import MakeBundle, ruler_files

TASKS = ("niah_single_2_2000", "vt_1200", "cwe_900", "fwe_900", "qa_1_700")
SAMPLES = 6
CHECKED = 2
"""Samples whose kept counts are compared with the tokenizer: the first and the last."""
each_task = pytest.mark.parametrize("task", TASKS)


class WordCounter:
    """Counter of words that raises KeyboardInterrupt after a number of texts."""

    def __init__(self, limit: int | None = None, factor: int = 1) -> None:
        self.calls = 0
        self._limit = limit
        self._factor = factor

    def __call__(self, text: str) -> int:
        if self.calls == self._limit:
            raise KeyboardInterrupt
        self.calls += 1
        return len(text.split()) * self._factor


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of kept counts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(generator, "_LOGS", {})
    return tmp_path / "cache" / "lbx" / "ruler"


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns a function that forgets the counts in memory, like a new process."""
    return lambda: monkeypatch.setattr(generator, "_LOGS", {})


@pytest.fixture
def bundle(make_bundle: MakeBundle) -> Bundle:
    return make_bundle(ruler_files())


def iterate(bundle: Bundle, task: str, count: Callable[[str], int], name: str = "words") -> Iterator[Sample]:
    return SampleSet(bundle, RulerSettings(samples=SAMPLES), name, count).samples("ruler", task)


def generate(bundle: Bundle, task: str, count: Callable[[str], int] | None = None, name: str = "words") -> list[Sample]:
    return [*iterate(bundle, task, count or WordCounter(), name)]


def contexts(samples: Iterable[Sample]) -> list[str]:
    return [sample.context for sample in samples]


@each_task
def test_a_second_iteration_counts_no_text(bundle: Bundle, task: str, forget: Callable[[], None]) -> None:
    first = generate(bundle, task, counter := WordCounter())
    assert counter.calls >= SAMPLES
    assert generate(bundle, task, WordCounter(0)) == first
    forget()
    assert generate(bundle, task, WordCounter(CHECKED)) == first
    assert generate(bundle, task, WordCounter(0)) == first


@each_task
def test_a_closed_iteration_continues(bundle: Bundle, task: str, forget: Callable[[], None]) -> None:
    whole = generate(bundle, task, counter := WordCounter(), "other")
    samples = iterate(bundle, task, begun := WordCounter())
    assert contexts(islice(samples, 3)) == contexts(whole[:3])
    samples.close()  # type: ignore[attr-defined]
    forget()
    rest = WordCounter()
    assert contexts(generate(bundle, task, rest)) == contexts(whole)
    assert begun.calls + rest.calls == counter.calls + CHECKED


@each_task
@pytest.mark.parametrize("limit", [0, 1, 4, 9])
def test_an_interrupted_iteration_continues(bundle: Bundle, task: str, limit: int, forget: Callable[[], None]) -> None:
    whole = generate(bundle, task, counter := WordCounter(), "other")
    with pytest.raises(KeyboardInterrupt):
        generate(bundle, task, WordCounter(limit))
    forget()
    assert contexts(generate(bundle, task, rest := WordCounter())) == contexts(whole)
    assert limit + rest.calls == counter.calls + (CHECKED if limit else 0)


def test_iterations_side_by_side(bundle: Bundle) -> None:
    expected = generate(bundle, "vt_1200", name="other")
    counter = WordCounter()
    pairs = [*zip(iterate(bundle, "vt_1200", counter), iterate(bundle, "vt_1200", counter), strict=True)]
    for column in zip(*pairs, strict=True):
        assert contexts(column) == contexts(expected)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "binary": lambda content: b"\xff\x00",
    "no JSON": lambda content: b"counts",
    "list": lambda content: b"[]",
    "deep": lambda content: b"[" * 100_000,
    "other counts": lambda content: json.dumps(json.loads(content) | {"counts": [[1, 1]]}).encode(),
    "texts as counts": lambda content: json.dumps(json.loads(content) | {"counts": [["a", "b"]]}).encode(),
    "no counts": lambda content: b'{"made_by": {}}',
    "another tokenizer": lambda content: content.replace(b'"tokenizer":"words"', b'"tokenizer":"other"'),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_counts_are_counted_again(
    bundle: Bundle, cache: Path, damage: str, forget: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    whole = generate(bundle, "vt_1200", counter := WordCounter())
    (file,) = cache.iterdir()
    content = file.read_bytes()
    assert DAMAGE[damage](content) != content
    file.write_bytes(DAMAGE[damage](content))
    forget()
    assert generate(bundle, "vt_1200", again := WordCounter()) == whole
    assert again.calls == counter.calls
    assert f"{file}" in caplog.text
    assert "counted again" in caplog.text
    assert file.read_bytes() == content


Counts = list[list[int]]
POISON: dict[str, Callable[[Counts], object]] = {
    "larger": lambda counts: [entry.__setitem__(1, entry[1] + 1) for entry in counts],
    "smaller": lambda counts: [entry.__setitem__(1, entry[1] - 1) for entry in counts],
    "far larger": lambda counts: [entry.__setitem__(1, entry[1] * 100) for entry in counts],
    "none": lambda counts: [entry.__setitem__(1, 0) for entry in counts],
    "the first": lambda counts: counts[0].__setitem__(1, counts[0][1] * 3),
    "one of the search": lambda counts: counts[1].__setitem__(1, counts[1][1] * 100),
    "the last": lambda counts: counts[-1].__setitem__(1, counts[-1][1] - 1),
}


@each_task
@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("is_bundled", [False, True])
def test_wrong_counts_with_a_right_checksum(
    bundle: Bundle,
    cache: Path,
    task: str,
    poison: str,
    is_bundled: bool,
    forget: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = generate(bundle, task)
    (file,) = cache.iterdir()
    content = json.loads(file.read_bytes())
    right = json.dumps(content["counts"])
    POISON[poison](content["counts"])
    assert json.dumps(content["counts"]) != right
    digest = generator._digest_of([tuple(entry) for entry in content["counts"]])
    file.write_text(json.dumps(content | {"sha256": digest}))
    if is_bundled:
        cache.rename(bundle.root / "data" / "files" / "ruler" / "counts")
    forget()
    assert generate(bundle, task) == whole
    if poison not in ("the first", "one of the search"):  # which may decide the same
        assert "counted again" in caplog.text
        assert json.loads((cache / file.name).read_bytes())["counts"] == json.loads(right)


@pytest.mark.parametrize(("changed", "has_yielded_it"), [(50, False), (60, True)])
def test_a_wrong_count_after_the_first_sample(
    bundle: Bundle, cache: Path, changed: int, has_yielded_it: bool, forget: Callable[[], None]
) -> None:
    """One of the 50 between two checks is found with the next one: then the command must be repeated."""

    def draw() -> Iterator[Sample]:
        return SampleSet(bundle, RulerSettings(samples=120), "words", WordCounter()).samples("ruler", "vt_1200")

    whole = list(draw())
    (file,) = cache.iterdir()
    content = json.loads(file.read_bytes())
    counts = content["counts"][-120:]  # each sample fits at once
    for entry in {changed, 100} if has_yielded_it else {changed}:
        counts[entry][1] -= 1
    file.write_text(json.dumps(content | {"sha256": generator._digest_of(content["counts"])}))
    forget()
    if has_yielded_it:
        with pytest.raises(LbxError, match=r"wrong token counts.*Repeat the command"):
            list(draw())
    assert list(draw()) == whole


def test_counts_under_the_name_of_others(
    bundle: Bundle, cache: Path, forget: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Renamed files of another tokenizer and of another length."""
    whole = generate(bundle, "vt_1200")
    (own,) = cache.iterdir()
    generate(bundle, "vt_1200", WordCounter(factor=2), "longer")
    generate(bundle, "vt_1300")
    for other in {*cache.iterdir()} - {own}:
        own.write_bytes(other.read_bytes())
        caplog.clear()
        forget()
        assert generate(bundle, "vt_1200") == whole
        assert "counted again" in caplog.text


def test_counts_of_the_bundle(bundle: Bundle, cache: Path, forget: Callable[[], None]) -> None:
    whole = generate(bundle, "vt_1200")
    folder = bundle.root / "data" / "files" / "ruler" / "counts"
    cache.rename(folder)
    forget()
    assert generate(bundle, "vt_1200", WordCounter(CHECKED)) == whole
    assert not cache.exists()


@pytest.mark.parametrize("obstacle", ["file", "read-only", "relative", "none"])
def test_counts_that_cannot_be_kept(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str, forget: Callable[[], None]
) -> None:
    whole = generate(bundle, "vt_1200")
    folder = tmp_path / "other"
    if obstacle == "file":
        folder.write_text("")
    elif obstacle == "read-only":
        folder.mkdir(0o500)
    home = {"HOME": str(folder), "XDG_CACHE_HOME": "here" if obstacle == "relative" else str(folder)}
    if obstacle == "none":
        home = {"HOME": "/dev/null", "XDG_CACHE_HOME": ""}
    for name, value in home.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    forget()
    assert generate(bundle, "vt_1200") == whole
    assert not (tmp_path / "here").exists()


CHILD = """
import sys
from pathlib import Path
from lbx.base.bundle_folder import Bundle
from lbx.benchmarks.ruler.samples import SampleSet
from lbx.benchmarks.ruler.tasks import RulerSettings
made = SampleSet(Bundle(Path(sys.argv[1])), RulerSettings(samples=40), "words", lambda text: len(text.split()))
for task in sys.argv[2:]:
    for sample in made.samples("ruler", task):
        print(sample.sample_id, hash(sample.context), sample.references)
foreign = {"nltk", "wonderwords", "scipy", "transformers", "torch"} & {*sys.modules}
assert not foreign, foreign
"""


def start(bundle: Bundle, tasks: tuple[str, ...], **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(bundle.root), *tasks]
    environment = {**os.environ, "PYTHONHASHSEED": "0", **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_processes_at_once_make_the_same_samples(bundle: Bundle, cache: Path) -> None:
    processes = [start(bundle, TASKS[:3]) for _ in range(3)]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(outputs[0].splitlines()) == 120
    assert len({*outputs}) == 1
    assert len([*cache.iterdir()]) == 3


def test_other_packages_change_no_sample(bundle: Bundle, tmp_path: Path) -> None:
    """Newer nltk and wonderwords, or none: no package of theirs is imported."""
    packages = tmp_path / "packages"
    for name in ("nltk", "wonderwords"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text("raise AssertionError('imported')\n")
    plain, other = (
        start(bundle, TASKS[:4], XDG_CACHE_HOME=str(tmp_path / f"cache{number}"), PYTHONPATH=path)
        for number, path in enumerate(("", str(packages)))
    )
    outputs = [process.communicate(timeout=120)[0] for process in (plain, other)]
    assert (plain.returncode, other.returncode) == (0, 0)
    assert outputs[0] == outputs[1] != ""


def load_tokenizer(sha256: str) -> ModelTokenizer:
    tokenizer = ByteTokenizer(None, None)
    size = 2 if sha256 == "half" else 1
    return ModelTokenizer(tokenizer, sha256, 0, lambda text: len(tokenizer.encode(text, special=True)) // size)


def test_a_bound_family_is_pickled_before_and_after_its_samples(bundle: Bundle) -> None:
    family = Ruler().for_model(UnloadedModel(None, partial(load_tokenizer, "a")), PLAIN)
    before = pickle.dumps(family)
    samples = [*family.samples(bundle, "niah_multikey_3_8000")]
    assert len(samples) == 3
    for content in (before, pickle.dumps(family)):
        assert [*pickle.loads(content).samples(bundle, "niah_multikey_3_8000")] == samples


def test_samples_share_an_id_if_tokenizers_count_alike(bundle: Bundle) -> None:
    """Two formats of a model have tokenizers of their own, and the same samples."""
    first, second, other = (
        {sample.sample_id for sample in Ruler().for_model(model, PLAIN).samples(bundle, "niah_multikey_3_8000")}
        for model in (UnloadedModel(None, partial(load_tokenizer, name)) for name in ("a", "b", "half"))
    )
    assert len(first) == len(other) == 3
    assert first == second and not first & other
