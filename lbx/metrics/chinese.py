"""Chinese words: jieba 0.42.1 with its own dictionary and HMM, as the official scripts call it.

jieba is loaded on first use, says nothing, and writes nothing: its own start-up leaves a cache file in the
temporary folder, which a read-only container may not have.
"""

from __future__ import annotations

import logging
import threading
import warnings
from functools import cache
from typing import Any

_lock = threading.Lock()


def words(text: str) -> list[str]:
    """The text cut into words; joined, they are the text again."""
    with _lock:  # two threads must not both read the dictionary
        tokenizer = _tokenizer()
    return list(tokenizer.cut(text, cut_all=False))


@cache
def _tokenizer() -> Any:
    with warnings.catch_warnings():
        # jieba 0.42.1 warns on import (escapes in its patterns, pkg_resources), which is nothing to its users.
        warnings.simplefilter("ignore")
        import jieba
    jieba.setLogLevel(logging.ERROR)
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer
