"""A run as a value: options, settings, samples and jobs."""
