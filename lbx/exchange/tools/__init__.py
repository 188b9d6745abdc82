"""Import of results of LM Evaluation Harness and OpenCompass, and export of runs as files of other evaluation tools."""
