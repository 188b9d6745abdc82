"""Uncertainty of scores: intervals, differences, and the tail probabilities they need, on numpy and ``math`` only."""
