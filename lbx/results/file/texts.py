"""Columns of a results file that contain texts, the origins of these texts, and the marks of a file without texts.

``lbx runs extract --without-texts`` removes texts (``lbx.results.whole.extracting``). The file then has NULL for an
answer with its SHA-256 and number of words, an empty question and no references with ``samples.text_hashes``, and
``runs.texts`` records which texts were kept. Removed texts are not replaced by other texts, which programs could
mistake for the original.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lbx.base.errors import StoreError
from lbx.base.limits import WHOLE_NUMBER
from lbx.base.records import sha256_text
from lbx.results.rows import as_json

if TYPE_CHECKING:
    from lbx.results.file.store import Store

DATASET, MODEL, RETRIEVER, PERSON, FILE, MESSAGE = "dataset", "model", "retriever", "person", "file", "message"
FACT = "fact"
"""Origin of sentences among settings, hardware and notes."""
JUDGE = "judge"
"""Origin of a model's text if the model is a judge."""

TEXT_COLUMNS: Mapping[tuple[str, str], str] = {
    ("samples", "question"): DATASET,
    ("samples", "references"): DATASET,
    ("samples", "meta"): DATASET,
    ("rounds", "verdicts"): DATASET,
    ("rounds", "pattern"): DATASET,
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
"""{(table, column): origin of the column's texts}

Texts of the dataset are questions, references, choices and marks of rubrics. Texts of the retriever are chunks of
documents, or vectors from which chunks can be approximated. ``FILE`` means an imported file, whose rows may contain
texts of the dataset, the model and people. Error messages may quote any text. Token ids count as a text.
"""

FACT_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "runs": (
        "settings",
        "hardware",
        "metadata",
        "benchmark_versions",
        "task_samples",
        "unscored_samples",
        "rescorings",
    ),
    "sessions": ("hardware", "spec"),
    "rating_sets": ("runs",),
    "depth_pairs": ("settings", "hardware", "reference_settings", "reference_hardware"),
}
"""{table: JSON columns with settings, hardware, paths, notes on runs and other facts}"""

_LABEL = r"[^\s\p{Cc}]+"
_NAME = rf"({_LABEL}( {_LABEL}){{0,7}})?"
_NAMES = f"{_NAME}( vs {_NAME})?"
_CAVEATS = (
    r"(, whose prompts had at most [\d,]+ tokens)?"
    r"(, an upper bound with every answer( of \d+ of \d+ tasks)? at its limit)?"
)
_BASIS = rf"(a rule of thumb|a calibration of [\d.]+ (s|min)|session \d+ of {_NAME}( and \d+ earlier)?){_CAVEATS}"
_HASH = "[0-9A-Za-z]{0,64}"
_HASHES = r'\{("\w{1,40}":"[0-9a-f]{64}",?)*\}'
_MARKS = r"\[(\w{1,40}(, \w{1,40}){0,7})?\]"
_WORDS = r"([\w./-]{1,40}( [\w./-]{1,40}){0,4})?"
_PARTIAL = (
    "ambiguous|no embedding model: ROUGE-L alone|officially a failure: "
    r"(the output is empty|a reference is no text|the value \S{1,40} is not in 0\.\.1)"
)
LABEL_PATTERNS: Mapping[tuple[str, str], str] = {
    (table, column): form
    for table, columns_by_form in {
        "runs": {
            _NAME: "run_id model backend_version lbx_version",
            _WORDS: "backend status texts",
            _HASH: "bundle_digest",
        },
        "samples": {
            _NAME: "benchmark task sample_id",
            _WORDS: "language length_unit",
            _HASH: "context_sha256",
            _HASHES: "text_hashes",
        },
        "generations": {
            _NAME: "run_id benchmark task sample_id prompt_source served_model",
            _WORDS: "finish_reason error_type system_prompt",
            _HASH: "prompt_sha256 output_sha256 instructions_sha256",
        },
        "rounds": {
            _NAME: "rubric round_id benchmark task sample_id run_id against_run_id",
            _WORDS: "kind",
            _HASH: "document_sha256 answer_sha256 against_sha256",
            _MARKS: "marks",
        },
        "scores": {_NAME: "run_id benchmark task sample_id metric", _PARTIAL: "partial"},
        "numbers": {
            _NAME: "run_id benchmark task grouping metric judge against",
            _NAMES: "name",
            _WORDS: "kind questions length_unit cluster_by method",
        },
        "retrievals": {_NAME: "retriever benchmark task sample_id", _HASH: "context_sha256"},
        "embeddings": {_NAME: "model", _HASH: "text_sha256"},
        "sessions": {_NAME: "run_id", _BASIS: "estimate_basis", _WORDS: "status"},
        "rating_sets": {_NAME: "set_id question_source", _WORDS: "kind", _HASH: "bundle_digest"},
        "rating_items": {_NAME: "set_id benchmark task sample_id"},
        "ratings": {_NAME: "set_id rater run_id against_run_id", _WORDS: "verdict"},
        "depth_pairs": {
            _NAME: "pair_id comparison_id model backend_version reference_model reference_backend_version lbx_version",
            _WORDS: "backend reference_backend",
            _HASH: "bundle_digest",
        },
        "depth_parity": {_NAME: "pair_id text", _HASH: "text_sha256"},
    }.items()
    for form, columns in columns_by_form.items()
    for column in columns.split()
}
"""{(table, column): regular expression of the column's values}. They have at most ``LONGEST_LABEL`` characters."""

ANSWERS, NO_TEXTS = "answers", "none"
"""Values of ``runs.texts``: which texts were kept."""
REMOVED_MESSAGE = "(message removed)"
"""Text in place of a removed error message. The row thus still contains an error."""
UNCHANGED, REWRITTEN, CHANGED = "=", "~", "!"
"""First characters of results of the functions of ``add_plain_functions``: the same JSON, the same value in other
JSON, or fewer values."""

IS_VERDICT = (
    "({row}.benchmark = 'judge' AND "
    "({row}.extracted IN ('answer', 'against', 'tie') OR try_cast({row}.extracted AS DOUBLE) IS NOT NULL))"
)
"""SQL condition that the column ``extracted`` of a row of ``scores`` contains a judge's verdict, not a text."""

_LABEL_KEYS = {
    "category", "evaluation", "source", "difficulty", "length", "domain", "sub_domain", "token_length",
    "contextual_requirement", "primary_task", "secondary_task", "run_id", "document_sha256", "answer_sha256",
}  # fmt: skip
"""Keys of ``samples.meta`` whose values are names by which reports group, or identify a rated answer."""
_LABEL_LIST_KEYS = {"judged_by", "metrics"}
LONGEST_LABEL = 200
_KEY = re.compile(r"[A-Za-z_][\w.-]{0,39}")
_FACT_WORDS, _MOST_FACTS, _DEEPEST_FACT = 3, 1_000, 4
_DEVICE = re.compile(r"[A-Z0-9@][\w()@./+-]*( [A-Z0-9@][\w()@./+-]*){0,7}")
_SENTENCES = re.compile(
    r"(no network interface \(namespace\), and )?lbx refuses network connections"
    r"( but to the model server \S{1,100}( and \S{1,100}){0,3})?"
    r"|sizes and times of [\d,]+ files?(, and hashes of the [\d,]+ younger than the manifest)?|one with the answer's"
)
"""Sentences that lbx writes into the settings and hardware of most runs."""


def plain_meta(meta: object) -> dict[str, Any]:
    """Remove the texts from a value of ``samples.meta``. Numbers and known labels remain."""
    if not isinstance(meta, dict):
        return {}
    return {key: value for key, value in meta.items() if _KEY.fullmatch(key) and _is_plain(key, value)}


def _is_plain(key: str, value: object) -> bool:
    if isinstance(value, str):
        return key in _LABEL_KEYS and _is_label(value)
    if isinstance(value, list):
        is_label_list = key in _LABEL_LIST_KEYS
        return all(_is_number(item) or (is_label_list and isinstance(item, str) and _is_label(item)) for item in value)
    return _is_number(value)


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) <= WHOLE_NUMBER)


def _is_label(value: str) -> bool:
    return len(value) <= LONGEST_LABEL and value.isprintable()


def plain_item_meta(meta: object) -> dict[str, Any]:
    """Remove the texts from a value of ``rating_items.meta``. The names and hashes of rated answers remain."""
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


def plain_facts(facts: object) -> Any:
    """Remove the sentences from a value of ``FACT_COLUMNS``. Numbers, names, versions, paths and hashes remain."""
    return _plain_facts(facts, keep_hash=False)


def plain_settings(settings: object) -> Any:
    """Replace sentences among settings by their SHA-256, so that runs with different settings stay distinct."""
    return _plain_facts(settings, keep_hash=True)


def _plain_facts(facts: object, *, keep_hash: bool) -> Any:
    count = itertools.count()

    def plain(value: object, depth: int) -> Iterator[Any]:
        if next(count) >= _MOST_FACTS or depth > _DEEPEST_FACT:
            return
        if isinstance(value, str):
            if is_fact(value) or keep_hash:
                yield value if is_fact(value) else f"sha256:{sha256_text(value)}"
        elif isinstance(value, list):
            yield [kept for item in value for kept in plain(item, depth + 1)]
        elif isinstance(value, dict):
            yield {key: kept for key, item in value.items() if is_fact(key) for kept in plain(item, depth + 1)}
        elif _is_number(value):
            yield value

    return next(plain(facts, 0), None)


def is_fact(text: str) -> bool:
    """Whether a text looks like a name, version, path or hash, or is a sentence of ``_SENTENCES``."""
    has_form = len(text.split()) <= _FACT_WORDS or _DEVICE.fullmatch(text) or _SENTENCES.fullmatch(text)
    return bool(has_form) and _is_label(text)


def add_plain_functions(store: Store) -> None:
    """Add SQL functions that remove texts: ``lbx_plain_samples`` and ``lbx_plain_rating_items`` for columns ``meta``,
    ``lbx_plain_settings`` for columns ``settings``, and ``lbx_plain_facts`` for the other ``FACT_COLUMNS``.

    A function returns ``UNCHANGED``, ``REWRITTEN`` or ``CHANGED`` followed by the JSON without texts, and only
    ``CHANGED`` for a malformed value.
    """

    def add() -> None:
        functions: Mapping[str, Callable[[object], Any]] = {
            "samples": plain_meta,
            "rating_items": plain_item_meta,
            "settings": plain_settings,
            "facts": plain_facts,
        }
        for name, plain in functions.items():
            store.connection.create_function(f"lbx_plain_{name}", _on_json(plain), ["VARCHAR"], "VARCHAR")

    store.compute_once("plain functions", add)


def plain_function(table: str, column: str) -> str:
    """Return the name of the SQL function that removes the texts from a JSON column."""
    kind = "settings" if column in ("settings", "reference_settings") else "facts"
    return f"lbx_plain_{table if column == 'meta' else kind}"


def _on_json(remove_texts: Callable[[object], Any]) -> Callable[[str], str]:
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
    """Return which texts a file contains: "answers", "none", or None for all. They are the same for all runs."""
    ((texts,),) = store.query("SELECT max(texts) FROM runs").rows
    return texts if texts is None else str(texts)


def require_texts(store: Store, reason: str, *, answers_suffice: bool = False) -> None:
    """Raise StoreError if the file's texts were removed.

    Args:
        reason: sentence about the needed texts, such as "Scoring needs answers and references."
        answers_suffice: whether a file with only the models' answers is accepted.
    """
    texts = texts_of(store)
    if texts is not None and not (answers_suffice and texts == ANSWERS):
        raise StoreError(f"{removal_notice(store)} {reason}", fix="Give the file from which its runs were extracted.")


def removal_notice(store: Store) -> str:
    """Describe in a sentence which texts were removed from a file. Returns "" if none were removed."""
    texts = texts_of(store)
    if texts is None:
        return ""
    removed = "all texts except the models' answers" if texts == ANSWERS else "all texts"
    return f"`lbx runs extract --without-texts` removed {removed} from {store.path.name}."
