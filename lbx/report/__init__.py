"""Reports: tables, charts and pages of a results file, without running models."""
