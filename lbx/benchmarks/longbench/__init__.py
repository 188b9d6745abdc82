"""LongBench v1 and LongBench-E."""
