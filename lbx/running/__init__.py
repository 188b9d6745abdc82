"""Execution of a run spec: forecast, results file or shards."""
