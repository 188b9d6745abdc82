"""The version, for what must not load more than that."""

__version__ = "0.1.0"
