"""Kubernetes manifest of an Indexed Job of shards, in JSON, which ``kubectl apply -f`` reads like YAML.

Kubernetes restarts containers that fail or are evicted, and counts failures of each index separately
(``backoffLimitPerIndex``, stable since 1.33). Bad usage (exit code 2) fails an index at once. A Job cannot distinguish
a run with failed samples (exit code 3) from an error, so the container exits with 0 then; ``lbx status`` and
``lbx merge`` report failed samples.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.exit_codes import ExitCode
from lbx.cluster.scheduler import WAIT, fill_in

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?")
_LONGEST = 52
_CPUS = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(m?)")
FOLDER, BUNDLE, _SCRATCH = "/lbx/run", "/lbx/bundle", "/lbx/scratch"

_SCRIPT = """\
trap 'heard=yes; kill -TERM "$run"' TERM
results=$(printf @{folder}/shards/%04d.duckdb "$JOB_COMPLETION_INDEX")
lbx run "$@" --output "$results" --shard-plan @{folder}/shards.json --shard "$JOB_COMPLETION_INDEX" \\
    --scratch @{scratch} &
@{wait}
[ "$code" = 3 ] && exit 0
exit "$code"
"""


def job_name(run: str) -> str:
    """Job name for a run: lower case, with '-' for other characters than letters and digits."""
    return re.sub(r"[^a-z0-9]+", "-", run.lower())[:_LONGEST].strip("-") or "lbx"


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """Options of a Kubernetes Job.

    Attributes:
        name: a DNS label.
        image: container image with lbx.
        run_claim, bundle_claim: PersistentVolumeClaims of the run's folder (written) and the bundle (read).
        cpus, mem, gpus: resources of each shard; "" or 0 leaves them out.
        at_once: number of shards that run in parallel, or 0 for all.

    Raises:
        UsageError: the name is not a DNS label, or ``cpus`` is not a number of CPUs.
    """

    name: str
    image: str
    run_claim: str
    bundle_claim: str
    namespace: str = ""
    cpus: str = ""
    mem: str = ""
    gpus: int = 0
    at_once: int = 0
    retries: int = 10

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name!r} is not a valid name of a Kubernetes job.",
                fix="Pass --job-name with at most 52 lower-case letters, digits and '-'.",
            )
        if self.cpus and not self.cpu_count:
            raise UsageError(
                f"--cpus {self.cpus!r} is not a number of CPUs.", fix="For example: --cpus 8, 2.5 or 2500m."
            )

    @property
    def cpu_count(self) -> int:
        """Number of CPUs of a shard, rounded up, or 0 if not given."""
        match = _CPUS.fullmatch(self.cpus)
        return math.ceil(float(match[1]) / (1000 if match[2] else 1)) if match else 0


def manifest(options: KubernetesOptions, shards: int, run: Sequence[str]) -> dict[str, Any]:
    """Build the manifest of the Job (API batch/v1).

    Args:
        run: arguments of ``lbx run``, with the bundle at /lbx/bundle and the run's folder at /lbx/run.
    """
    metadata = {"name": options.name, "labels": {"app.kubernetes.io/name": "lbx"}}
    if options.namespace:
        metadata["namespace"] = options.namespace
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completionMode": "Indexed",
            "completions": shards,
            "parallelism": min(shards, options.at_once or shards),
            "backoffLimitPerIndex": options.retries,
            "maxFailedIndexes": shards,
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailIndex",
                        "onExitCodes": {"containerName": "lbx", "operator": "In", "values": [ExitCode.USAGE.value]},
                    },
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {"metadata": {"labels": metadata["labels"]}, "spec": _pod(options, run)},
        },
    }


def _pod(options: KubernetesOptions, run: Sequence[str]) -> dict[str, Any]:
    volumes = [
        {"name": "run", "persistentVolumeClaim": {"claimName": options.run_claim}},
        {"name": "bundle", "persistentVolumeClaim": {"claimName": options.bundle_claim, "readOnly": True}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    limits = {"cpu": options.cpus, "memory": options.mem, "nvidia.com/gpu": str(options.gpus or "")}
    limits = {name: value for name, value in limits.items() if value}
    values = {"folder": FOLDER, "scratch": _SCRATCH, "wait": WAIT}
    script = fill_in(_SCRIPT, values, "The script")
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 120,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "lbx",
                "image": options.image,
                "command": ["/bin/sh", "-c", script, "lbx", *run],
                "resources": {"requests": limits, "limits": limits} if limits else {},
                "securityContext": {
                    "readOnlyRootFilesystem": True,
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "run", "mountPath": FOLDER},
                    {"name": "bundle", "mountPath": BUNDLE, "readOnly": True},
                    {"name": "scratch", "mountPath": _SCRATCH},
                    {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
                ],
            }
        ],
        "volumes": volumes,
    }
