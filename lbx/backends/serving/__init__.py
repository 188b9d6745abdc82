"""Start, watch and stop a model server inside a run."""
