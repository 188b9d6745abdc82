"""HELMET: tasks, draws of samples and demonstrations, prompts, scores and tables."""
