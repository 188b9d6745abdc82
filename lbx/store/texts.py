"""Columns of a results file that hold texts, and their origins."""

from __future__ import annotations

from collections.abc import Mapping

DATASET, MODEL, RETRIEVER, PERSON, FILE, MESSAGE = "dataset", "model", "retriever", "person", "file", "message"
JUDGE = "judge"
"""Origin of a model's text if the model is a judge."""

TEXT_COLUMNS: Mapping[tuple[str, str], str] = {
    ("samples", "question"): DATASET,
    ("samples", "references"): DATASET,
    ("samples", "meta"): DATASET,
    ("generations", "output"): MODEL,
    ("generations", "reasoning"): MODEL,
    ("generations", "steps"): MODEL,
    ("generations", "output_ids"): MODEL,
    ("generations", "source_row"): FILE,
    ("generations", "error"): MESSAGE,
    ("scores", "extracted"): MODEL,
    ("scores", "error"): MESSAGE,
    ("retrievals", "text"): RETRIEVER,
    ("embeddings", "vector"): RETRIEVER,
    ("rating_items", "meta"): PERSON,
    ("ratings", "comment"): PERSON,
    ("ratings", "source_row"): FILE,
}
"""{(table, column): origin of its texts}.

The dataset's texts are questions, references and choices; the retriever's are parts of documents, or vectors from which
they can be approximated. A file is an imported one: its rows may have texts of the dataset, the model and people.
Messages of errors may quote any text. Token ids are a text, too.
"""

LABEL_COLUMNS: Mapping[str, frozenset[str]] = {
    table: frozenset(columns.split())
    for table, columns in {
        "runs": "run_id model backend backend_version benchmark_versions bundle_digest settings hardware lbx_version "
        "status task_samples metadata unscored_samples",
        "samples": "benchmark task sample_id language length_unit context_sha256",
        "generations": "run_id benchmark task sample_id finish_reason prompt_sha256 prompt_source error_type "
        "system_prompt",
        "scores": "run_id benchmark task sample_id metric partial",
        "numbers": "run_id benchmark kind task grouping name metric judge against questions length_unit cluster_by "
        "method",
        "retrievals": "retriever benchmark task sample_id context_sha256",
        "embeddings": "model text_sha256",
        "sessions": "run_id status estimate_basis hardware spec",
        "rating_sets": "set_id kind question_source runs bundle_digest",
        "rating_items": "set_id benchmark task sample_id",
        "ratings": "set_id rater run_id against_run_id verdict",
    }.items()
}
"""{table: columns with names, hashes, settings and other facts}; facts include paths, and notes on runs."""
