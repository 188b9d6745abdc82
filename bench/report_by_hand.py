"""What ``lbx report`` tells, with pandas: read the tables, join and group. ``bench.report`` runs it as a process.

    python report_by_hand.py FOLDER FILE WHAT

FOLDER is where DuckDB's package lies, should this Python have none. WHAT is "nothing" (start-up), "report", the name of
a view, "comparison" or "json".
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

sys.path.append(sys.argv[1])

import duckdb
import numpy as np
import pandas as pd

_RUN_TASK = ["run_id", "benchmark", "task"]
_SAMPLE = ["benchmark", "task", "sample_id"]
_MARKS = "truncated, tokens_cut, reference_cut, reasoning_closed, finish_reason, bos_tokens, stop_in_reasoning"


class Tables:
    """The file's tables as frames, with the columns that are needed."""

    def __init__(self, path: str) -> None:
        self._connection = duckdb.connect(path, read_only=True)

    def frame(self, sql: str) -> Any:
        return self._connection.sql(sql).df()

    def scores(self) -> Any:
        return self.frame(
            f"SELECT {', '.join(_RUN_TASK)}, sample_id, iteration, metric, score FROM scores WHERE headline"
        )

    def generations(self, columns: str) -> Any:
        return self.frame(f"SELECT {', '.join(_RUN_TASK)}, {columns} FROM generations")


def with_error(frame: Any, by: list[str]) -> Any:
    """Mean, number and standard error of scores in groups."""
    return frame.groupby(by)["score"].agg(["mean", "count", "sem"])


def task_scores(tables: Tables) -> Any:
    return with_error(tables.scores(), _RUN_TASK)


def leaderboard(tables: Tables) -> Any:
    means = with_error(tables.scores(), _RUN_TASK)["mean"].groupby(["run_id", "benchmark"]).mean()
    made = tables.generations("error, truncated").groupby(["run_id", "benchmark"])
    return pd.concat([means, made["error"].count(), made["truncated"].sum()], axis=1)


def length_curve(tables: Tables) -> Any:
    lengths = tables.frame("SELECT benchmark, task, sample_id, length FROM samples")
    frame = tables.scores().merge(lengths, on=_SAMPLE)
    frame["length_up_to"] = 2 ** np.ceil(np.log2(frame["length"].clip(lower=1)))
    return with_error(frame, [*_RUN_TASK, "length_up_to"])


def truncation(tables: Tables) -> Any:
    frame = tables.generations("truncated, tokens_cut, original_tokens")
    return frame.groupby(_RUN_TASK).agg({"truncated": ["sum", "mean"], "tokens_cut": "mean", "original_tokens": "max"})


def guards(tables: Tables) -> Any:
    frame = tables.generations(f"error, {_MARKS}")
    frame["failed"] = frame["error"].notna()
    frame["unclosed"] = frame["reasoning_closed"] == False  # noqa: E712 (NULL is neither)
    frame["cut"] = frame["finish_reason"] == "length"
    frame["doubled"] = frame["bos_tokens"] > 1
    return frame.groupby(_RUN_TASK)[["failed", "unclosed", "cut", "doubled", "truncated", "reference_cut"]].sum()


def failures(tables: Tables) -> Any:
    return tables.frame("SELECT run_id, benchmark, task, sample_id, error FROM generations WHERE error IS NOT NULL")


def comparison(tables: Tables) -> Any:
    """All pairs of runs of a benchmark, on the samples that both answered."""
    outputs = tables.generations("sample_id, iteration, output")
    frame = tables.scores().merge(outputs, on=[*_RUN_TASK, "sample_id", "iteration"])
    rows = []
    for _, of_benchmark in frame.groupby("benchmark"):
        runs = dict(list(of_benchmark.groupby("run_id")))
        for (_, a), (_, b) in itertools.combinations(runs.items(), 2):
            both = a.merge(b, on=[*_SAMPLE, "iteration"], suffixes=("_a", "_b"))
            both["difference"] = both["score_b"] - both["score_a"]
            both["same"] = both["output_a"] == both["output_b"]
            rows.append(both.groupby("task").agg({"difference": ["mean", "count", "sem"], "same": "sum"}))
    return pd.concat(rows)


def everything(tables: Tables) -> list[Any]:
    return [made(tables) for made in (leaderboard, task_scores, guards, failures)]


def as_json(tables: Tables) -> str:
    return str(tables.frame("SELECT * FROM generations").to_json(orient="records"))


WAYS: dict[str, Callable[[Tables], Any]] = {
    "report": everything,
    "task_scores": task_scores,
    "leaderboard": leaderboard,
    "length_curve": length_curve,
    "truncation": truncation,
    "guards": guards,
    "failures": failures,
    "comparison": comparison,
    "json": as_json,
}

if __name__ == "__main__":
    found = Tables(sys.argv[2])
    if sys.argv[3] in WAYS:
        print(str(WAYS[sys.argv[3]](found))[:2_000])
