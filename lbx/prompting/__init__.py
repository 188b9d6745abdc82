"""From a question to the text and tokens that a model reads: templates, wrapping, reasoning."""
