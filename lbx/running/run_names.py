"""Names of runs without ``--name``, derived from model, bundle and settings, so that a repeated command continues."""

from __future__ import annotations

from lbx.base.records import canonical_json, sha256_text
from lbx.results import RunRow, Store
from lbx.results.file.identity import FULL_HASH


def default_names(row: RunRow, *, judges: bool) -> list[str]:
    """Derive the names of an unnamed run from model, bundle and settings, in order of preference.

    The first name excludes the hash of all weight bytes, so that a run continues with and without the hash. The second
    name includes the hash, for other weights with equal samples of the tensors.
    """
    settings = {name: value for name, value in row.settings.items() if name != FULL_HASH}
    digest = sha256_text(canonical_json([row.model, row.backend, row.bundle_digest, settings]))[:8]
    name = f"{row.model}-{row.backend}-{digest}{'-judge' * judges}"
    return [name, *([f"{name}-{row.settings[FULL_HASH][:8]}"] if FULL_HASH in row.settings else [])]


def candidate_names(store: Store, row: RunRow, *, judges: bool) -> list[str]:
    """Names under which a results file may contain an unnamed run: default names, and runs with moved scores.

    ``lbx score --bundle`` changes the digest of a run's bundle, but not its name.
    """
    moved = store.query("SELECT run_id FROM runs WHERE rescorings IS NOT NULL ORDER BY ALL").rows
    return [*default_names(row, judges=judges), *(name for (name,) in moved)]
