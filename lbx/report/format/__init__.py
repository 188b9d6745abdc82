"""Tables for readers and programs: cells, labels, and output formats."""
