"""The limits on what comes from outside, where they are not another program's or the pages' (``lbx.web.limits``).

Each is far above what real use needs and far below what a machine can hold. A value is checked where it enters.
"""

from __future__ import annotations

# Files, in bytes

SMALL = 1 << 26
"""A file that is read as one piece and holds settings, a list, a page of text."""
LARGE = 1 << 32
"""A file that is read as one piece and holds a whole run's answers."""
TABLE_BYTES = 16 << 20
"""A TOML file, or a text that one names."""
RECORD_BYTES = 1 << 26
"""A line of a data file; the longest of any benchmark has a fifth of that."""
TOKENIZER_BYTES = 1 << 28
"""A tokenizer.json; Gemma 3's has an eighth of that."""
JOURNAL_BYTES = 1 << 28
"""A journal of ratings."""
EDITS_BYTES = 1 << 30
"""The log of a dataset's edits."""

# Values of a spec

WHOLE_NUMBER = 2**63 - 1
"""Any whole number: databases and slices hold no more."""
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

# What comes with models

TEMPLATE_CHARACTERS = 1 << 20
"""A chat template; the longest in use have 30,000."""
TEMPLATE_GROWTH = 4
"""Times the length of template and messages that a rendered prompt may have."""
TEMPLATE_SECONDS = 5
"""CPU time of one rendering."""
TEMPLATE_BYTES = 1 << 30
"""Address space of the process that renders, libraries included; a prompt of a million tokens takes some 20 MB."""
TOKENIZER_GROWTH = 32
"""Times its length that a tokenizer may make a text before it cuts it into tokens; Unicode's own longest is 18."""
TOKENIZER_TEXT_CHARACTERS = 1000
"""A text that a tokenizer inserts."""

# A person's own queries

QUERY_SECONDS = 60
"""Time of a query, without that of whoever reads its answer."""
QUERY_MIB = 2048
"""Memory of a query and its answer, beyond that of lbx itself."""
PIVOT_COLUMNS = 10_000
"""Columns that PIVOT may make of values; the time to plan a query grows with their square."""
