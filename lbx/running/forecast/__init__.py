"""Forecast of a run: token counts, memory, time, and division into shards."""
