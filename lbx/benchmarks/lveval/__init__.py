"""LV-Eval."""
