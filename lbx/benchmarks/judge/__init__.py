"""A judge's work as a benchmark: rubrics and rounds."""
