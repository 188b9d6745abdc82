"""RULER (NVIDIA, 2024): 13 synthetic tasks at any length, with samples equal to those of the authors' scripts."""
