"""Options: their declarations, and the specs of runs that are made of them."""
