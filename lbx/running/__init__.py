"""Execution of run specs: forecasts, runs into results files, and shards."""
