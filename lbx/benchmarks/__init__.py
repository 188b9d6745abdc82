"""Benchmarks: a module or a folder for each family, the code they share, and their registry."""
