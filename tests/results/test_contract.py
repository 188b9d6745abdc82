"""Names of tables, views and columns are a contract: other people's queries and scripts are written in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lbx.base.errors import StoreError
from lbx.results import Store

COLUMNS = {
    "benchmark_results": (
        "run_id benchmark metric_version n score low high se df clusters cluster_by method within answered asked "
        "failed_as_0 failed_as_1"
    ),
    "depth_pairs": (
        "pair_id comparison_id model backend backend_version settings hardware weights_bytes kv_bytes_per_token "
        "reference_model reference_backend reference_backend_version reference_settings reference_hardware "
        "reference_weights_bytes reference_kv_bytes_per_token texts bundle_digest lbx_version created_at"
    ),
    "depth_parity": (
        "pair_id text start stop positions kl kl_p99 kl_max same_top log_prob reference_log_prob seconds "
        "reference_seconds audited_positions kl_error kl_error_max text_sha256"
    ),
    "embeddings": "model text_sha256 vector",
    "generations": (
        "run_id benchmark task sample_id iteration output reasoning finish_reason prompt_tokens cached_tokens "
        "output_tokens original_tokens truncated prompt_sha256 prompt_source prefill_s decode_s seed error created_at "
        "reasoning_tokens reasoning_closed stop_in_reasoning tokens_cut reference_cut bos_tokens steps source_row "
        "error_type output_ids system_prompt"
    ),
    "group_results": (
        "run_id benchmark grouping name metric metric_version n score official partial position low high se df "
        "clusters cluster_by method within answered asked failed_as_0 failed_as_1"
    ),
    "length_results": (
        "run_id benchmark task metric metric_version length_unit position length_up_to n score low high se df "
        "clusters cluster_by method within"
    ),
    "numbers": (
        "run_id benchmark kind task grouping name metric judge against questions length_unit length_up_to "
        "metric_version n score official unit partial headline in_paper position task_position low high se df clusters "
        "cluster_by method within answered asked failed_as_0 failed_as_1"
    ),
    "retrievals": "retriever benchmark task sample_id context_sha256 rank chunk_index score text",
    "runs": (
        "run_id model backend backend_version benchmark_versions bundle_digest settings hardware lbx_version "
        "started_at finished_at status task_samples metadata unscored_samples"
    ),
    "samples": (
        "benchmark task sample_id language length length_unit references question context_sha256 meta position"
    ),
    "scores": (
        "run_id benchmark task sample_id iteration metric metric_version score extracted headline error partial loose"
    ),
    "sessions": (
        "run_id session started_at finished_at status workers planned_samples planned_prompt_tokens "
        "planned_distinct_tokens planned_new_tokens estimated_s estimate_basis answered failed prompt_tokens "
        "computed_tokens output_tokens wall_s prefill_s decode_s peak_memory_bytes hardware spec"
    ),
    "task_results": (
        "run_id benchmark task metric metric_version n score official headline position partial task_position low high "
        "se df clusters cluster_by method within answered asked failed_as_0 failed_as_1"
    ),
    "comparison": (
        "run_a run_b benchmark task metric n score_a score_b difference same_outputs samples bundle_samples coverage"
    ),
    "coverage": "run_id benchmark task samples bundle_samples scorable_samples iterations answers bundle_answers",
    "distinctions": "run_id differs_in",
    "estimates": (
        "run_id model backend mode session status workers started_at finished_at planned_samples samples "
        "planned_distinct_tokens computed_prompt_tokens planned_new_tokens output_tokens estimated_s wall_s ratio "
        "tokens_per_s peak_memory_bytes estimate_basis"
    ),
    "failures": "run_id model backend mode benchmark task sample_id iteration error",
    "group_scores": (
        "run_id model benchmark grouping name metric n score official partial metric_version backend position mode "
        "samples bundle_samples coverage low high clusters cluster_by method se df within answered asked failed_as_0 "
        "failed_as_1"
    ),
    "guards": (
        "run_id model backend benchmark task n empty_prompts failed doubled_bos reasoning_unclosed answers_cut "
        "stop_in_reasoning truncated tokens_cut reference_cut official_errors partial lacks mode "
        "unextracted empty_answers question_changed loose_matches"
    ),
    "leaderboard": (
        "run_id model backend benchmark tasks n score failed truncated status mode samples bundle_samples coverage "
        "differs_in low high clusters cluster_by method se df within answered asked failed_as_0 failed_as_1"
    ),
    "length_curve": (
        "run_id model backend mode benchmark task metric length_unit length_up_to n score samples bundle_samples "
        "coverage low high clusters cluster_by method se df within"
    ),
    "paper": (
        "run run_id benchmark line official part place position low high clusters cluster_by method se df within"
    ),
    "task_scores": (
        "run_id model benchmark task metric n score official headline metric_version backend position task_position "
        "mode partial samples bundle_samples coverage differs_in low high clusters cluster_by method se df within "
        "answered asked failed_as_0 failed_as_1"
    ),
    "truncation": (
        "run_id model backend mode benchmark task n truncated share longest_prompt mean_tokens_cut answers_cut "
        "longest_prompt_sent"
    ),
    "answers": (
        "run_id model backend mode benchmark task sample_id iteration question reference reference_answers output "
        "reasoning error metric score prompt_tokens output_tokens original_tokens truncated finish_reason length "
        "length_unit language"
    ),
    "judges": (
        "judge_id model backend backend_version rubric rubric_source rubric_sha256 settings bundle_digest lbx_version "
        "started_at finished_at status"
    ),
    "judgements": (
        "judge_id benchmark task sample_id run_id iteration against_run_id against_iteration answer_first verdict "
        "rating state output reasoning finish_reason prompt_tokens cached_tokens output_tokens prompt_sha256 seed "
        "error error_type source_row created_at rubric document_sha256 answer_words against_words marks"
    ),
}
"""What each had on the day of this list, in order. New columns come last; the list may grow by them, never change."""


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_keep_their_names_and_places(tmp_path: Path, name: str) -> None:
    with Store(tmp_path / "results.duckdb") as store:
        found = list(store.query(f"FROM {name} LIMIT 0").columns)
    known = COLUMNS[name].split()
    assert found[: len(known)] == known


def test_no_column_needs_quotes_without_another_name(tmp_path: Path) -> None:
    with Store(tmp_path / "results.duckdb") as store:
        columns = store.query(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal ORDER BY ALL"
        ).rows
        quoted = set()
        for table, column in columns:
            try:
                store.query(f"SELECT {column} AS x FROM {table} WHERE {column} IS NULL GROUP BY {column} ORDER BY x")
            except StoreError:
                quoted.add(f"{table}.{column}")
    assert quoted == {"samples.references"}, "which are answers.reference and answers.reference_answers"
