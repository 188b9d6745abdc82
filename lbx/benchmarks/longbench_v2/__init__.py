"""LongBench v2."""
