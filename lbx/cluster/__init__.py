"""Run the shards of a run as jobs of Slurm, PBS, LSF or Kubernetes, report progress, and merge the results.

This package only wraps ``lbx run``: a shard is a run of some of the samples.
"""
