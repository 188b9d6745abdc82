"""In which order a server is asked, so that what it has just read is read by the next ones, too."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence


class RequestQueue:
    """Hands out requests to threads: those that begin alike one after the other, the first of them alone.

    A server's prefix cache serves a prompt only once another with the same beginning has been read. So of each group
    of prompts with a common beginning one is handed out first; when it is answered, its followers come before any
    other group.

    Args:
        prompts: token ids of each.
        one_by_one: of one group never more than one at a time, for servers whose cache serves one request at once.
    """

    def __init__(self, prompts: Sequence[Sequence[int]], *, one_by_one: bool) -> None:
        self._groups = [deque(group) for group in groups(prompts)]
        self._of = {index: number for number, group in enumerate(self._groups) for index in group}
        self._fresh = deque(range(len(self._groups)))
        self._warm: deque[int] = deque()  # groups that may be handed out from; once for each request there is
        self._one_by_one = one_by_one
        self._waiting = len(self._of)
        self._change = threading.Condition()

    def take(self) -> int | None:
        """The next request; waits where there is one, but not now. None: there is none any more, or ``stop`` came."""
        with self._change:
            while self._waiting:
                if self._warm:
                    return self._hand_out(self._warm.popleft())
                if self._fresh:
                    return self._hand_out(self._fresh.popleft())
                self._change.wait()
            return None

    def done(self, index: int) -> None:
        """The request is over, however it ended."""
        with self._change:
            number = self._of[index]
            group = self._groups[number]
            followers = min(len(group), 1) if self._one_by_one else len(group) - self._warm.count(number)
            self._warm.extendleft([number] * followers)
            self._change.notify_all()

    def stop(self) -> None:
        """Hand out nothing any more."""
        with self._change:
            self._waiting = 0
            self._change.notify_all()

    def _hand_out(self, number: int) -> int:
        self._waiting -= 1
        if not self._waiting:
            self._change.notify_all()
        return self._groups[number].popleft()


def groups(prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Indices of the prompts, those together that share half of the shorter one with a neighbour; each group sorted.

    Groups come in the order of their first prompts.
    """
    keys = [tuple(prompt) for prompt in prompts]
    groups: list[list[int]] = []
    for index in sorted(range(len(keys)), key=keys.__getitem__):
        if groups and _alike(keys[groups[-1][-1]], keys[index]):
            groups[-1].append(index)
        else:
            groups.append([index])
    return sorted(groups, key=min)


def _alike(one: Sequence[int], other: Sequence[int]) -> bool:
    half = (min(len(one), len(other)) + 1) // 2
    return one[:half] == other[:half]
