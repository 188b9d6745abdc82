"""Scoring of answers, and aggregation of scores to official numbers with intervals."""
