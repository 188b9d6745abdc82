import dataclasses
import hashlib
import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.base.records import Sample, ScoredSample, Truncation, canonical_json
from lbx.benchmarks.needle import KINDS, LANGUAGES, Needle, NeedleSettings, make_sample
from tests.profiles import examples

NUMBER = re.compile(r"\d+")
DEFAULTS = NeedleSettings()


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    (tmp_path / "lbx").mkdir()
    (tmp_path / "lbx" / "bundle.json").write_text('{"name": "t", "sources": []}')
    (tmp_path / "tagmanifest-sha256.txt").write_text("")
    return Bundle(tmp_path)


def configure(bundle: Bundle, text: str) -> Bundle:
    path = bundle.root / "data" / "files" / "needle" / "needle.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return bundle


def asked_sentence(sample: Sample) -> str:
    return LANGUAGES[sample.language].needle(sample.meta["keys"][0], sample.references[0])


def test_tasks_of_the_defaults(bundle: Bundle) -> None:
    tasks = Needle().tasks(bundle)
    assert [t.name for t in tasks] == [
        "single_en", "single_zh", "multikey_en", "multikey_zh", "multiquery_en", "multiquery_zh",
    ]  # fmt: skip
    assert {(t.benchmark, t.metrics, t.samples) for t in tasks} == {("needle", ("recall",), 120)}
    for task in tasks:
        samples = list(Needle().samples(bundle, task.name))
        assert len(samples) == task.samples
        assert len({s.sample_id for s in samples}) == task.samples
        assert {s.language for s in samples} == {task.language}
        assert {s.task for s in samples} == {task.name}


GOLDEN = {
    ("single", "en"): "7190fc811acf1563bda90f48acd0a2c060968ccfc9f9ad9b548280856a586185",
    ("multikey", "zh"): "e4bb442281c62a0a94e5c514a6b6b43d97e81ad39b6d7db25596936de8bdf10a",
    ("multiquery", "en"): "ac221312ba07c2c0d42ba6ea90ddf9287123e682e3e682991940db30e389bdc0",
}


@pytest.mark.parametrize(("kind", "language"), GOLDEN)
def test_a_sample_is_the_same_everywhere(kind: str, language: str) -> None:
    sample = make_sample(DEFAULTS, kind, language, length=512, depth=0.5, index=3)
    assert sample.sample_id == "len0512-depth050-03"
    digest = hashlib.sha256(canonical_json(dataclasses.asdict(sample)).encode()).hexdigest()
    assert digest == GOLDEN[kind, language]


def test_another_seed_gives_another_text() -> None:
    one, other = (
        make_sample(NeedleSettings(seed=seed), "single", "en", length=128, depth=0.5, index=0) for seed in (1, 2)
    )
    assert one.context != other.context
    assert one.references != other.references


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [64, 256, 2048])
@pytest.mark.parametrize("depth", [0.0, 0.3, 0.75, 1.0])
def test_needle_stands_at_the_asked_depth(kind: str, language: str, length: int, depth: float) -> None:
    words = LANGUAGES[language]
    for index in range(3):
        sample = make_sample(DEFAULTS, kind, language, length=length, depth=depth, index=index)
        before, found, after = sample.context.partition(asked_sentence(sample))
        assert found
        first, last = words.count(before), words.count(after)
        longest_sentence = 40
        assert abs(first - depth * (first + last)) <= longest_sentence / 2
        if depth == 0:
            assert before == ""
        if depth == 1:
            assert after == ""


def test_depth_and_task_change_nothing_but_the_needles() -> None:
    documents = [
        make_sample(DEFAULTS, kind, "en", length=256, depth=depth, index=1)
        for kind in ("single", "multikey")
        for depth in (0.0, 0.5, 1.0)
    ]
    haystacks = [re.sub(r" ?The code for \w+ is \d+\.", "", s.context).strip() for s in documents]
    assert haystacks[0] == haystacks[1] == haystacks[2]
    assert haystacks[0].startswith(haystacks[3])  # three more needles leave room for fewer sentences
    assert len({s.references for s in documents}) == 1


@settings(max_examples=examples(150), deadline=None)
@given(
    seed=st.integers(0, 2**63),
    kind=st.sampled_from(KINDS),
    language=st.sampled_from(sorted(LANGUAGES)),
    length=st.integers(64, 3000),
    depth=st.floats(0, 1),
    index=st.integers(0, 999),
)
def test_every_sample_is_well_formed(
    seed: int, kind: str, language: str, length: int, depth: float, index: int
) -> None:
    chosen = NeedleSettings(seed=seed)
    sample = make_sample(chosen, kind, language, length=length, depth=depth, index=index)
    words = LANGUAGES[language]
    assert sample == make_sample(chosen, kind, language, length=length, depth=depth, index=index)
    assert abs(words.count(sample.context) - length) <= 20  # half of the longest sentence
    assert sample.length == length
    assert sample.length_unit == words.unit
    assert sample.meta["document_length"] == words.count(sample.context)
    numbers = NUMBER.findall(sample.context)
    assert len(numbers) == len(set(numbers)) == sample.meta["needles"] == (1 if kind == "single" else 4)
    assert len(sample.references) == len(sample.meta["keys"]) == (2 if kind == "multiquery" else 1)
    for key, value in zip(sample.meta["keys"], sample.references, strict=True):
        assert sample.context.count(words.needle(key, value)) == 1
        assert sample.context.count(key) == 1
        assert len(value) == 4
    json.loads(canonical_json(sample.meta))


@pytest.mark.parametrize("language", LANGUAGES)
def test_haystack_never_holds_a_key_a_digit_or_a_sentence_twice(language: str) -> None:
    words = LANGUAGES[language]
    everything = [*words.templates, *(word for several in words.words.values() for word in several)]
    assert not [key for key in words.keys if any(key in text for text in everything)]
    assert len(set(words.keys)) == len(words.keys)
    sample = make_sample(DEFAULTS, "single", language, length=20_000, depth=0.5, index=0)
    sentences = re.split(r"(?<=[.。])\s*", sample.context.replace(asked_sentence(sample), ""))
    sentences = [s.strip() for s in sentences if s.strip()]
    assert len(sentences) == len(set(sentences)) > 800
    assert not NUMBER.search("".join(sentences))


def test_chinese_documents_are_chinese(bundle: Bundle) -> None:
    for sample in Needle().samples(configure(bundle, "lengths = [256]"), "multikey_zh"):
        assert re.fullmatch(r"[\u4e00-\u9fff，。、0-9 ]+", sample.context)
        assert re.fullmatch(r"[\u4e00-\u9fff，。：\n]+", sample.question)


def test_prompt_ends_in_the_beginning_of_the_needle_sentence(bundle: Bundle) -> None:
    benchmark = Needle()
    for task in benchmark.tasks(bundle):
        sample = next(benchmark.samples(bundle, task.name))
        prompt = benchmark.prompt(bundle, sample)
        lead, _, _ = asked_sentence(sample).partition(" " + sample.references[0])
        assert prompt.after.endswith("\n" + ("Answer: " if task.language == "en" else "回答：") + lead)
        assert prompt.document == sample.context
        assert not any(value in prompt.before + prompt.after for value in sample.references)
        assert all(key in prompt.after for key in sample.meta["keys"])
        assert prompt.truncation is Truncation.REFUSE
        assert prompt.chat
        assert prompt.temperature is None
        assert prompt.max_new_tokens == 32 * len(sample.references)
        assert prompt.source == "lbx"


def test_neighbours_share_their_documents_beginning(bundle: Bundle) -> None:
    samples = list(Needle().samples(configure(bundle, "lengths = [512]\nsamples_per_cell = 1"), "single_en"))
    assert [s.meta["depth"] for s in samples] == [0.0, 0.25, 0.5, 0.75, 1.0]
    late, last = samples[3].context, samples[4].context
    shared = next(i for i, (a, b) in enumerate(zip(late, last, strict=False)) if a != b)
    assert shared > 0.7 * len(last)


def sample_with(*values: str) -> Sample:
    return Sample("needle", "multiquery_en", "x", "", "", values)


@pytest.mark.parametrize(
    ("output", "values", "score", "extracted"),
    [
        ("4821", ("4821",), 1.0, "4821"),
        (" 4821.", ("4821",), 1.0, "4821"),
        ("The code is 4821, I believe.", ("4821",), 1.0, "4821"),
        ("**4821**", ("4821",), 1.0, "4821"),
        ("密码是4821。", ("4821",), 1.0, "4821"),
        ("４８２１", ("4821",), 1.0, "4821"),
        ("4,821", ("4821",), 1.0, "4821"),
        ("4，821", ("4821",), 1.0, "4821"),
        ("code4821", ("4821",), 1.0, "4821"),
        ("14821", ("4821",), 0.0, None),
        ("48210", ("4821",), 0.0, None),
        ("04821", ("4821",), 0.0, None),
        ("4821.5", ("4821",), 0.0, None),
        ("1.4821", ("4821",), 0.0, None),
        ("14,821", ("4821",), 0.0, None),
        ("4821,302", ("4821",), 1.0, "4821"),
        ("48 21", ("4821",), 0.0, None),
        ("", ("4821",), 0.0, None),
        ("none", ("4821",), 0.0, None),
        ("4821. The code for oak is 7302.", ("4821", "7302"), 1.0, "4821 7302"),
        ("7302 and 4821", ("4821", "7302"), 1.0, "4821 7302"),
        ("4821, 4821", ("4821", "7302"), 0.5, "4821"),
        ("1111 7302", ("4821", "7302"), 0.5, "7302"),
        ("1111 2222", ("4821", "7302"), 0.0, None),
    ],
)
def test_recall(output: str, values: tuple[str, ...], score: float, extracted: str | None) -> None:
    (found,) = Needle().score(sample_with(*values), output)
    assert (found.metric, found.score, found.extracted) == ("recall", score, extracted)


@given(value=st.integers(1000, 9999).map(str), before=st.text("0123456789", max_size=3), after=st.text("0123456789"))
def test_a_value_inside_a_longer_number_is_not_found(value: str, before: str, after: str) -> None:
    (found,) = Needle().score(sample_with(value), f"it is {before}{value}{after} !")
    assert found.score == (0.0 if before or after else 1.0)


def test_aggregate_is_the_mean() -> None:
    rows = [ScoredSample(sample_with("1"), {"recall": score}) for score in (1.0, 0.5, 0.0, 0.0)]
    (score,) = Needle().aggregate("multiquery_en", rows)
    assert (score.metric, score.n, score.score, score.official) == ("recall", 4, 0.375, 37.5)
    assert Needle().aggregate("multiquery_en", []) == []


def test_settings_of_the_bundle(bundle: Bundle) -> None:
    configure(
        bundle, 'languages = ["zh"]\nlengths = [100]\ndepths = [0, 0.5]\nsamples_per_cell = 3\nmultikey_needles = 7'
    )
    assert [(t.name, t.samples) for t in Needle().tasks(bundle)] == [
        ("single_zh", 6), ("multikey_zh", 6), ("multiquery_zh", 6),
    ]  # fmt: skip
    assert [s.sample_id for s in Needle().samples(bundle, "multikey_zh")][:3] == [
        "len0100-depth000-00", "len0100-depth050-00", "len0100-depth000-01",
    ]  # fmt: skip
    assert {s.meta["needles"] for s in Needle().samples(bundle, "multikey_zh")} == {7}
    with pytest.raises(UsageError, match="single_en"):
        list(Needle().samples(bundle, "single_en"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("lengths = [", "TOML"),
        ("length = [64]", "length"),
        ("lengths = []", "lengths"),
        ("lengths = 64", "lengths"),
        ("lengths = [64, 64]", "lengths"),
        ('lengths = ["64"]', "lengths"),
        ("lengths = [[64]]", "lengths"),
        ("lengths = [8]", "at least"),
        ("depths = [1.5]", "depths"),
        ("depths = [true]", "depths"),
        ("depths = [nan]", "depths"),
        ("depths = [0.5, 0.501]", "depths"),
        ('languages = ["fr"]', "languages"),
        ('languages = "en"', "languages"),
        ("languages = [1]", "languages"),
        ("samples_per_cell = 0", "samples_per_cell"),
        ("samples_per_cell = 1.5", "samples_per_cell"),
        ("seed = true", "seed"),
        ("multikey_needles = 1", "multikey_needles"),
        ("multikey_needles = 65", "multikey_needles"),
        ("multiquery_asked = 5", "multiquery_asked"),
        ("value_digits = 2", "value_digits"),
    ],
)
def test_bad_settings_are_named(bundle: Bundle, text: str, named: str) -> None:
    configure(bundle, text)
    with pytest.raises(BundleError, match=r"needle\.toml") as caught:
        Needle().tasks(bundle)
    assert named in str(caught.value)
    assert caught.value.fix


def test_bytes_that_are_no_text_are_named(bundle: Bundle) -> None:
    configure(bundle, "")
    (bundle.root / "data/files/needle/needle.toml").write_bytes(b"seed = \xff")
    with pytest.raises(BundleError, match="line 1: it is not UTF-8"):
        Needle().tasks(bundle)


def test_settings_made_in_code_are_checked() -> None:
    with pytest.raises(UsageError, match="samples_per_cell"):
        NeedleSettings(samples_per_cell=-1)


def test_the_demo_bundle_shows_every_setting(bundle: Bundle) -> None:
    text = (Path(__file__).parents[2] / "bundle" / "needle" / "needle.toml").read_text("utf-8")
    asked = NeedleSettings.from_bundle(configure(bundle, text))
    assert set(tomllib.loads(text)) == {field.name for field in dataclasses.fields(NeedleSettings)}
    assert set(asked.lengths) < set(DEFAULTS.lengths)


def test_groups(bundle: Bundle) -> None:
    """Recall by kind, language, length, depth and overall; lengths in words and in characters stay apart."""
    settings = configure(bundle, "lengths = [64, 128]\ndepths = [0.0, 0.125]\nsamples_per_cell = 1\n")
    tasks = {}
    for name in ("single_en", "single_zh", "multiquery_en"):
        samples = list(Needle().samples(settings, name))
        tasks[name] = [
            ScoredSample(sample, {"recall": float(sample.language == "zh" or sample.meta["depth"] == 0)})
            for sample in samples
        ]
    found = [(g.grouping, g.name, g.n, g.official) for g in Needle().groups(tasks)]
    assert sorted(found) == sorted(
        [
            ("kind", "single", 8, 75.0),
            ("kind", "multiquery", 4, 50.0),
            ("language", "en", 8, 50.0),
            ("language", "zh", 4, 100.0),
            ("length", "64 words", 4, 50.0),
            ("length", "128 words", 4, 50.0),
            ("length", "64 characters", 2, 100.0),
            ("length", "128 characters", 2, 100.0),
            ("depth", "0%", 6, 100.0),
            ("depth", "12.5%", 6, pytest.approx(100 / 3)),
            ("overall", "all", 12, pytest.approx(200 / 3)),
        ]
    )
    assert {group.metric for group in Needle().groups(tasks)} == {"recall"}
    assert Needle().groups({}) == []
