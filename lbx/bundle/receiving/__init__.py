"""Receiving of an archive: verify it, then unpack it to a usable bundle."""
