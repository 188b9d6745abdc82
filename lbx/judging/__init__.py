"""What judges and people say of answers: rounds for judges, sets for raters."""
