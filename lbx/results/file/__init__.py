"""The results file itself: its schema's check, opening, transactions, what is written into it."""
