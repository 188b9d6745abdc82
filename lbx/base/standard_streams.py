"""Standard streams of a process, which may be closed, on a full disk, or a pipe without a reader."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Any


class ClosedOutputError(Exception):
    """The reader of standard output has ended (`lbx report ... | head`), which is not an error."""


class _Output(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # Text after this error is lost, too: Python would write it again at its end, and exit with 120.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                raise ClosedOutputError from None
            raise


class _ErrorOutput(io.FileIO):
    def write(self, data: Any, /) -> int:
        with suppress(OSError):
            return super().write(data) or len(data)
        return len(data)


def prepare_standard_streams() -> None:
    """Open closed standard streams, and prepare the others for refused text.

    Standard output then raises ClosedOutputError or OSError, once, and standard error drops the text: progress, notes
    and errors that cannot be written neither end a command nor change its exit code.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # Otherwise the next opened file would get the stream's number: a library that prints would write into the
            # results. The null device gets the lowest free number, which is ``number``.
            null_device = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(null_device, "w" if number else "r", encoding="utf-8"))
    for name, file_type in (("stdout", _Output), ("stderr", _ErrorOutput)):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):  # else a stream of the caller, or the null device
            file = io.BufferedWriter(file_type(stream.fileno(), "w", closefd=False))
            line_buffering = stream.line_buffering or name == "stderr"
            setattr(sys, name, io.TextIOWrapper(file, stream.encoding, stream.errors, line_buffering=line_buffering))
