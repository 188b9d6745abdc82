"""LongBench Pro: samples, prompts, scoring by task, published scores, and files of predictions and results."""
