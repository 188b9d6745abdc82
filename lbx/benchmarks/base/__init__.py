"""Shared code of benchmark families: base class, data files, aggregates, prediction files."""
