"""Operations on whole results files and runs: merging, extraction, copying, renaming, removal, rescoring."""
