"""Needle retrieval, made by lbx itself: codes hidden in a text of any length, at any depth, asked for afterwards.

Source: lbx's own generator, a synthetic test of the widely used needle-in-a-haystack kind. Six tasks, if the
bundle's settings keep both languages:

    single_en     single_zh       the text has one code, which is asked for
    multikey_en   multikey_zh     the text has several codes; one of them is asked for
    multiquery_en multiquery_zh   the text has several codes; two of them are asked for

A document is a haystack of small unrelated sentences with needle sentences between them ("The code for maple is
4821."). The seed, the length and the sample's number choose haystack, keys and values; the depth moves only the
asked needle. So samples that differ in depth or task have no other differences, and share their documents' beginnings.
The settings come from ``needle/needle.toml`` in the bundle; without it the defaults below apply, and "all" leaves the
tasks out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from lbx.base.commands import as_command
from lbx.base.errors import BundleError, UsageError
from lbx.base.layout import Bundle
from lbx.base.records import (
    PLAIN,
    Chunk,
    GroupScore,
    Mode,
    Prompt,
    Sample,
    Score,
    ScoredSample,
    Task,
    TaskScore,
    Truncation,
)
from lbx.base.tables import check_keys, read_table
from lbx.benchmarks.base.aggregates import task_score
from lbx.benchmarks.base.benchmark import Benchmark, ScoringRules
from lbx.benchmarks.base.sources import DataSource
from lbx.benchmarks.needle.text import LANGUAGES, Language, pick_several

SETTINGS_FILE = "needle/needle.toml"
KINDS = ("single", "multikey", "multiquery")

_NUMBER = re.compile(r"[0-9]{1,3}(?:[,，][0-9]{3})+(?![0-9])|[0-9]+(?:\.[0-9]+)?")
"""A whole number as people write it: digits, maybe in groups of three, maybe with decimals."""

_DIGITS = {ord(wide): narrow for wide, narrow in zip("０１２３４５６７８９", "0123456789", strict=True)}

_NEW_TOKENS_PER_ANSWER = 32


@dataclass(frozen=True, slots=True)
class NeedleSettings:
    """Settings in ``needle.toml``.

    Attributes:
        seed: another seed gives other haystacks, keys and values.
        languages: some of "en" and "zh".
        lengths: of the documents, in words (en) or characters (zh), needles included.
        depths: positions of the asked needle, 0 (first sentence) to 1 (last sentence).
        samples_per_cell: samples of each length and depth.
        multikey_needles, multiquery_needles: needles in a document of these tasks.
        multiquery_asked: number of needles that a multiquery question asks for.
        value_digits: digits of a value.

    Raises:
        UsageError: a value is of the wrong type, or cannot be satisfied.
    """

    seed: int = 2026
    languages: tuple[str, ...] = ("en", "zh")
    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048)
    depths: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    samples_per_cell: int = 4
    multikey_needles: int = 4
    multiquery_needles: int = 4
    multiquery_asked: int = 2
    value_digits: int = 4

    def __post_init__(self) -> None:
        _check(_is_int(self.seed), "seed", self.seed, "a whole number")
        _check_list("languages", self.languages, lambda x: x in LANGUAGES, 'of "en" and "zh"')
        _check_list("lengths", self.lengths, lambda x: _is_int(x) and x > 0, "of whole numbers over 0")
        _check_list("depths", self.depths, _is_share, "of numbers from 0 to 1")
        percents = {round(100 * x) for x in self.depths}
        _check(len(percents) == len(self.depths), "depths", self.depths, "at least a hundredth apart")
        most = min(len(LANGUAGES[name].keys) for name in self.languages)
        for name, least, limit in (
            ("samples_per_cell", 1, 1000),
            ("multikey_needles", 2, most),
            ("multiquery_needles", 2, most),
            ("multiquery_asked", 2, self.multiquery_needles),
            ("value_digits", 3, 12),
        ):
            value = getattr(self, name)
            _check(_is_int(value) and least <= value <= limit, name, value, f"a whole number from {least} to {limit}")
        self._check_room()

    def _check_room(self) -> None:
        needles = max(self.multikey_needles, self.multiquery_needles)
        for name in self.languages:
            language = LANGUAGES[name]
            longest = max(language.keys, key=language.count)
            least = needles * language.count(language.needle(longest, "0" * self.value_digits))
            _check(
                min(self.lengths) >= least,
                "lengths",
                min(self.lengths),
                f"at least {least} {language.unit}, so that {needles} needles ({name}) fit",
            )

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> NeedleSettings:
        """Return the settings of the bundle's ``needle.toml``, or the defaults without it.

        Raises:
            BundleError: the file is not TOML, or has an invalid setting.
        """
        path = bundle.file(SETTINGS_FILE)
        if path is None:
            return cls()
        try:
            table, _ = read_table(path, "The needle settings")
            check_keys(table, [field.name for field in fields(cls)], f"{path}:")
            values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in table.items()}
            return cls(**values)
        except UsageError as exc:
            fix = f"{exc.fix} Correct {path} where the bundle is made, and make the bundle again."
            raise BundleError(exc.cause, fix=fix.strip()) from exc


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _check(good: bool, name: str, value: object, wanted: str) -> None:
    if not good:
        raise UsageError(f"The needle setting {name} is {value!r} and must be {wanted}.")


def _check_list(name: str, value: object, good: Callable[[Any], bool], wanted: str) -> None:
    fine = isinstance(value, tuple) and bool(value) and all(good(x) for x in value) and len(set(value)) == len(value)
    _check(fine, name, value, f"a list {wanted}, none twice and at least one")


def make_needles(
    rng_keys: random.Random, rng_values: random.Random, language: Language, count: int, digits: int
) -> list[tuple[str, str]]:
    """Return ``count`` different keys with different values of ``digits`` digits; smaller counts give prefixes."""
    values: list[str] = []
    while len(values) < count:
        value = str(10 ** (digits - 1) + int(rng_values.random() * 9 * 10 ** (digits - 1)))
        if value not in values:
            values.append(value)
    return list(zip(pick_several(rng_keys, language.keys, count), values, strict=True))


def make_document(
    rng_haystack: random.Random,
    rng_places: random.Random,
    language: Language,
    needles: Sequence[tuple[str, str]],
    *,
    length: int,
    depth: float,
) -> str:
    """Return a haystack with needles between its sentences.

    Args:
        needles: (key, value); the first is put at ``depth``, the others anywhere.
        length: target length in the language's unit; the document comes closest to it in whole sentences.
        depth: share of the rest of the document before the first needle, to the nearest sentence.
    """
    first, *others = (language.needle(key, value) for key, value in needles)
    room = length - sum(language.count(text) for text in (first, *others))
    lines = _haystack(rng_haystack, language, room)
    slots = sorted(int(rng_places.random() * (len(lines) + 1)) for _ in others)
    for done, (slot, text) in enumerate(zip(slots, others, strict=True)):
        lines.insert(slot + done, text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + language.count(line))
    lines.insert(min(range(len(starts)), key=lambda i: abs(starts[i] - depth * starts[-1])), first)
    return language.joiner.join(lines)


def _haystack(rng: random.Random, language: Language, room: int) -> list[str]:
    lines: list[str] = []
    for line in language.sentences(rng):
        more = language.count(line)
        # The last sentence stays if the text is closer to its length with it than without.
        if more > 2 * room:
            break
        lines.append(line)
        room -= more
    return lines


class Needle(Benchmark):
    name = "needle"
    metric_version = 1
    # Without settings in the bundle it can be asked, but only by name.
    data = DataSource(required_file=SETTINGS_FILE)
    scoring = ScoringRules(average_of="mean of questions")

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Return six tasks, or three if the settings name one language. They need no data: any bundle will do."""
        settings = NeedleSettings.from_bundle(bundle)
        samples = len(settings.lengths) * len(settings.depths) * settings.samples_per_cell
        return [
            Task(self.name, f"{kind}_{language}", ("recall",), samples, language)
            for kind in KINDS
            for language in settings.languages
        ]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield samples by length, then number, then depth: neighbours share their document up to the asked needle."""
        settings = NeedleSettings.from_bundle(bundle)
        kind, _, language = task.partition("_")
        if kind not in KINDS or language not in settings.languages:
            names = ", ".join(t.name for t in self.tasks(bundle))
            raise UsageError(
                f'The needle benchmark has no task "{task}" in this bundle.',
                fix=f"It has {names}.",
                command=as_command("lbx", "tasks", "--bundle", bundle.root),
            )
        for length in settings.lengths:
            for index in range(settings.samples_per_cell):
                for depth in settings.depths:
                    yield make_sample(settings, kind, language, length=length, depth=depth, index=index)

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Return lbx's own prompt; it ends in the words that the first needle's sentence begins with."""
        return make_prompt(sample)

    def evidence(self, sample: Sample) -> Sequence[str]:
        """Return the asked values, which occur in the document."""
        return sample.references

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Return recall: the share of the asked values that occur in the output as whole numbers."""
        numbers = {re.sub("[,，]", "", number) for number in _NUMBER.findall(output.translate(_DIGITS))}
        hits = [value for value in sample.references if value in numbers]
        return [Score("recall", len(hits) / len(sample.references), " ".join(hits) or None)]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[TaskScore]:
        """Return mean recall over all lengths and depths; ``official`` is the mean in percent."""
        return [replace(one, official=100 * one.score) for one in task_score("recall", rows, "recall", None)]

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[GroupScore]:
        """Return mean recall by "kind", "language", "length" (words and characters separate), "depth" and "overall"."""
        cells: dict[tuple[str, str], list[ScoredSample]] = {}
        rows = [row for scored in tasks.values() for row in scored]
        rows.sort(key=lambda row: (row.sample.length_unit, row.sample.length, row.sample.meta["depth"]))
        for grouping in ("kind", "language", "length", "depth", "overall"):
            for row in rows:
                cells.setdefault((grouping, _group_name(grouping, row.sample)), []).append(row)
        return [
            GroupScore(grouping, name, "recall", one.n, one.score, 100 * one.score, estimate=one.estimate)
            for (grouping, name), members in cells.items()
            for one in task_score("recall", members, "recall", None)
        ]


def _group_name(grouping: str, sample: Sample) -> str:
    match grouping:
        case "kind":
            return sample.task.partition("_")[0]
        case "language":
            return sample.language
        case "length":
            return f"{sample.length} {sample.length_unit}"
        case "depth":
            return f"{100 * sample.meta['depth']:g}%"
        case _:
            return "all"


def make_sample(settings: NeedleSettings, kind: str, language: str, *, length: int, depth: float, index: int) -> Sample:
    """Return a sample; the same arguments always give the same sample, on every machine and Python."""
    count = {"single": 1, "multikey": settings.multikey_needles, "multiquery": settings.multiquery_needles}[kind]
    n_asked = settings.multiquery_asked if kind == "multiquery" else 1
    words = LANGUAGES[language]
    haystack, places, keys, values = (
        random.Random(f"lbx-needle/{settings.seed}/{language}/{length}/{index}/{part}")  # noqa: S311 - a test, not a secret
        for part in ("haystack", "places", "keys", "values")
    )
    needles = make_needles(keys, values, words, count, settings.value_digits)
    context = make_document(haystack, places, words, needles, length=length, depth=depth)
    asked_keys = [key for key, _ in needles[:n_asked]]
    return Sample(
        benchmark=Needle.name,
        task=f"{kind}_{language}",
        sample_id=f"len{length:04d}-depth{round(100 * depth):03d}-{index:02d}",
        context=context,
        question=words.question(asked_keys),
        references=tuple(value for _, value in needles[:n_asked]),
        language=language,
        length=length,
        length_unit=words.unit,
        meta={"depth": depth, "needles": count, "keys": asked_keys, "document_length": words.count(context)},
    )


def make_prompt(sample: Sample) -> Prompt:
    """Return the prompt of one sample, without a bundle."""
    return Prompt(
        before=LANGUAGES[sample.language].before,
        document=sample.context,
        after="\n\n" + sample.question,
        max_new_tokens=_NEW_TOKENS_PER_ANSWER * len(sample.references),
        truncation=Truncation.REFUSE,
    )
