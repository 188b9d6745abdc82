"""From the results file to tables. Reads, never runs."""
