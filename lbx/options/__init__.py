"""Run specs: options, settings, sample selection and jobs."""
