"""What judges and people say of answers: rubrics and rounds for judges, sets for raters."""
