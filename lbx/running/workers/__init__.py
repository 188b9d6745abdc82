"""Worker processes that run the model for the process that writes the results file."""
