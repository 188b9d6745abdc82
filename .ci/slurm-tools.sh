#!/usr/bin/env bash
# Installs a real Slurm for tests/cluster/test_slurm.py from the distribution, or says why it cannot: exit code 1.
# Nothing of it is started or set up: the test runs daemons of its own, in a folder of its own.
set -euo pipefail

without() {
    echo "slurm-tools: Slurm will not be tested: $*" >&2
    exit 1
}
[ "$(id -u)" = 0 ] || without "only root can start its daemons"
PATH=$PATH:/usr/sbin:/sbin
missing=()
for tool in munged slurmctld slurmd sbatch; do command -v "$tool" >/dev/null || missing+=("$tool"); done
[ ${#missing[@]} -gt 0 ] || exit 0
command -v apt-get >/dev/null || without "${missing[*]} not found, and there is no apt-get to install them"
echo "slurm-tools: installing slurm-wlm and munge" >&2
{ timeout 120 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq \
    --no-install-recommends slurm-wlm munge; } >/dev/null || without "apt-get cannot install slurm-wlm and munge"
