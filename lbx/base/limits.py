"""Limits on untrusted input, except for external programs and web pages (``lbx.web.limits``).

Each is far above the needs of real use and far below the capacity of a machine. Values are checked on input.
"""

from __future__ import annotations

# Files, in bytes

SMALL = 1 << 26
"""A file that is read whole and contains settings, a list or a page of text."""
LARGE = 1 << 32
"""A file that is read whole and contains all answers of a run."""
TABLE_BYTES = 16 << 20
"""A TOML file, or a text file referenced by it."""
KEY_PARTS = 64
"""Components of a dotted key of a TOML file; real keys have two."""
RECORD_BYTES = 1 << 26
"""A line of a data file; the longest line of any benchmark has a fifth of this size."""
TOKENIZER_BYTES = 1 << 28
"""A tokenizer.json; Gemma 3's has an eighth of this size."""
JOURNAL_BYTES = 1 << 28
"""A journal of ratings."""
EDITS_BYTES = 1 << 30
"""The log of a dataset's edits."""
ZIP_RATIO = 200
"""Maximum ratio of a zip's declared size to its own size, above the first mebibyte."""

# Values of a spec

WHOLE_NUMBER = 2**63 - 1
"""Any whole number: the maximum of databases and slices."""
WORKERS = 1024
"""Worker processes."""
ITERATIONS = 10_000
"""Answers to one question."""
TEXT_CHARACTERS = 10_000
"""A name, a path or another text."""
LIST_ITEMS = 10_000
"""Tasks, runs, metadata."""
SAMPLE_IDS = 1_000_000
"""Samples by name."""

# Files of models

CONTEXT_TOKENS = 1 << 28
"""A context window. The longest today is ten million tokens; a file that declares more is damaged."""
SET_CONTEXT_TOKENS = 2**31 - 1
"""A context window or a cache that a card sets: the largest position of llama.cpp."""
TEMPLATE_CHARACTERS = 1 << 20
"""A chat template; the longest in use have 30,000."""
TEMPLATE_GROWTH = 4
"""Maximum ratio of a rendered prompt's length to the length of its template and messages."""
TEMPLATE_SECONDS = 5
"""CPU time of a rendering."""
TEMPLATE_BYTES = 1 << 30
"""Address space of the rendering process, libraries included; a prompt of a million tokens takes about 20 MB."""
TOKENIZER_GROWTH = 32
"""Maximum factor by which a tokenizer may lengthen a text before splitting it; Unicode normalization reaches 18."""
TOKENIZER_TEXT_CHARACTERS = 1000
"""A text inserted by a tokenizer."""

# A person's own queries

QUERY_SECONDS = 60
"""Time of a query, excluding the time to consume its result."""
QUERY_MIB = 2048
"""Memory of a query and its result, in addition to lbx's own."""
PIVOT_COLUMNS = 10_000
"""Columns created by a PIVOT; the time to plan a query grows with their square."""


def is_zip_bomb(unpacked_size: int, packed_size: int) -> bool:
    """Whether the sizes of a zip file, in bytes, rule out that it contains a dataset.

    Text shrinks to a third or a tenth; Deflate could reach a thousandth, and members that share their bytes even less.
    zipfile returns at most the declared bytes of a member, so the declared size is the bound.
    """
    return unpacked_size > (1 << 20) + ZIP_RATIO * packed_size
