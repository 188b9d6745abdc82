"""What every benchmark family shares: the Benchmark seam, data files, aggregates, prediction files."""
