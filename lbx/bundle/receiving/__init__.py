"""Verify a received archive, then unpack it to a usable bundle."""
