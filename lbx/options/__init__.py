"""Declarations of the command line's options, and the specs of runs, which consist of options."""
