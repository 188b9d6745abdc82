"""Two ways to the same answers held against each other: two models, or one that answers together and alone."""
