"""Whether an unpacked bundle is still what was unpacked, for little: what ``lbx run`` asks before it begins."""

from __future__ import annotations

from pathlib import Path

from lbx.base.counts import counted
from lbx.base.errors import BundleError
from lbx.base.layout import TAG_MANIFEST, Bundle
from lbx.bundle.bag import PAYLOAD, parse_tags
from lbx.bundle.parallel import Tally, in_parallel
from lbx.bundle.progress import Progress, silent
from lbx.bundle.receiving.check import compare, files_below, read_tags, verify_folder
from lbx.bundle.receiving.trusted_archive import damage

_FIX = "Unpack the archive again, to another folder; `lbx verify` of this one names all that changed."


def check_unchanged(root: Path, progress: Progress | None = None, *, hashes: bool = False) -> str:
    """Hold an unpacked bundle against its manifest: every name, size and time; and the bytes of what looks younger.

    ``lbx unpack`` touches the tag manifest last. A file that is younger has been written since, or copied without its
    time: it is hashed. Who changes a file and sets its time back is found by ``hashes`` alone.

    Args:
        hashes: hash every file.

    Returns:
        How it was checked, in words.

    Raises:
        BundleError: a file is missing, changed or not the bundle's; names up to 10.
    """
    if hashes:
        return f"hashes of all {verify_folder(root, progress).files:,} files"
    Bundle(root)
    try:
        states = {path: (root / path).lstat() for path in files_below(root)}
        contents = parse_tags(read_tags(root, states), f"{root}")
        payload = {path: status for path, status in states.items() if path.startswith(PAYLOAD)}
        problems = [f"{path} (not part of the bundle)" for path in payload if path not in contents.entries]
        problems += [f"{path} (missing)" for path in contents.entries if path not in payload]
        entries = [entry for path, entry in contents.entries.items() if path in payload]
        problems += [f"{entry.path} (changed)" for entry in entries if payload[entry.path].st_size != entry.size]
        unpacked = states[TAG_MANIFEST].st_mtime_ns
        younger = [entry for entry in entries if payload[entry.path].st_mtime_ns > unpacked]
        tally = Tally(progress or silent, "verify", sum(entry.size for entry in younger))
        if not problems:
            results = in_parallel(lambda entry: compare(root / entry.path, entry, tally), younger, tally)
            problems = [problem for wrong in results for problem in wrong]
    except OSError as exc:
        raise BundleError(f"{root} cannot be read: {exc}.") from exc
    if problems:
        raise damage(root, problems, _FIX)
    hashed = f", and hashes of the {len(younger):,} younger than the manifest" if younger else ""
    return f"sizes and times of {counted(len(entries), 'file')}{hashed}"
