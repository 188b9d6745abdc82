"""Trying again when a network falters."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from lbx.base.errors import FetchError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retry:
    """How patient a download is.

    Attributes:
        tries: attempts in a row that bring nothing; one that carried a broken download on begins the count anew.
        delay_s: seconds before the second attempt; doubled each time, up to ``max_delay_s``.
        connect_s: seconds to wait for a connection.
        read_s: seconds to wait for the next bytes.
    """

    tries: int = 5
    delay_s: float = 1.0
    max_delay_s: float = 30.0
    connect_s: float = 15.0
    read_s: float = 60.0

    def __post_init__(self) -> None:
        if self.tries < 1 or min(self.delay_s, self.max_delay_s) < 0 or min(self.connect_s, self.read_s) <= 0:
            raise ValueError(f"not a way to try again: {self}")


class AgainError(Exception):
    """An attempt failed in a way that may pass.

    Args:
        cause: a clause for the message, e.g. "the connection broke".
        wait_s: what the server asked to wait, seconds.
        progressed: the attempt carried on where the one before broke, and so will the next.
    """

    def __init__(self, cause: str, *, wait_s: float = 0.0, progressed: bool = False) -> None:
        super().__init__(cause)
        self.wait_s = wait_s
        self.progressed = progressed


def persist(retry: Retry, what: str, attempt: Callable[[], T]) -> T:
    """Call ``attempt`` until it does not raise ``AgainError``.

    Args:
        what: what is being fetched, for the message.

    Raises:
        FetchError: it failed ``retry.tries`` times in a row.
    """
    failed = 0
    while True:
        try:
            return attempt()
        except AgainError as exc:
            failed = 1 if exc.progressed else failed + 1
            if failed >= retry.tries:
                raise FetchError(
                    f"{what} could not be fetched in {failed} attempts: {exc}.",
                    fix="Check the network and give the same command again; what is already here is kept.",
                ) from exc
            time.sleep(max(min(retry.delay_s * 2 ** (failed - 1), retry.max_delay_s), min(exc.wait_s, 120.0)))
