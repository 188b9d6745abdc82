"""Large results files, made inside DuckDB, in lbx's own tables: answers of a few words to LongBench's questions."""

from __future__ import annotations

from pathlib import Path

from lbx.benchmarks.longbench import tasks as longbench_tasks
from lbx.benchmarks.registry import BENCHMARKS
from lbx.results import RunRow, Store
from lbx.results.scoring.aggregation import aggregate_scores

_BENCHMARK = "longbench"
TASKS = ("qasper", "hotpotqa", "2wikimqa", "musique", "multifieldqa_en")
FEW_RUNS = 36
_METRIC = longbench_tasks.METRICS[longbench_tasks.rules_of(TASKS[0]).metric][0]
_SAMPLES = """
    INSERT OR IGNORE INTO samples BY NAME
    SELECT 'longbench' AS benchmark, $1 AS task, printf('%07d', n) AS sample_id, 'en' AS language,
           1000 + n % 9000 AS length, 'words' AS length_unit, '["an answer"]' AS "references",
           'question ' || n AS question, sha256($1 || n // 4) AS context_sha256, '{}' AS meta, n AS position
    FROM range($2::BIGINT, $3::BIGINT) made(n)
"""
_ANSWERS = """
    INSERT INTO generations BY NAME
    SELECT $1 AS run_id, 'longbench' AS benchmark, $2 AS task, printf('%07d', n) AS sample_id, 0 AS iteration,
           'an answer of some words, number ' || hash(n, $1) % 5 AS output, 'stop' AS finish_reason,
           1500 + n % 9000 AS prompt_tokens, 1500 + n % 9000 AS original_tokens, 0 AS cached_tokens,
           8 AS output_tokens, false AS truncated, 0 AS tokens_cut, 'lbx' AS prompt_source, 0.5 AS prefill_s,
           0.1 AS decode_s, 0 AS seed, 1 AS bos_tokens, TIMESTAMP '2026-03-02 06:00:00' AS created_at
    FROM range($3::BIGINT, $4::BIGINT) made(n)
"""
_SCORES = """
    INSERT INTO scores BY NAME
    SELECT $1 AS run_id, 'longbench' AS benchmark, $2 AS task, printf('%07d', n) AS sample_id, 0 AS iteration,
           $6 AS metric, $5::INTEGER AS metric_version, (hash(n, $1, 's') % 101) / 100 AS score, true AS headline
    FROM range($3::BIGINT, $4::BIGINT) made(n)
"""


def make_file(path: Path, runs: int, answers: int, begin: int = 0, end: int | None = None) -> None:
    """Write a results file of runs with ``answers`` each; of each task only the samples from ``begin`` to ``end``."""
    samples = answers // len(TASKS)
    end = samples if end is None else end
    version = BENCHMARKS[_BENCHMARK].metric_version
    with Store(path) as store:
        for task in TASKS:
            store.query(_SAMPLES, [task, begin, end])
        for number in range(runs):
            run = f"run-{number:04d}"
            store.begin_run(
                RunRow(
                    run, f"model-{number:04d}", "llamacpp", "0.3.36", {_BENCHMARK: version}, "b" * 64, {"seed": 0}, {},
                    "0.1.0", {f"{_BENCHMARK}/{task}": samples for task in TASKS},
                )
            )  # fmt: skip
            with store.transaction() as connection:
                for task in TASKS:
                    connection.execute(_ANSWERS, [run, task, begin, end])
                    connection.execute(_SCORES, [run, task, begin, end, version, _METRIC])
            aggregate_scores(store, run, BENCHMARKS[_BENCHMARK])
            store.finish_run(run, "done")


def make_many_runs(path: Path, answers: int) -> None:
    """Write a results file of 36 runs."""
    make_file(path, FEW_RUNS, answers // FEW_RUNS)
