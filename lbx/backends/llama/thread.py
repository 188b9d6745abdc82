"""The one thread in which llama.cpp computes, apart from any other library's.

With AMX, ggml sets the shapes of a thread's tile registers at its first product and never again, and torch clears them
when it is done: the next product of llama.cpp in the same thread would end the process (SIGILL). OpenMP's threads
belong to the one that calls them, so that these are llama.cpp's alone, too.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lbx.base.interrupts import uninterrupted

_thread = ThreadPoolExecutor(1, "llama.cpp")


def compute(run: Callable[..., int], *arguments: Any) -> int:
    """What ``llama_decode`` or ``llama_encode`` returns. Ctrl-C takes effect when it has come to its end."""
    with uninterrupted():
        return _thread.submit(run, *arguments).result()
