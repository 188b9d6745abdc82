"""Datasets of questions and answers on documents, edited a line at a time: what is not edited keeps its bytes."""
