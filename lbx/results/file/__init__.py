"""Opening, checking and writing of results files."""
