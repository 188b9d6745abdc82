"""Formatting of reports for readers and programs: cells, labels, and output formats."""
