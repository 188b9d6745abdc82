"""Needles in a haystack, made by lbx."""
