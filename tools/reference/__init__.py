"""Pages of the reference, generated from the code: ``docs/generate.py`` writes them."""
