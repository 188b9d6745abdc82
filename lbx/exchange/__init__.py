"""Predictions and judgements in the official files' formats: in from elsewhere, and out to the official scorers."""
