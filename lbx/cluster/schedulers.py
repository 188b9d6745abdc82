"""Schedulers of ``lbx submit`` by name."""

from __future__ import annotations

from collections.abc import Mapping

from lbx.cluster.lsf import Lsf
from lbx.cluster.pbs import Pbs
from lbx.cluster.scheduler import Scheduler
from lbx.cluster.slurm import Slurm

SCHEDULERS: Mapping[str, Scheduler] = {scheduler.name: scheduler for scheduler in (Slurm(), Pbs(), Lsf())}
