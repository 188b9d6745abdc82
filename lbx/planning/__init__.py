"""What a run reads, needs and takes, known before it starts: counts, memory, time, shards."""
