"""From an archive that has come to a bundle that can be used: checked first, then unpacked."""
