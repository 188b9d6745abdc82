"""Predictions, judgements, ratings and datasets in the official files' formats: in from elsewhere, and out."""
