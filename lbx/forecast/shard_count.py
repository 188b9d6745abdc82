"""Number of shards of a run: as many as the time to load the model allows.

A scheduler balances a run best with many small shards, which it hands to whichever node is free. Each of them loads the
model, so a shard must be long in comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from lbx.forecast.shards import assign_items

LOAD_SHARE = 0.05
"""Maximum share of a shard's time that is spent loading the model."""
START_S = 10.0
"""Seconds that a scheduler and lbx take to start a shard; a model that loads faster makes shards no shorter."""
MOST_SHARDS = 1000
"""Slurm's default MaxArraySize is 1001."""
SHARDS_PER_NODE, NODES = 4, 16
"""For runs of unknown duration, and an unknown number of nodes."""
_BYTES_A_SECOND = 1e9
_UNKNOWN_LOAD_S = 60.0


@dataclass(frozen=True, slots=True)
class LoadTime:
    """Time to load a model.

    Attributes:
        basis: origin of the figure, to follow it in a sentence: "measured here".
    """

    load_s: float
    basis: str

    @classmethod
    def from_size(cls, weights_bytes: int | None) -> Self:
        """Estimate from the size of the weights, None if unknown."""
        if weights_bytes is None:
            return cls(_UNKNOWN_LOAD_S, "assumed, as neither its duration nor the size of the weights is known")
        return cls(weights_bytes / _BYTES_A_SECOND, "estimated from the size of the weights at 1 GB/s")


def choose_count(
    costs: Sequence[float], load: LoadTime | None, *, processes: int = 1, at_once: int = 0
) -> tuple[int, str]:
    """Choose the number of shards, and explain it in a sentence.

    Args:
        costs: predicted seconds of each document.
        load: None if the costs are not in seconds.
        processes: number of processes that share a shard's documents.
        at_once: number of shards that run in parallel; 0 if unknown.
    """
    if load is None:
        count = SHARDS_PER_NODE * (at_once or NODES)
        nodes = f"of the {at_once} that run at once" if at_once else f"of {NODES} nodes (--at-once gives their number)"
        reason = f"{SHARDS_PER_NODE} for each {nodes}, because the time to load the model and to answer is unknown here"
    else:
        count = _count_of_long_shards(costs, max(load.load_s, START_S) / LOAD_SHARE * (1 - LOAD_SHARE) * processes)
        time = f"{load.load_s:,.1f} s, {load.basis}"
        if load.load_s < START_S:
            reason = f"with more, starting a shard ({START_S:g} s; the model loads in {time})"
        else:
            reason = f"with more, loading the model ({time})"
        reason += f" would take over {LOAD_SHARE:.0%} of a shard"
    if count >= MOST_SHARDS:
        count, reason = MOST_SHARDS, "the most that the default configuration of Slurm accepts in an array"
    if count >= len(costs):
        count, reason = len(costs), "one for each document"
    return count, f"{count:,} shard{'s' * (count != 1)}: {reason}. --shards N sets another number."


def _count_of_long_shards(costs: Sequence[float], shortest: float) -> int:
    """Maximum number of shards of at least this cost; 1 if the run costs less."""
    short = [cost for cost in costs if cost < shortest]
    count = min(MOST_SHARDS, len(costs) - len(short) + int(sum(short) / shortest))
    while count > 1:
        if all(sum(costs[item] for item in part) >= shortest for part in assign_items(costs, count)):
            return count
        count -= max(1, count // 50)
    return 1
