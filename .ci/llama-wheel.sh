#!/usr/bin/env bash
# Print the path of a llama-cpp-python wheel that runs on any x86-64 or ARM node: one CPU variant for each generation of
# processors, chosen when lbx loads it. The plain wheel is compiled for the building machine and crashes on older ones.
#
#     .ci/llama-wheel.sh [PYTHON]        PYTHON: the interpreter the wheel is for (default: python3)
#
# Building takes minutes, so the wheel is kept under ${LBX_WHEELS:-${XDG_CACHE_HOME:-$HOME/.cache}/lbx/wheels}; a wheel
# that is already there is only printed. Progress goes to stderr, the path alone to stdout.
set -euo pipefail

readonly VERSION=0.3.36
readonly FLAGS="-DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON"
readonly PYTHON="${1:-python3}"

fail() {
    echo "llama-wheel: $*" >&2
    exit 1
}

command -v "$PYTHON" >/dev/null || fail "there is no interpreter $PYTHON. Give one: .ci/llama-wheel.sh PYTHON"
tag=$("$PYTHON" -c 'import sys; print(f"cp{sys.version_info[0]}{sys.version_info[1]}")')
hash=$(printf '%s' "$FLAGS" | sha256sum | cut -c1-12)
root="${LBX_WHEELS:-${XDG_CACHE_HOME:-$HOME/.cache}/lbx/wheels}"
kept="$root/$VERSION-$hash-$tag-$(uname -m)"

find_wheel() {
    [ ! -d "$kept" ] || find "$kept" -maxdepth 1 -name "llama_cpp_python-$VERSION-*.whl" -print -quit
}

wheel=$(find_wheel)
if [ -z "$wheel" ]; then
    compiler="${CXX:-c++}"
    command -v "${compiler%% *}" >/dev/null ||
        fail "there is no C++ compiler ($compiler). Install one, e.g. apt-get install g++, or set CXX"
    "$PYTHON" -m pip --version >/dev/null 2>&1 ||
        fail "$PYTHON has no pip. Try: $PYTHON -m ensurepip"
    mkdir -p "$root"
    work=$(mktemp -d "$root/.build-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    echo "llama-wheel: building llama-cpp-python $VERSION for $tag (minutes); it is kept in $kept" >&2
    # Without pip's cache: it would hand out a wheel that was built with other flags.
    CMAKE_ARGS="$FLAGS" "$PYTHON" -m pip wheel --no-deps --no-cache-dir --wheel-dir "$work" \
        "llama-cpp-python==$VERSION" >&2 || fail "the build failed; what pip said is above"
    # One rename: another build that finished first keeps its place, and a killed one leaves nothing half made.
    mv -T "$work" "$kept" 2>/dev/null || [ -n "$(find_wheel)" ] || fail "cannot write $kept"
    [ ! -d "$kept" ] || chmod 755 "$kept"
    wheel=$(find_wheel)
    [ -n "$wheel" ] || fail "the build left no wheel in $kept"
fi
echo "$wheel"
