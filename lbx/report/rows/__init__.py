"""Definitions of reports, one per module."""
