"""Token counts of the texts that a generator tries, kept so that a set of samples is counted once.

A generator's draws depend on a tokenizer only through these counts. With the counts of an earlier run it makes the same
samples again without a tokenizer, in a fraction of the time, and a file of them has kilobytes where the samples have
gigabytes.
"""

from __future__ import annotations

import json
import logging
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from lbx.base.inputs import read_input
from lbx.base.outputs import atomic_file
from lbx.base.records import canonical_json, sha256_text

log = logging.getLogger("lbx")

_MOST_BYTES = 1 << 23
"""A file with the counts of the most samples (100,000) has half of it."""
_MOST = (1 << 32) - 1
"""Maximum of a checksum, and of tokens."""

_SAVE_EVERY_S = 10.0

CountTokens = Callable[[str], int]
"""Returns the number of tokens of a text, without BOS."""


@dataclass(slots=True)
class CountLog:
    """Counts in the order in which a generator asks for them.

    Attributes:
        entries: (CRC-32, tokens) of each text.
        path: file with the entries; None if they were counted in this process.
        right_samples: numbers of samples whose counts from a file were compared with the tokenizer.
        is_suspect: whether a text had another checksum than its entry, so that earlier counts may be wrong, too.
        save: writes the entries; called from time to time, so that a killed process loses little.
    """

    entries: list[tuple[int, int]] = field(default_factory=list)
    path: Path | None = None
    right_samples: set[int] = field(default_factory=set)
    is_suspect: bool = False
    save: Callable[[], None] | None = None
    _next_save_s: float = field(default_factory=lambda: time.monotonic() + _SAVE_EVERY_S)

    def counter(self, count: CountTokens) -> CountTokens:
        """Return a function that answers from the log first, and then counts and extends the log.

        A text with another checksum than its entry ends the log there: it belongs to other texts.
        """
        position = 0

        def count_tokens(text: str) -> int:
            nonlocal position
            index, position = position, position + 1
            checksum = zlib.crc32(text.encode("utf-8", "surrogatepass"))
            if index < len(self.entries):
                if self.entries[index][0] == checksum:
                    return self.entries[index][1]
                log.warning("Kept token counts of RULER do not belong to these texts; they are counted again.")
                del self.entries[index:]
                self.is_suspect = True
            tokens = count(text)
            if index == len(self.entries):  # another iteration over the same samples may be ahead
                self.entries.append((checksum, tokens))
                if self.save and time.monotonic() > self._next_save_s:
                    self.save()
                    self._next_save_s = time.monotonic() + _SAVE_EVERY_S
            return tokens

        return count_tokens

    def discard(self) -> None:
        """Remove all entries, so that their texts are counted again."""
        if not self.is_suspect:  # else the counter has logged it
            log.warning(f"{self.path} has wrong token counts: its samples are counted again.")
        self.entries.clear()
        self.path, self.is_suspect = None, False


_LOGS: dict[str, CountLog] = {}


@contextmanager
def kept_counts(description: Mapping[str, Any], bundled: Path | None) -> Iterator[CountLog]:
    """Open the counts of a set of samples, and keep new ones from time to time and after an interruption.

    Args:
        description: the settings that decide the texts and their counts. Texts also depend on the bundle's files, which
            the checksums cover.
        bundled: folder with counts in the bundle. They have precedence, because the bundle's digest covers them.
    """
    digest = sha256_text(canonical_json(description))
    counts = _LOGS.get(digest)
    if counts is None:
        logs = (_read_log(folder / f"{digest}.json") for folder in (bundled, kept_folder()) if folder)
        counts = _LOGS[digest] = next((log for log in logs if log.entries), CountLog())
    before = [*counts.entries]
    counts.save = partial(_write_log, digest, description, counts)
    try:
        yield counts
    finally:
        if counts.entries != before:
            counts.save()


def kept_folder() -> Path | None:
    """Folder of kept counts: ``lbx/ruler`` in the user's cache folder; None without a home folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        cache = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return cache / "lbx" / "ruler"


def _read_log(path: Path) -> CountLog:
    try:
        content = json.loads(read_input(path, _MOST_BYTES))
        entries = [(checksum, tokens) for checksum, tokens in content["counts"]]
        is_own = sha256_text(canonical_json(content["made_by"])) == path.stem
        are_counts = all(type(number) is int and 0 <= number <= _MOST for entry in entries for number in entry)
        if is_own and are_counts and content["sha256"] == _digest_of(entries):
            return CountLog(entries, path)
        problem = "is damaged" if is_own else "has the counts of other samples"
        log.warning(f"{path} {problem}: its samples are counted again.")
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as exc:
        log.warning(f"Cannot use {path} ({exc}): its samples are counted again.")
    return CountLog()


def _write_log(digest: str, description: Mapping[str, Any], counts: CountLog) -> None:
    folder = kept_folder()
    if folder is None:
        return _report_unkept("there is no home folder")
    path = folder / f"{digest}.json"
    content = {"made_by": dict(description), "counts": counts.entries, "sha256": _digest_of(counts.entries)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(canonical_json(content).encode())
    except OSError as exc:
        _report_unkept(f"{exc.filename or folder}: {exc.strerror or exc}")


@lru_cache(maxsize=8)
def _report_unkept(reason: str) -> None:
    """Log once for all tasks that counts are lost."""
    log.warning(
        f"The token counts of RULER's samples cannot be kept ({reason}): the next run counts again. To keep them, set "
        "XDG_CACHE_HOME to a folder that you can write to."
    )


def _digest_of(entries: list[tuple[int, int]]) -> str:
    return sha256_text(canonical_json(entries))
