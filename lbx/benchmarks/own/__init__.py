"""Benchmarks that a bundle defines."""
