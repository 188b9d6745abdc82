"""Code that benchmark families share: base class, data files, aggregates, prediction files."""
