#!/usr/bin/env bash
# Resolves what .ci/bench.in names into .ci/bench.lock, with hashes, at the project's own versions where both have a
# package. torch stays out, as in .ci/lock.sh; what it needs goes in by name. Arguments go to uv (e.g. --upgrade).
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools/venv"
"$tools/venv/bin/pip" install --quiet uv
echo "torch; sys_platform == 'never'" > "$tools/overrides.txt"
printf '%s\n' filelock fsspec networkx setuptools sympy typing-extensions jinja2 > "$tools/needs.in"
sed -nE 's/^([A-Za-z0-9_.-]+==[^\\]*[^\\ ]) *\\?$/\1/p' requirements.lock > "$tools/constraints.txt"
"$tools/venv/bin/uv" pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-annotate \
    --no-emit-index-url --no-emit-package torch --override "$tools/overrides.txt" \
    --constraint "$tools/constraints.txt" --output-file .ci/bench.lock "$@" .ci/bench.in "$tools/needs.in"
