"""Identity of runs and samples: whether two rows are the same run, or the same sample, and which fields differ.

Rows are the same run if model, bundle and settings are equal. Some differences between rows of a sample are permitted,
and unknown fields are completed: an imported file may lack a sample's document, references or question. An unknown
field equals any value, and is copied from a row that contains it. New rows are given as SQL, a SELECT of the columns
of ``samples``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from lbx.base.errors import ConflictError, StoreError
from lbx.base.units import format_count
from lbx.base.visible import as_command
from lbx.results.rows import RunRow, as_json, differing_keys, run_identity, show_setting

if TYPE_CHECKING:
    pass


FULL_HASH = "backend.weights_whole"
"""Setting with a hash of every byte of the weights. A run may begin without this hash and continue with it, or vice
versa."""


def asked_samples(task_samples: str | None) -> dict[str, Any]:
    """Return {task: number of samples} of ``runs.task_samples``, or {} if another program wrote something else."""
    value = json.loads(task_samples or "{}")
    return value if isinstance(value, dict) else {}


def setting_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List the settings that make two rows of ``runs`` different runs. Both rows contain settings as JSON text."""
    before, now = run_identity(old), run_identity(new)
    return [
        name
        for name in differing_keys(before, now)
        if name != FULL_HASH or None not in (before.get(name), now.get(name))
    ]


def joined_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Join the settings in two rows of the same run, which differ at most in ``FULL_HASH``."""
    return {**json.loads(old["settings"]), **json.loads(new["settings"])}


def refuse_other_run(path: Path, run: RunRow, old: Mapping[str, Any]) -> None:
    """Raise StoreError if the stored run of this name cannot be continued as ``run``.

    Args:
        path: results file, for the message.
        old: stored row of ``runs``. Settings or metric versions may differ.
    """
    before, now = run_identity(old), run_identity(run.values() | {"settings": as_json(run.settings)})
    if names := differing_keys(before, now):
        # Options of another model's backend all differ.
        if other := [name for name in ("model", "backend") if name in names]:
            names = other + [name for name in names if name not in other and not name.startswith("backend.")]
        differences = (
            f"{name} was {show_setting(before.get(name))} and is now {show_setting(now.get(name))}" for name in names
        )
        raise StoreError(
            f"The run {run.run_id!r} in {path} has different settings: {'; '.join(differences)}.",
            fix="Pass another name with --name NAME, or repeat the settings to continue the run.",
        )
    stored_versions = json.loads(old["benchmark_versions"])
    for benchmark, version in run.benchmark_versions.items():
        if (stored := stored_versions.get(benchmark, version)) != version:
            raise StoreError(
                f"The run {run.run_id!r} in {path} was scored with metric version {stored} of {benchmark}; "
                f"this version of lbx has {version}.",
                fix="Score its answers again (`lbx score`), then repeat the command.",
            )


if TYPE_CHECKING:
    pass


_NEWLY_KNOWN = {
    '"references"': 'CASE new."references"::VARCHAR WHEN \'[]\' THEN old."references" ELSE new."references" END',
    "question": "CASE new.question WHEN '' THEN old.question ELSE new.question END",
    "text_hashes": "coalesce(new.text_hashes, old.text_hashes)",
}
"""{column: SQL}, for columns that may be unknown even in a row with more information on the sample."""

_SAMPLE_COLUMNS = (
    "language",
    "length",
    "length_unit",
    '"references"',
    "question",
    "context_sha256",
    "meta",
    "position",
    "text_hashes",
)


@dataclass(frozen=True, slots=True)
class OtherSamples:
    """Samples that a file contains with other content under the same names.

    Attributes:
        count: number of these samples.
        first: "benchmark/task/sample_id" of the first of them in the data's order.
        parts: fields of the first of them that differ, such as "question".
    """

    count: int
    first: str
    parts: Sequence[str]

    def __add__(self, other: OtherSamples | None) -> OtherSamples:
        return replace(self, count=self.count + other.count) if other else self

    def __str__(self) -> str:
        more = f", and {self.count - 1:,} more" if self.count > 1 else ""
        return (
            f"{format_count(self.count, 'sample differs', 'samples differ')}: {self.first} "
            f"({', '.join(self.parts)}){more}"
        )


def _meta_differs(key: str) -> str:
    """Build the SQL condition that a key of a sample's meta differs.

    If both rows name their metrics, a key in only one of the rows is a difference.
    """
    old, new = (f"{row}.meta->>'{key}'" for row in ("old", "new"))
    both_have_metrics = "(old.meta->>'metrics' IS NOT NULL AND new.meta->>'metrics' IS NOT NULL)"
    return f"coalesce({old} <> {new}, {both_have_metrics} AND ({old} IS NULL) <> ({new} IS NULL))"


ASKED_META = ("choices", "turns")
"""Keys of a sample's meta whose values the model reads."""
RULES = ("metrics", "extract", "answer_cues")
"""Keys of a sample's meta whose values only scoring reads."""
META_PARTS = (*ASKED_META, *RULES)
_PART_TEXTS = {
    "question": "nullif({row}.question, '')",
    "references": "nullif({row}.\"references\"::VARCHAR, '[]')",
    **{key: f"{{row}}.meta->>'{key}'" for key in META_PARTS},
}
TEXT_PARTS = tuple(_PART_TEXTS)
"""Fields of a sample whose hashes are in ``samples.text_hashes`` if their texts were removed."""


def part_hash(row: str, part: str) -> str:
    """Build the SQL for the SHA-256 of a sample's field, also if its text was removed. NULL for an empty field."""
    return f"coalesce({row}.text_hashes->>'{part}', sha256({_PART_TEXTS[part].format(row=row)}))"


_DIFFERENCES = {
    "document": "old.context_sha256 <> new.context_sha256",
    "question": "old.question <> new.question AND '' NOT IN (old.question, new.question)",
    "references": """old."references"::VARCHAR <> new."references"::VARCHAR
        AND '[]' NOT IN (old."references"::VARCHAR, new."references"::VARCHAR)""",
    **{key: _meta_differs(key) for key in META_PARTS},
}
"""{field of a sample: SQL condition that both rows contain the field and differ in it}"""


def _differs(part: str, test: str) -> str:
    """Build the SQL condition that two rows differ in a field, also if its text was removed from both rows."""
    return f"({test}) OR old.text_hashes->>'{part}' <> new.text_hashes->>'{part}'"


def differing_samples(new_rows: str) -> str:
    """Build the SQL for the names of new rows of known samples, and the fields that differ (``parts``)."""
    parts = ", ".join(f"CASE WHEN {_differs(part, test)} THEN '{part}' END" for part, test in _DIFFERENCES.items())
    return f"""
        SELECT new.benchmark, new.task, new.sample_id, new.position,
               list_filter([{parts}], lambda part: part IS NOT NULL) AS parts
        FROM ({new_rows}) new JOIN samples old USING (benchmark, task, sample_id)
    """


def find_other_samples(
    connection: duckdb.DuckDBPyConnection, new_rows: str, parameters: Sequence[object] = ()
) -> OtherSamples | None:
    """Find samples that the file contains with another document, question, references or choices.

    Answers to another data revision would be scored against the stored samples. The same applies to a user's own
    benchmark with changed metrics or turns.
    """
    count, first, differing = connection.execute(
        f"""
        SELECT count(DISTINCT name), arg_min(name, place), arg_min(parts, place)
        FROM (
            SELECT concat_ws('/', benchmark, task, sample_id) AS name, (benchmark, task, position, sample_id) AS place,
                   parts
            FROM ({differing_samples(new_rows)})
        ) WHERE len(parts) > 0
        """,
        list(parameters),
    ).fetchall()[0]
    return OtherSamples(count, first, differing) if count else None


def other_samples_error(path: Path, other_samples: OtherSamples) -> ConflictError:
    """Build the error for samples that a results file contains with other content."""
    report = as_command("lbx", "report", "FILE", "comparison", "--baseline-file", path, "--baseline", "RUN")
    return ConflictError(
        f"{path} contains answers to a different revision of the data. {other_samples}. The file is unchanged.",
        fix=f"Write answers to this revision to another results file (-o FILE). {report} then compares both on their "
        "equal questions.",
    )


def complete_samples(
    connection: duckdb.DuckDBPyConnection, new_rows: str, parameters: Sequence[object] = ()
) -> set[tuple[str, str]]:
    """Copy unknown fields of the file's samples from rows that contain them. Returns the changed (benchmark, task)s."""
    unknown_things = "context_sha256 IS NULL OR \"references\"::VARCHAR = '[]' OR question = ''"
    if not connection.execute(f"FROM samples WHERE {unknown_things} LIMIT 1").fetchone():
        return set()
    completed: set[tuple[str, str]] = set()
    for unknown, columns in (
        ("old.context_sha256 IS NULL AND new.context_sha256 IS NOT NULL", _SAMPLE_COLUMNS),
        (
            "old.\"references\"::VARCHAR = '[]' AND new.\"references\"::VARCHAR <> '[]'",
            ('"references"', "question", "meta"),
        ),
        ("old.question = '' AND new.question <> ''", ("question",)),
    ):
        taken = ", ".join(f"{column} = {_NEWLY_KNOWN.get(column, f'new.{column}')}" for column in columns)
        completed.update(
            connection.execute(
                f"UPDATE samples old SET {taken} FROM ({new_rows}) new "
                "WHERE (old.benchmark, old.task, old.sample_id) = (new.benchmark, new.task, new.sample_id) "
                f"AND {unknown} RETURNING old.benchmark, old.task",
                list(parameters),
            ).fetchall()
        )
    return completed
