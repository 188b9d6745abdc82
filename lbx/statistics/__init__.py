"""Uncertainty of scores: intervals, differences, and the tail probabilities they need, on numpy and ``math`` only."""

LEVEL = 0.05
"""Level of significance of every verdict and place."""
FEW = 10
"""Clusters that must differ for a t test; fewer have an exact one, and wider intervals."""
