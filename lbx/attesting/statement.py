"""Statements on runs, in the form of in-toto: https://github.com/in-toto/attestation (Statement v1)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lbx.base.records import canonical_json
from lbx.store.row_digests import COLUMNS
from lbx.store.schema import SCHEMA_VERSION

_STATEMENT_TYPE, _PREDICATE_TYPE = "https://in-toto.io/Statement/v1", "urn:lbx:results:v1"
_MOST_ROWS = 10**12


@dataclass(frozen=True, slots=True)
class RunStatement:
    """Statement on a run.

    Attributes:
        rows: number of its rows.
        sha256: hash of the lines of ``lbx.store.row_digests``, each with its line feed.
        facts: {name: value} from the table of runs: bundle, weights, settings, versions, times, status.
    """

    name: str
    rows: int
    sha256: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """Statement on runs of a results file.

    Attributes:
        created_at: UTC, by the clock of the signer's machine.
        lbx_version: version of lbx that read the rows.
        salt: mixed into the digests of rows.
    """

    created_at: str
    lbx_version: str
    salt: str
    runs: Sequence[RunStatement]

    def encode(self) -> bytes:
        """Signed bytes: a line of JSON."""
        return (
            canonical_json(
                {
                    "_type": _STATEMENT_TYPE,
                    "predicateType": _PREDICATE_TYPE,
                    "subject": [{"name": run.name, "digest": {"sha256": run.sha256}} for run in self.runs],
                    "predicate": {
                        "createdAt": self.created_at,
                        "lbxVersion": self.lbx_version,
                        "salt": self.salt,
                        "schemaVersion": SCHEMA_VERSION,
                        "columns": _columns(),
                        "runs": [{"name": run.name, "rows": run.rows, **run.facts} for run in self.runs],
                    },
                }
            ).encode()
            + b"\n"
        )


def parse_statement(text: bytes) -> Statement:
    """Parse the bytes of ``Statement.encode``. Raises ValueError for anything else; the message completes "it ..."."""
    try:
        document = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except RecursionError as exc:
        raise ValueError("is nested too deeply") from exc
    except json.JSONDecodeError as exc:
        raise ValueError("is not JSON") from exc
    _require_keys(document, "_type predicateType subject predicate")
    if (document["_type"], document["predicateType"]) != (_STATEMENT_TYPE, _PREDICATE_TYPE):
        raise ValueError("is a statement of another type")
    predicate = document["predicate"]
    _require_keys(predicate, "createdAt lbxVersion salt schemaVersion columns runs")
    if predicate["schemaVersion"] != SCHEMA_VERSION or predicate["columns"] != _columns():
        raise ValueError("was made by another version of lbx, with other columns")
    names = (predicate["createdAt"], predicate["lbxVersion"], predicate["salt"])
    subjects, runs = document["subject"], predicate["runs"]
    if not all(isinstance(name, str) for name in names) or not isinstance(subjects, list) or not isinstance(runs, list):
        raise ValueError("has a value of the wrong type")
    if len(subjects) != len(runs) or not runs:
        raise ValueError("does not have one subject for each run")
    statement = Statement(*names, [_parse_run(subject, run) for subject, run in zip(subjects, runs, strict=True)])
    if len({run.name for run in statement.runs}) != len(runs):
        raise ValueError("names a run twice")
    return statement


def _parse_run(subject: Any, run: Any) -> RunStatement:
    _require_keys(subject, "name digest")
    _require_keys(subject["digest"], "sha256")
    if not isinstance(run, dict) or run.get("name") != subject["name"] or not isinstance(run["name"], str):
        raise ValueError("has a subject that is not its run")
    rows, digest = run.get("rows"), subject["digest"]["sha256"]
    if type(rows) is not int or not 0 < rows < _MOST_ROWS:
        raise ValueError("has an impossible number of rows")
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError("has a digest that is not a SHA-256")
    facts = {name: value for name, value in run.items() if name not in ("name", "rows")}
    return RunStatement(run["name"], rows, digest, facts)


def _columns() -> dict[str, dict[str, list[str]]]:
    return {table: {"values": [*columns.values], "texts": [*columns.texts]} for table, columns in COLUMNS.items()}


def _require_keys(value: Any, names: str) -> None:
    if not isinstance(value, dict) or value.keys() != {*names.split()}:
        raise ValueError(f"does not have exactly the keys {', '.join(names.split())}")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("has a key twice")
    return dict(pairs)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"contains {name}, which is not JSON")
