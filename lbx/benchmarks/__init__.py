"""Benchmarks: a module or folder for each family, code that families share, and the registry."""
