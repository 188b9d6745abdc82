"""Compare the answers of two models, or of one model in a batch and one by one."""
