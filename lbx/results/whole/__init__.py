"""Operations on whole results files and runs: merge, extract, copy, rename, remove, score again."""
