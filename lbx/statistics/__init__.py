"""Uncertainty of scores: intervals, differences and tail probabilities, with numpy and ``math`` only."""

LEVEL = 0.05
"""Level of significance of every verdict and rank."""
MIN_T_TEST_CLUSTERS = 10
"""Least number of differing clusters for a t test. Fewer get an exact test, and wider intervals."""
