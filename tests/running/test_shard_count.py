"""How many shards a run has, why, and how evenly nodes of unequal speed work through them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.balance import SCENARIOS, SEEDS, SPEEDS, Scenario, makespan, ratios
from lbx.running.forecast.shards import LOAD_SHARE, MOST_SHARDS, LoadTime, assign_items, choose_count

HERE = "measured here"
SHORTEST_S = 30 / LOAD_SHARE - 30
"""Of a shard whose model loads in 30 s."""


@given(
    st.lists(st.floats(0.01, 3000), min_size=1, max_size=80), st.floats(0, 200), st.integers(1, 4), st.integers(0, 20)
)
def test_loading_takes_at_most_its_share_of_each_shard(
    costs: list[float], load_s: float, processes: int, at_once: int
) -> None:
    count, _ = choose_count(costs, LoadTime(load_s, HERE), processes=processes, at_once=at_once)
    assert 1 <= count <= len(costs)
    if count > 1:
        shards = [sum(costs[item] for item in part) / processes for part in assign_items(costs, count)]
        assert all(load_s <= LOAD_SHARE * (load_s + seconds) * (1 + 1e-9) for seconds in shards)


@pytest.mark.parametrize(
    ("costs", "load", "at_once", "count", "reason"),
    [
        ([60.0] * 950, LoadTime(30, HERE), 16, 95, "loading the model (30.0 s, measured here) would take over 5%"),
        ([60.0] * 950, LoadTime(0.3, HERE), 0, 237, "starting a shard (10 s; the model loads in 0.3 s, measured here)"),
        ([60.0] * 5, LoadTime(30, HERE), 16, 1, "would take over 5% of a shard"),
        ([1e4] * 40, LoadTime(30, HERE), 16, 40, "one for each document"),
        ([1e4] * 4000, LoadTime(30, HERE), 16, MOST_SHARDS, "default configuration of Slurm"),
        ([1.0] * 4000, None, 7, 28, "4 for each of the 7 that run at once, because the time to load"),
        ([1.0] * 4000, None, 0, 64, "4 for each of 16 nodes (--at-once gives their number)"),
        ([1.0] * 9, None, 16, 9, "one for each document"),
        ([60.0] * 950, LoadTime.from_size(40 * 10**9), 0, 73, "40.0 s, estimated from the size of the weights at 1"),
        ([60.0] * 950, LoadTime.from_size(None), 0, 50, "60.0 s, assumed, as neither"),
    ],
)
def test_a_count_has_a_reason(costs: list[float], load: LoadTime | None, at_once: int, count: int, reason: str) -> None:
    chosen, sentence = choose_count(costs, load, at_once=at_once)
    assert chosen == count
    assert sentence.startswith(f"{count:,} shard") and reason in sentence and "--shards N" in sentence


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.integers(1, 20))
def test_the_most_expensive_shard_comes_first(costs: list[float], count: int) -> None:
    sums = [sum(costs[item] for item in part) for part in assign_items(costs, count)]
    assert sums == pytest.approx(sorted(sums, reverse=True))


def test_a_makespan_counts_starts_and_speeds() -> None:
    assert makespan([10, 10, 10], 1, (1, 0.5)) == pytest.approx(22)
    assert makespan([5], 1, SPEEDS) == pytest.approx(6)


@pytest.mark.parametrize("scenario", SCENARIOS[:2], ids=lambda one: one.name)
def test_wrong_predictions_and_a_slow_node_cost_a_fifth(scenario: Scenario) -> None:
    """True costs are wrong by up to four times either way, one node of sixteen has a quarter of the speed."""
    for seed in SEEDS:
        count, once, many = ratios(scenario, seed)
        assert count > 500 and once > 3 and many <= 1.2, (seed, count, once, many)
