"""Whether what is asked now is a run that the file has: the same model, bundle and settings.

An earlier lbx told weights by the first and last MiB of their files, and llama.cpp's layers on a GPU not at all. What
it wrote is accepted where today's model has the same by its rules, and replaced by what today's rules say, so that this
happens once. ``hardware.settings_earlier`` holds the settings that it wrote otherwise (None: it did not write them).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lbx.base.odd_values import refusing_odd_values
from lbx.store.rows import RunRow, as_json, identity, unequal
from lbx.store.store import Store

EARLIER = "settings_earlier"
WHOLE = "backend.weights_whole"
"""The hash of every byte of the weights. A run may be begun without it and continued with it, or the other way."""
_GPU = ("backend.n_gpu_layers", "backend.offload_kqv")
_GPU_LIBRARY = re.compile(r"\b(?:CUDA|ROCm|HIP|Metal|MTL|Vulkan|SYCL|MUSA)\d* :")


@dataclass(frozen=True, slots=True)
class Difference:
    """In what two runs of one name differ.

    Attributes:
        other: settings that make them two runs.
        earlier: settings that one of them has as an earlier lbx wrote them.
        settings, hardware: of both as one run, by today's rules.
    """

    other: list[str]
    earlier: list[str]
    settings: dict[str, Any]
    hardware: dict[str, Any]


def difference(held: Mapping[str, Any], new: Mapping[str, Any]) -> Difference:
    """Compare two rows of ``runs``, whose settings and hardware are JSON texts."""
    before, now = identity(held), identity(new)
    (old_settings, old_hardware), (new_settings, new_hardware) = (
        [json.loads(row[column]) for column in ("settings", "hardware")] for row in (held, new)
    )
    names = [name for name in unequal(before, now) if name != WHOLE or None not in (before.get(name), now.get(name))]
    alike = _gpu_layers(old_hardware) == _gpu_layers(new_hardware)
    names_alike = [name for name in names if alike or name not in _GPU]
    older = [name for name in names_alike if _is_earlier(name, before, new_hardware)]
    newer = [name for name in names_alike if _is_earlier(name, now, old_hardware)]
    return Difference(
        other=[name for name in names if name not in (*older, *newer)],
        earlier=[*older, *newer],
        settings=old_settings | new_settings | {name: old_settings[name] for name in newer},
        hardware=old_hardware if newer else new_hardware,
    )


def is_on_gpu(hardware: Mapping[str, Any]) -> bool:
    """Whether a run of llama.cpp had layers on one: by those it wanted there, and the libraries that were loaded."""
    return bool(hardware.get("n_gpu_layers") and _GPU_LIBRARY.search(str(hardware.get("features", ""))))


def _gpu_layers(hardware: Mapping[str, Any]) -> int:
    """How many layers were wanted on a GPU that was there; -1 for all."""
    return int(hardware["n_gpu_layers"]) if is_on_gpu(hardware) else 0


def settings_earlier(run: RunRow) -> dict[str, Any]:
    """A run's settings as an earlier lbx wrote them; today's where it wrote the same."""
    earlier = run.hardware.get(EARLIER, {})
    settings = {**run.settings, **earlier, WHOLE: None}
    return {name: value for name, value in settings.items() if value is not None or name not in (*earlier, WHOLE)}


@refusing_odd_values
def take_up(store: Store, run: RunRow, names: Sequence[str], earlier: str = "") -> tuple[RunRow, list[str]]:
    """The run under the name that it has in the file, or that it gets there.

    What the file says of it by the rules of an earlier lbx is replaced.

    Args:
        names: that it may have or get, the best first.
        earlier: the name that an earlier lbx gave it, "" for none.

    Returns:
        The run, and the settings that were as an earlier lbx wrote them; none where it is new or will be refused.
    """
    columns = "run_id, model, backend, bundle_digest, settings, hardware"
    query = f"SELECT {columns} FROM runs WHERE run_id IN (SELECT unnest(?::VARCHAR[]))"
    held = {row["run_id"]: row for row in store.query(query, [[*names, earlier]]).dicts()}
    values = run.values() | {"settings": as_json(run.settings), "hardware": as_json(run.hardware)}
    for name in (*names, earlier):
        if name not in held or (mismatch := difference(held[name], values)).other:
            continue
        if as_json(mismatch.settings) != as_json(json.loads(held[name]["settings"])):
            with store.transaction() as connection:
                connection.execute("UPDATE runs SET settings = ? WHERE run_id = ?", [as_json(mismatch.settings), name])
        return replace(run, run_id=name, settings=mismatch.settings), mismatch.earlier
    return replace(run, run_id=next((name for name in names if name not in held), names[0])), []


def _is_earlier(name: str, settings: Mapping[str, Any], hardware: Mapping[str, Any]) -> bool:
    """Whether a setting is as an earlier lbx would have written it of the run that has this hardware."""
    earlier = hardware.get(EARLIER)
    return isinstance(earlier, dict) and name in earlier and as_json(settings.get(name)) == as_json(earlier[name])
