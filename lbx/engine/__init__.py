"""From a prompt to its completion, for every library: templates, shared prefixes, batches, decoding."""
