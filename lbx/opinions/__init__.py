"""Judging and rating of stored answers: rounds for judges, rating sets and sessions for people."""
