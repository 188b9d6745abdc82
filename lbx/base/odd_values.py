"""What is made of stored values, where a file from elsewhere may hold values of the right type that mean nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from lbx.base.errors import StoreError


class _ResultsFile(Protocol):
    path: Path


_P = ParamSpec("_P")
_T = TypeVar("_T")
_S = TypeVar("_S", bound=_ResultsFile | None)
_ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def refusing_odd_values(make: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], _T]:
    """The same function of an open results file, with a StoreError for whatever its values make Python raise.

    Columns and the outer form of JSON are held to their types when a file is opened (``lbx.store.columns``); what a
    benchmark keeps within a sample's ``meta``, say, only the benchmark knows.
    """

    @functools.wraps(make)
    def guarded(store: _S, /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        try:
            return make(store, *arguments, **options)
        except _ODD as exc:
            place = store.path if store is not None else "What is published"
            raise StoreError(
                f"{place} holds values of which this cannot be made ({type(exc).__name__}: {exc}).",
                fix="If only lbx has written to it, this is a bug: please report it with the traceback that --debug "
                "shows.",
            ) from exc

    return guarded
