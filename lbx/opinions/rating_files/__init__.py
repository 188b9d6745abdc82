"""Import of the files of L-Eval's rating page, and their export byte for byte."""
