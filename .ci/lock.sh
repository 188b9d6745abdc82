#!/usr/bin/env bash
# Resolves the dependencies into requirements.lock, and those of .ci/exchange-tools.sh into .ci/exchange.lock, with
# hashes of every published file. Arguments go to uv (e.g. --upgrade). torch and llama-cpp-python stay out (.ci/setup.sh
# says why); what they need goes in by name, because resolving torch itself would lock the CUDA packages of one of its
# builds.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools/venv"
"$tools/venv/bin/pip" install --quiet uv
printf '%s\n' "torch; sys_platform == 'never'" "llama-cpp-python; sys_platform == 'never'" > "$tools/overrides.txt"
printf '%s\n' filelock fsspec networkx setuptools sympy typing-extensions diskcache > "$tools/needs.in"
compile() {
    "$tools/venv/bin/uv" pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
        --no-emit-index-url "$@"
}
compile --python-version 3.11 --no-emit-package torch --no-emit-package llama-cpp-python \
    --override "$tools/overrides.txt" --extra llama --extra hf --extra web --extra dev \
    --output-file requirements.lock "$@" pyproject.toml "$tools/needs.in"
compile --python-version 3.12 --output-file .ci/exchange.lock "$@" .ci/exchange.in
