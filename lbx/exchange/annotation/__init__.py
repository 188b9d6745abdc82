"""Editing of datasets of questions and answers, line by line; lines without edits keep their bytes."""
