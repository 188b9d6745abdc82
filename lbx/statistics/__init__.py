"""How sure a number is: intervals, differences, and the tails they need, on numpy and ``math`` alone."""
