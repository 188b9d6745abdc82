"""Several processes that hold the model, under one that writes."""
