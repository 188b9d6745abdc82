"""LongBench v1 and LongBench-E: tasks, prompts, scoring, published scores, and files of predictions and results."""
