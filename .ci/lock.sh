#!/usr/bin/env bash
# Resolves the dependencies into requirements.lock, and those of .ci/exchange-tools.sh, official-tools.sh and
# server-tools.sh into the locks of .ci, with hashes of every published file. Arguments go to uv (e.g. --upgrade). torch
# and llama-cpp-python stay out (.ci/setup.sh says why); what they need goes in by name, because resolving torch itself
# would lock the CUDA packages of one of its builds.
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
# The rest of what these need is in .venv.
compile --python-version 3.11 --no-deps --output-file .ci/official.lock "$@" .ci/official.in
# vLLM's CPU build needs torch alone; the versions of torchvision, torchaudio and torchcodec do not load with it.
without=(torch torchvision torchaudio torchcodec)
printf "%s; sys_platform == 'never'\n" "${without[@]}" > "$tools/overrides.txt"
"$tools/venv/bin/uv" pip compile --quiet --generate-hashes --no-header --no-annotate --no-emit-index-url \
    --python-platform linux --python-version 3.11 --override "$tools/overrides.txt" \
    "${without[@]/#/--no-emit-package=}" --output-file .ci/servers.lock "$@" .ci/servers.in "$tools/needs.in"
