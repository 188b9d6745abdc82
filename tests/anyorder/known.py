"""Faults that are known and not mended yet, each named where a journey goes around it; mended ones leave the list."""

from __future__ import annotations

KNOWN = {
    2: "weights that differ in the middle alone are one run",
    3: "--scratch leaves the log of a killed run beside the file",
    4: "merge --force drops what only the replaced file holds",
    9: "a newer metric in the middle of a run, or of shards",
    15: "--retry-empty leaves verifications of the answer before, --retry-failed forgets what it does not ask",
    23: "a part of a benchmark that was imported is taken for the whole",
}
