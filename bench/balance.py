"""Simulates shards that a scheduler hands to nodes of unequal speed, with wrong predictions.

    python -m bench.balance

No time is measured: the figures follow from the seeds. Each document's true cost is up to four times its prediction, or
down to a quarter of it. One node of sixteen has a quarter of the speed, also to load the model. The ideal time is all
work divided by the speed of all nodes, without loading.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

from lbx.running.forecast.shards import START_S, LoadTime, assign_items, choose_count

SPEEDS = (*[1.0] * 15, 0.25)
WRONG = 4.0
SEEDS = range(20)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Run of documents with log-normal costs.

    Attributes:
        hours: predicted, of a full set of nodes at speed 1.
        load_s: time to load the model.
        giant: cost of one further document, as a share of all others.
    """

    name: str
    documents: int
    hours: float
    load_s: float
    giant: float = 0.0

    def costs(self, seed: int) -> tuple[list[float], list[float]]:
        """Predicted and true seconds of each document."""
        chance = random.Random(seed)
        predicted = [chance.lognormvariate(0.0, 1.0) for _ in range(self.documents)]
        if self.giant:
            predicted.append(self.giant * sum(predicted))
        scale = self.hours * 3600 * len(SPEEDS) / sum(predicted)
        predicted = [scale * cost for cost in predicted]
        return predicted, [cost * WRONG ** chance.uniform(-1, 1) for cost in predicted]


SCENARIOS = (
    Scenario("8 hours, 30 s to load", 4000, 8, 30),
    Scenario("24 hours, 120 s to load", 4000, 24, 120),
    Scenario("8 hours, 5 s to load, 500 documents", 500, 8, 5),
    Scenario("2 hours, 30 s to load", 4000, 2, 30),
    Scenario("half an hour, 30 s to load", 4000, 0.5, 30),
    Scenario("8 hours, 40 documents", 40, 8, 30),
    Scenario("8 hours, a document of a tenth of the rest", 4000, 8, 30, giant=0.1),
)


def makespan(shards: Sequence[float], start_s: float, speeds: Sequence[float] = SPEEDS) -> float:
    """Time until the last shard ends; each starts on the first free node, in the given order."""
    nodes = [(0.0, number) for number in range(len(speeds))]
    for seconds in shards:
        free_at, number = heapq.heappop(nodes)
        heapq.heappush(nodes, (free_at + (start_s + seconds) / speeds[number], number))
    return max(end for end, _ in nodes if end)


def ratios(scenario: Scenario, seed: int) -> tuple[int, float, float]:
    """Number of shards, and the time of these and of one shard per node, as multiples of the ideal time."""
    predicted, true = scenario.costs(seed)
    count, _ = choose_count(predicted, LoadTime(scenario.load_s, "assumed"))
    ideal = sum(true) / sum(SPEEDS)
    once, many = (
        makespan(
            [sum(true[item] for item in part) for part in assign_items(predicted, parts)], scenario.load_s + START_S
        )
        / ideal
        for parts in (min(len(SPEEDS), len(predicted)), count)
    )
    return count, once, many


def main() -> None:
    print("| run on 16 nodes | shards | one shard per node | lbx's choice, mean | worst of 20 seeds |")
    print("|---|---:|---:|---:|---:|")
    for scenario in SCENARIOS:
        counts, once, many = zip(*(ratios(scenario, seed) for seed in SEEDS), strict=True)
        print(
            f"| {scenario.name} | {max(counts):,} | {sum(once) / len(once):.2f} | {sum(many) / len(many):.2f} "
            f"| {max(many):.2f} |"
        )


if __name__ == "__main__":
    main()
