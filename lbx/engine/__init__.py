"""Engine between prompts and completions, for every library: templates, shared prefixes, batches, decoding."""
