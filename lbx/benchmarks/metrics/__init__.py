"""Metrics as pure functions of strings: exactly the official arithmetic, quirks included, and never an exception.

A metric takes an output and the accepted answers and returns a number in 0..1. Which metric belongs to which task
is the benchmarks' business. Each file names the official function it follows.
"""
