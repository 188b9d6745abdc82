"""L-Eval: tasks, prompts, files of predictions, judges and raters."""
