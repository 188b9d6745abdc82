"""Signatures of bundles and attestations in OpenSSH's format, and checks of signers by a file of trusted keys."""
