"""Worker processes that run the model for one writing process."""
