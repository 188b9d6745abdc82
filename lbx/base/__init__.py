"""Foundations of all packages: records, errors, paths, safe file access, processes, units."""
