"""Editing of datasets of questions and answers, line by line. The bytes of lines without edits stay unchanged."""
