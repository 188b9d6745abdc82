"""Run shards as a Slurm array or a Kubernetes job, report their progress, and merge their results files.

This package only wraps ``lbx run``: a shard is a run of some of the samples.
"""
