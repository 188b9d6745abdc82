"""Readers of stored runs, answers and numbers."""
