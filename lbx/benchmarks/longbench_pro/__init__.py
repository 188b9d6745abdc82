"""LongBench Pro."""
