"""Running a spec: a forecast, a results file, or shards."""
