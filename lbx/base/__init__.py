"""What every room stands on: records, errors, paths, files from outside, processes, units."""
