#!/usr/bin/env bash
# Gathers, in wheelhouse/, the wheels that the Containerfile installs from: lbx, both backends, what they need.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
out=wheelhouse
rm -rf "$out"
mkdir -p "$out/lib"
constraints=$(mktemp)
trap 'rm -f "$constraints"' EXIT
# The lock's versions without its hashes: wheels built here from source have hashes of their own.
sed -nE 's/^([A-Za-z0-9_.-]+==[^\\]*[^\\ ]) *\\?$/\1/p' requirements.lock > "$constraints"
cp "$(.ci/llama-wheel.sh "$python")" "$out/"
"$python" -m pip --disable-pip-version-check wheel --quiet --wheel-dir "$out" --find-links "$out" \
    --constraint "$constraints" "torch==2.13.0" ".[llama,hf]"
cp "$(ldconfig -p | awk '/libgomp\.so\.1 .*x86-64|libgomp\.so\.1 .*AArch64/ {print $NF; exit}')" "$out/lib/libgomp.so.1"
du -sh "$out"
