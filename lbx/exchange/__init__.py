"""Import and export of predictions, judgements, ratings and datasets in the official files' formats."""
