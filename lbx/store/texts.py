"""Columns of a results file that hold texts, their origins, and the marks of a file without them.

``lbx runs extract --without-texts`` removes texts (``lbx.store.extracting``). The file then has NULL for an answer with
its SHA-256 and number of words, an empty question and no references with ``samples.text_hashes``, and ``runs.texts``
records which texts were kept. Nothing takes the place of a text, so that no program can mistake it for one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lbx.base.errors import StoreError
from lbx.store.rows import as_json

if TYPE_CHECKING:
    from lbx.store.store import Store

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
        "status task_samples metadata unscored_samples texts rescorings",
        "samples": "benchmark task sample_id language length_unit context_sha256 text_hashes",
        "generations": "run_id benchmark task sample_id finish_reason prompt_sha256 prompt_source error_type "
        "system_prompt output_sha256 instructions_sha256 served_model",
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

ANSWERS, NO_TEXTS = "answers", "none"
"""Values of ``runs.texts``: the texts that were kept."""
REMOVED_MESSAGE = "(message removed)"
"""Replaces a message: a row with an error remains one."""
UNCHANGED, REWRITTEN, CHANGED = "=", "~", "!"
"""First characters of results of ``add_plain_functions``: the same JSON, the same value in other JSON, fewer values."""

IS_VERDICT = (
    "({row}.benchmark = 'judge' AND "
    "({row}.extracted IN ('answer', 'against', 'tie') OR try_cast({row}.extracted AS DOUBLE) IS NOT NULL))"
)
"""SQL condition that the column ``extracted`` of a row of ``scores`` has a judge's verdict instead of a text."""

_LABEL_KEYS = {
    "category", "evaluation", "source", "difficulty", "length", "domain", "sub_domain", "token_length",
    "contextual_requirement", "primary_task", "secondary_task", "kind", "benchmark", "task", "sample_id", "run_id",
    "against_run_id", "document_sha256", "answer_sha256", "against_sha256",
}  # fmt: skip
"""Keys of ``samples.meta`` with names by which reports group, or which identify a judged answer."""
_LABEL_LIST_KEYS = {"marks", "judged_by", "metrics"}
LONGEST_LABEL = 200
_LONGEST_NAME = 40


def plain_meta(meta: object) -> dict[str, Any]:
    """Entries of ``samples.meta`` that are no texts: numbers, and the labels of an allow list."""
    if not isinstance(meta, dict):
        return {}
    kept = {key: value for key, value in meta.items() if len(key) <= _LONGEST_NAME and _is_plain(key, value)}
    if isinstance(scale := meta.get("verdicts"), dict):
        kept["verdicts"] = {end: scale[end] for end in ("low", "high") if _is_number(scale.get(end))}
    return kept


def _is_plain(key: str, value: object) -> bool:
    if isinstance(value, str):
        return key in _LABEL_KEYS and _is_label(value)
    if isinstance(value, list):
        is_label_list = key in _LABEL_LIST_KEYS
        return all(_is_number(item) or (is_label_list and isinstance(item, str) and _is_label(item)) for item in value)
    return _is_number(value)


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float)


def _is_label(value: str) -> bool:
    return len(value) <= LONGEST_LABEL and value.isprintable()


def plain_item_meta(meta: object) -> dict[str, Any]:
    """Entries of ``rating_items.meta`` that are no texts: the rated answers by name and hash."""
    if not isinstance(meta, dict):
        return {}
    answers = [plain_meta({**answer, "answer_sha256": answer.get("sha256")}) for answer in _dicts(meta.get("answers"))]
    rated = [
        {"run_id": answer.get("run_id"), "iteration": answer.get("iteration"), "sha256": answer["answer_sha256"]}
        for answer in answers
    ]
    return ({"answers": rated} if "answers" in meta else {}) | plain_meta(
        {key: value for key, value in meta.items() if key in ("for_all", "document_sha256")}
    )


def add_plain_functions(store: Store) -> None:
    """Add the SQL functions ``lbx_plain_samples`` and ``lbx_plain_rating_items`` of the column ``meta`` of a table.

    They return one of the marks above and the JSON without texts; only ``CHANGED`` for malformed values.
    """

    def add() -> None:
        for table, plain in (("samples", plain_meta), ("rating_items", plain_item_meta)):
            store.connection.create_function(f"lbx_plain_{table}", _on_json(plain), ["VARCHAR"], "VARCHAR")

    store.compute_once("plain functions", add)


def _on_json(remove_texts: Callable[[object], dict[str, Any]]) -> Callable[[str], str]:
    def run(text: str) -> str:
        try:
            value = json.loads(text)
            kept = remove_texts(value)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):  # a hostile file
            return CHANGED
        plain = as_json(kept)
        return f"{UNCHANGED if plain == text else REWRITTEN if kept == value else CHANGED}{plain}"

    return run


def _dicts(values: object) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def texts_of(store: Store) -> str | None:
    """Texts that a file has: "answers", "none", or None for all. Runs of a file agree on them."""
    ((texts,),) = store.query("SELECT max(texts) FROM runs").rows
    return texts if texts is None else str(texts)


def require_texts(store: Store, reason: str, *, answers_suffice: bool = False) -> None:
    """Raise StoreError if the file's texts were removed.

    Args:
        reason: sentence about the need, such as "Scoring needs answers and references."
        answers_suffice: whether a file with only the models' answers is accepted.
    """
    texts = texts_of(store)
    if texts is not None and not (answers_suffice and texts == ANSWERS):
        raise StoreError(f"{removal_notice(store)} {reason}", fix="Give the file from which its runs were extracted.")


def removal_notice(store: Store) -> str:
    """Sentence about a file whose texts were removed; "" for other files."""
    texts = texts_of(store)
    if texts is None:
        return ""
    removed = "all texts except the models' answers" if texts == ANSWERS else "all texts"
    return f"`lbx runs extract --without-texts` removed {removed} from {store.path.name}."
