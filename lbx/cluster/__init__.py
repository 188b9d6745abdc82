"""Many machines: a run in shards as a Slurm array or a Kubernetes job, how far it is, and its files as one again.

It only wraps what ``lbx run`` does: a shard is a run of some of the samples.
"""
