"""Exit codes of the ``lbx`` program."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit code of the program, and of ``LbxError`` where an error ends it.

    FAILED: an error, or a check that failed.
    USAGE: the command line, a recipe or a model card is wrong.
    INCOMPLETE: some samples failed, or answers of some shards are missing.
    UNDECIDED: the samples do not suffice to decide a condition of ``lbx check``.
    INTERRUPTED, TERMINATED: stopped by SIGINT (Ctrl-C) or SIGTERM, as shells report these signals.
    """

    FAILED = 1
    USAGE = 2
    INCOMPLETE = 3
    UNDECIDED = 4
    INTERRUPTED = 130
    TERMINATED = 143
