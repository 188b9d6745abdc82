"""A run is a value: what a ``RunSpec`` says is planned, run into a results file, or dealt out into shards."""
