"""Signatures in OpenSSH's form, and whose are trusted."""
