"""The files of L-Eval's rating page: in, and out to the byte."""
