#!/usr/bin/env bash
# Resolves the dependencies into requirements.lock, with hashes. torch and llama-cpp-python are resolved, so that
# what they need is locked, but not written down: .ci/setup.sh says why.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools/venv"
"$tools/venv/bin/pip" install --quiet pip-tools
"$tools/venv/bin/pip-compile" --quiet --generate-hashes --strip-extras --no-header --annotation-style=line \
    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
    --unsafe-package torch --unsafe-package llama-cpp-python \
    --extra llama --extra hf --extra dev --output-file requirements.lock "$@" pyproject.toml
