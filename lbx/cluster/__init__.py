"""Run shards as an array of Slurm, PBS or LSF, or as a Kubernetes job; report their progress; merge their results.

This package only wraps ``lbx run``: a shard is a run of some of the samples.
"""
