"""Serving of a model inside a run: starting, watching and stopping a model server."""
