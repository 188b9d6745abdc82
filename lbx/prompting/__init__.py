"""Templates, wrapping and reasoning: the text and tokens that a model reads for a question."""
