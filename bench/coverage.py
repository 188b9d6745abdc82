"""How often intervals contain the true value in simulated data sets: the table of docs/intervals.md.

Every kind of interval is computed by lbx's own functions, on scores drawn from known distributions: right and wrong,
F1-like (zeros, ones and values between), narrow, and skewed; on 2 to 30 documents with one question, with five, or with
unequal numbers of them. Scores of one document are alike (intraclass correlation 0.3). Averages have parts of unequal
size, constant parts and failed answers; iterations are several answers to a question. A row of the table has, for each
kind, the lowest coverage over its settings among those that print an interval in a tenth of the data sets or more, its
setting, and the mean.

    python -m bench.coverage                 # 1,000 data sets of each setting: a few minutes
    python -m bench.coverage --sets 200      # a quick look
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from lbx.opinions.aggregation import estimate as opinion_estimate
from lbx.statistics.agreement import alpha
from lbx.statistics.differences import difference
from lbx.statistics.estimates import Estimate, Stratum, interval

Array = np.ndarray[Any, Any]
Ends = tuple[float | None, float | None]

DOCUMENTS = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30)
CORRELATION = 0.3
SEED = 20261129

_PLACES = np.linspace(-6, 6, 4001)
_SHARES = np.array([NormalDist().cdf(place) for place in _PLACES])


@dataclass(frozen=True, slots=True)
class Setting:
    """Kind of interval with the distribution of its data; ``draw`` returns the ends of one data set's interval."""

    kind: str
    name: str
    truth: float
    draw: Callable[[np.random.Generator], Ends]


def documents_of(sizes: str, count: int) -> Array:
    """Document of each question: ``count`` documents with one, five or unequal numbers of questions."""
    each = {"one": [1], "five": [5], "unequal": [12, 6, 3, 2, 1]}[sizes]
    return np.repeat(np.arange(count), [each[at % len(each)] for at in range(count)])


def uniform(random: np.random.Generator, documents: Array) -> Array:
    """Uniform numbers, alike within a document."""
    shared = 0.0 if len(documents) == documents[-1] + 1 else CORRELATION
    common = random.normal(size=documents[-1] + 1)[documents]
    z = np.sqrt(shared) * common + np.sqrt(1 - shared) * random.normal(size=len(documents))
    return np.asarray(np.interp(z, _PLACES, _SHARES))


def right(share: float) -> Callable[[Array], Array]:
    return lambda u: (u < share).astype(float)


def f1_like(zeros: float, ones: float) -> Callable[[Array], Array]:
    def scores(u: Array) -> Array:
        between = 1 - np.sqrt(1 - np.clip((u - zeros) / (1 - zeros - ones), 0, 1))
        return np.where(u < zeros, 0.0, np.where(u > 1 - ones, 1.0, between))

    return scores


def narrow(u: Array) -> Array:
    return 0.4 + 0.2 * u


def skewed(u: Array) -> Array:
    return np.asarray(0.8 * u**4)


SCORES: dict[str, tuple[Callable[[Array], Array], float]] = {
    "half right": (right(0.5), 0.5),
    "a tenth right": (right(0.1), 0.1),
    "97 of 100 right": (right(0.97), 0.97),
    "F1": (f1_like(0.4, 0.2), 0.2 + 0.4 / 3),
    "F1, mostly 0": (f1_like(0.7, 0.05), 0.05 + 0.25 / 3),
    "narrow": (narrow, 0.5),
    "skewed": (skewed, 0.16),
}


def estimate_of(documents: Array, values: Array, part: int = 0, samples: Array | None = None) -> Estimate:
    rows = np.arange(len(values)) if samples is None else samples
    return Estimate((Stratum(1.0, 10_000 * part + rows, 10_000 * part + documents, values),))


def _ends(estimate: Estimate) -> Ends:
    found = interval(estimate)
    return found.low, found.high


def score_settings() -> Iterator[Setting]:
    for name, (scores, truth) in SCORES.items():
        for sizes in ("one", "five", "unequal"):
            for count in DOCUMENTS:
                documents = documents_of(sizes, count)

                def draw(random: np.random.Generator, scores=scores, documents=documents) -> Ends:  # type: ignore[no-untyped-def]
                    return _ends(estimate_of(documents, scores(uniform(random, documents))))

                yield Setting("score of a task", f"{name}, {count} documents, {sizes}", truth, draw)


def iteration_settings() -> Iterator[Setting]:
    """Three answers to each question, a tenth of which failed; half of a question's chance is its own."""
    for count in DOCUMENTS:
        documents = documents_of("five", count)

        def draw(random: np.random.Generator, documents: Array = documents) -> Ends:
            chance = np.repeat(uniform(random, documents), 3)
            values = (random.random(len(chance)) < chance).astype(float)
            kept = random.random(len(chance)) > 0.1
            samples = np.repeat(np.arange(len(documents)), 3)
            return _ends(estimate_of(np.repeat(documents, 3)[kept], values[kept], samples=samples[kept]))

        yield Setting("score with iterations and failures", f"half right, {count} documents", 0.5, draw)


CONSTANT = {"right": (np.ones_like, 1.0), "0.3": (lambda u: np.full_like(u, 0.3), 0.3)}
AVERAGES: dict[str, list[tuple[str, str, int]]] = {
    f"{first} on {few} and {second} on {many} documents": [(first, "five", few), (second, "one", many)]
    for first, second in (
        ("half right", "97 of 100 right"), ("97 of 100 right", "half right"), ("F1", "narrow"), ("narrow", "F1"),
        ("skewed", "F1, mostly 0"), ("half right", "right"), ("a tenth right", "0.3"),
    )
    for few, many in ((2, 2), (2, 30), (3, 3), (5, 10), (30, 30))
} | {f"seven tasks of F1 on {count} documents": [("F1", "five", count)] * 7 for count in (2, 5, 15)} | {
    f"six tasks of 97 of 100 right on {count} documents": [("97 of 100 right", "one", count)] * 6 for count in (2, 3, 6)
}  # fmt: skip


def average_settings() -> Iterator[Setting]:
    every = SCORES | CONSTANT
    for name, parts in AVERAGES.items():
        designs = [(every[score], documents_of(sizes, count)) for score, sizes, count in parts]

        def draw(random: np.random.Generator, designs=designs) -> Ends:  # type: ignore[no-untyped-def]
            return _ends(
                Estimate.average(
                    [
                        estimate_of(documents, scores(uniform(random, documents)), part)
                        for part, ((scores, _), documents) in enumerate(designs)
                    ]
                )
            )

        yield Setting("average", name, float(np.mean([truth for (_, truth), _ in designs])), draw)


def changed(lost: float, won: float) -> Callable[[np.random.Generator, Array], tuple[Array, Array]]:
    """Two runs, the first 60% right; the second loses and wins these shares of all answers."""

    def draw(random: np.random.Generator, documents: Array) -> tuple[Array, Array]:
        first, u = uniform(random, documents) < 0.6, uniform(random, documents)
        second = np.where(first, u >= lost / 0.6, u < won / 0.4)
        return first.astype(float), second.astype(float)

    return draw


def apart(first: str, second: str) -> Callable[[np.random.Generator, Array], tuple[Array, Array]]:
    return lambda random, documents: (
        SCORES[first][0](uniform(random, documents)), SCORES[second][0](uniform(random, documents)),
    )  # fmt: skip


PAIRS: dict[str, tuple[Callable[[np.random.Generator, Array], tuple[Array, Array]], float]] = {
    "5 of 100 lost": (changed(0.05, 0), -0.05),
    "10 of 100 lost, 2 won": (changed(0.1, 0.02), -0.08),
    "half right against a tenth": (apart("a tenth right", "half right"), 0.4),
    "F1": (apart("F1", "F1"), 0.0),
    "narrow against F1": (apart("narrow", "F1"), SCORES["F1"][1] - 0.5),
}


def difference_settings() -> Iterator[Setting]:
    for name, (draw_pair, truth) in PAIRS.items():
        for sizes in ("one", "five", "unequal"):
            for count in DOCUMENTS:
                documents = documents_of(sizes, count)

                def draw(random: np.random.Generator, draw_pair=draw_pair, documents=documents) -> Ends:  # type: ignore[no-untyped-def]
                    first, second = draw_pair(random, documents)
                    found = difference(estimate_of(documents, first), estimate_of(documents, second)).interval
                    return found.low, found.high

                yield Setting("difference of two runs", f"{name}, {count} documents, {sizes}", truth, draw)
    for name, (draw_pair, truth) in PAIRS.items():
        for few, many in ((3, 3), (3, 30), (10, 20)):
            designs = [documents_of("five", few), documents_of("one", many)]

            def draw_average(random: np.random.Generator, draw_pair=draw_pair, designs=designs) -> Ends:  # type: ignore[no-untyped-def]
                pairs = [draw_pair(random, documents) for documents in designs]
                sides = [
                    Estimate.average(
                        [
                            estimate_of(documents, pair[side], part)
                            for part, (documents, pair) in enumerate(zip(designs, pairs, strict=True))
                        ]
                    )
                    for side in (0, 1)
                ]
                found = difference(*sides).interval
                return found.low, found.high

            yield Setting("difference of averages", f"{name}, {few} and {many} documents", truth, draw_average)


def unpaired_settings() -> Iterator[Setting]:
    """Prompts read whole less those that were cut: the report truncation_effect."""
    for name, (scores, truth) in SCORES.items():
        for few, many in ((3, 10), (6, 6), (10, 30)):
            designs = [documents_of("five", few), documents_of("five", many)]

            def draw(random: np.random.Generator, scores=scores, designs=designs) -> Ends:  # type: ignore[no-untyped-def]
                parts = [estimate_of(of, scores(uniform(random, of)), part) for part, of in enumerate(designs)]
                (whole,), (cut,) = (part.strata for part in parts)
                turned = Stratum(-1.0, cut.samples, cut.clusters, cut.values)
                found = interval(Estimate((whole, turned)), bounded=False)
                return found.low, found.high

            yield Setting("effect of truncation", f"{name}, {few} and {many} documents", 0 * truth, draw)


def judge_settings() -> Iterator[Setting]:
    """Win rates: two rounds of each question, each lost, tied or won."""
    for count in DOCUMENTS:
        documents = documents_of("five", count)

        def draw(random: np.random.Generator, documents: Array = documents) -> Ends:
            u = uniform(random, documents)
            rounds = [
                {"benchmark": "b", "task": "t", "sample_id": f"{at}", "document_sha256": f"{document}",
                 "score": float(np.searchsorted((0.3, 0.5), np.clip(u[at] + random.normal(0, 0.02), 0, 1))) / 2}
                for at, document in enumerate(documents) for _ in range(2)
            ]  # fmt: skip
            return _ends(opinion_estimate(rounds))

        yield Setting("win rate of a judge", f"{count} documents", 0.6, draw)


def agreement_settings() -> Iterator[Setting]:
    for noise, each in ((0.0, 1), (0.0, 4), (0.6, 1), (0.6, 4)):
        truth = _ratings(np.random.default_rng(SEED), 20_000, each, noise)
        known = alpha(truth[0], "ordinal").value or 0.0
        for count in (2, 6, 8, 10, 15, 20, 30):

            def draw(random: np.random.Generator, count: int = count, each: int = each, noise: float = noise) -> Ends:
                items, documents = _ratings(random, count, each, noise)
                found = alpha(items, "ordinal", clusters=documents)
                return found.low, found.high

            yield Setting("alpha of raters", f"{known:.2f}, {count} documents with {each}", known, draw)


def _ratings(random: np.random.Generator, count: int, each: int, share: float) -> tuple[list[list[int]], list[int]]:
    """Ratings of two raters from 1 to 4 with this share of variance in common."""
    documents = np.repeat(np.arange(count), each)
    z = np.sqrt(CORRELATION) * random.normal(size=count)[documents]
    z += np.sqrt(1 - CORRELATION) * random.normal(size=len(documents))
    ratings = np.sqrt(share) * z[:, None] + np.sqrt(1 - share) * random.normal(size=(len(documents), 2))
    return np.digitize(ratings, (-1, 0, 1)).tolist(), documents.tolist()


KINDS: tuple[Callable[[], Iterator[Setting]], ...] = (
    score_settings, iteration_settings, average_settings, difference_settings, unpaired_settings, judge_settings,
    agreement_settings,
)  # fmt: skip


def cover(setting: Setting, sets: int) -> tuple[int, int]:
    """Number of data sets with an interval, and of intervals that contain the true value."""
    random, printed, covered = np.random.default_rng([SEED, sets]), 0, 0
    for _ in range(sets):
        low, high = setting.draw(random)
        if low is not None and high is not None:
            printed += 1
            covered += low - 1e-9 <= setting.truth <= high + 1e-9
    return printed, covered


def table(sets: int) -> list[str]:
    """Lines of the table in docs/intervals.md."""
    found: dict[str, list[tuple[float, float, str]]] = {}
    for settings in KINDS:
        for setting in settings():
            printed, covered = cover(setting, sets)
            shares = found.setdefault(setting.kind, [])
            if printed >= sets / 10:
                shares.append((covered / printed, printed / sets, setting.name))
    lines = ["| kind | settings | lowest | where | mean |", "|---|---|---|---|---|"]
    for kind, shares in found.items():
        least, _, where = min(shares)
        mean = np.mean([share for share, _, _ in shares])
        lines.append(f"| {kind} | {len(shares)} | {100 * least:.1f}% | {where} | {100 * mean:.1f}% |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sets", type=int, default=1000, help="data sets of each setting")
    print("\n".join(table(parser.parse_args().sets)))


if __name__ == "__main__":
    main()
