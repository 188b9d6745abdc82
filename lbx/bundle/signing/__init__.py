"""Signatures in OpenSSH's format, and trusted keys."""
