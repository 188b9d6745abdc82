#!/usr/bin/env bash
# Print the path of a llama-cpp-python wheel that runs on any x86-64 with AVX2 (or any 64-bit ARM): one CPU variant for
# each generation of processors, chosen when lbx loads it. The plain wheel is compiled for the building machine and
# crashes on older ones. It serves every Python 3: no line of its libraries knows Python.
#
#     .ci/llama-wheel.sh [PYTHON [VARIANT]]      PYTHON: the interpreter that builds (default: python3)
#
# VARIANT cuda adds the CUDA backend beside the CPU variants (default: cpu): it needs nvcc, and takes long. CUDA_ARCHS
# says for which GPUs, as CMake spells them (default: A100, A6000, L40, H100). It loads only where CUDA's libraries lie.
# VARIANT own has two CPU variants, which build in half the time: this processor's best, and AVX2 for all others. A wheel
# with all of them that is already there serves, too.
#
# Building takes minutes, so the wheel is kept under ${LBX_WHEELS:-${XDG_CACHE_HOME:-$HOME/.cache}/lbx/wheels}; a wheel
# that is already there is only printed. Progress goes to stderr, the path alone to stdout.
set -euo pipefail
. "${BASH_SOURCE[0]%/*}/llama-source.sh"

readonly VERSION=$llama_version
cuda_flags=""
[ "${2:-cpu}" != cuda ] || cuda_flags=" -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=${CUDA_ARCHS:-80;86;89;90}"
readonly FLAGS="-DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON -DLLAVA_BUILD=OFF$cuda_flags"
# Not built, because half of the time would go there: variants for processors without AVX2 and for two that few
# clusters have (both run a neighbour's), and llama.cpp's own programs' library. No option leaves them out.
readonly UNUSED_VARIANTS="x64|sse42|sandybridge|ivybridge|piledriver|cannonlake|cooperlake"
# GCC up to 12.3 (Debian 12's is 12.2) declares _tile_loadconfig as reading 8 bytes of the 64 that the instruction reads,
# drops the stores of the others, and the first tile instruction on an AMX processor is then an illegal one:
# ggml-org/llama.cpp#26954, open. An instruction whose operand is the whole struct is right with every compiler. This
# goes when upstream's line no longer depends on it.
readonly TILE_FILE=vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp
readonly TILE_LINE='    _tile_loadconfig(&tc);'
readonly TILE_MENDED='    __asm__ volatile ("ldtilecfg %0" : : "m" (tc) : "memory");'
readonly PYTHON="${1:-python3}"

fail() {
    echo "llama-wheel: $*" >&2
    exit 1
}

command -v "$PYTHON" >/dev/null || fail "there is no interpreter $PYTHON. Give one: .ci/llama-wheel.sh PYTHON"
root="${LBX_WHEELS:-${XDG_CACHE_HOME:-$HOME/.cache}/lbx/wheels}"
processor=""
if [ "${2:-cpu}" = own ] && [ "$(uname -m)" = x86_64 ]; then
    processor=$(sed -n '/^flags/{s/.*: //p;q}' /proc/cpuinfo | tr ' ' '\n' | grep -E '^(avx|amx|bmi2|f16c|fma|sse4_2)' |
        sort | tr '\n' ' ')
fi

# Folder of the wheel for this machine's kind of processor, or of the wheel that has all variants (no argument).
folder_of() {
    local hash
    hash=$(printf '%s' "$FLAGS $UNUSED_VARIANTS $TILE_MENDED${1:+ $1}" | sha256sum | cut -c1-12)
    echo "$root/$VERSION-$hash-$(uname -m)"
}

kept=$(folder_of "$processor")

find_wheel() {
    local wheel
    for wheel in "$(folder_of "")" "$kept"; do
        wheel=$(echo "$wheel"/llama_cpp_python-"$VERSION"-*.whl)
        [ ! -f "$wheel" ] || { echo "$wheel" && break; }
    done
}

# The released source, checked, with what is not wanted cut out of its build files. Prints its folder.
prepare_source() {
    local source
    source=$(fetch_llama_source "$1" "$PYTHON")
    sed -i -E "/ggml_add_cpu_backend_variant\(($UNUSED_VARIANTS)[ )]/d" \
        "$source/vendor/llama.cpp/ggml/src/CMakeLists.txt"
    [ -z "$processor" ] || keep_own_variants "$source/vendor/llama.cpp/ggml/src/CMakeLists.txt"
    sed -i 's/set(LLAMA_BUILD_COMMON ON /set(LLAMA_BUILD_COMMON OFF /' "$source/CMakeLists.txt"
    mend_tiles "$source/$TILE_FILE"
    echo "$source"
}

# Of the x86-64 variants, keeps haswell and the one with the most features of those that this processor can run.
keep_own_variants() {
    awk -v flags=" $processor" '
        function features(line, words, count, i, flag) {
            sub(/^ +/, "", line)
            count = split(line, words, /[() ]+/) - 1
            for (i = 3; i <= count; i++) {
                flag = tolower(words[i])
                if (flag == "sse42") flag = "sse4_2"
                if (flag == "avx512") flag = "avx512f"
                if (flag == "avx512_vbmi") flag = "avx512vbmi"
                if (!index(flags, " " flag " ")) return 0
            }
            return count
        }
        /ggml_add_cpu_backend_variant\(.* SSE42/ {
            if (NR == FNR && features($0) > most) { most = features($0); best = $0 }
            if (NR != FNR && $0 != best && !/haswell/) next
        }
        NR != FNR' "$1" "$1" > "$1.own"
    mv "$1.own" "$1"
}

mend_tiles() {
    local lines
    lines=$(grep -cxF "$TILE_LINE" "$1" 2>/dev/null) || true
    [ "${lines:-0}" = 1 ] || fail "the line that loads the AMX tiles' configuration is not in $TILE_FILE as $VERSION has it:" \
        "look whether ggml-org/llama.cpp#26954 is still needed, and mend or remove TILE_LINE in $0"
    "$PYTHON" - "$1" "$TILE_LINE" "$TILE_MENDED" <<'END'
import pathlib, sys
path = pathlib.Path(sys.argv[1])
path.write_text(path.read_text("utf-8").replace(sys.argv[2], sys.argv[3]), "utf-8")
END
}

# Every variant that this processor can run multiplies small matrices, and numpy compares: what does not is not kept.
try_wheel() {
    local trial="${BASH_SOURCE[0]%/*}/../lbx/backends/llama/trial.py" folder="$1/try" library variants variant said tail
    "$PYTHON" -m pip install --quiet --no-deps --target "$folder" numpy "$2" >&2 ||
        fail "the built wheel cannot be installed; what pip said is above"
    library=$(find "$folder/llama_cpp/lib" -name 'libggml.so*' -print -quit 2>/dev/null || true)
    mapfile -t variants < <(find "$folder/bin" "$folder/llama_cpp/lib" -name 'libggml-cpu-*.so' 2>/dev/null | sort)
    export PYTHONPATH="$folder" OMP_WAIT_POLICY=PASSIVE
    said=$("$PYTHON" -P "$trial" scores "$library" "${variants[@]}") || fail "the built libraries do not load"
    for variant in "${variants[@]}"; do
        case $said in *"$variant\": 0"[,}]*) continue ;; esac
        echo "llama-wheel: trying $(basename "$variant")" >&2
        tail=$("$PYTHON" -P "$trial" check "$library" "$variant" 2>/dev/null | tail -n 1) || true
        case $tail in
            *'"wrong": ""'*) ;;
            *) fail "$(basename "$variant") does not multiply rightly on this machine: ${tail:-it died at once}" ;;
        esac
    done
    unset PYTHONPATH
}

wheel=$(find_wheel)
if [ -z "$wheel" ]; then
    compiler="${CXX:-c++}"
    command -v "${compiler%% *}" >/dev/null ||
        fail "there is no C++ compiler ($compiler). Install one, e.g. apt-get install g++, or set CXX"
    [ -z "$cuda_flags" ] || command -v "${CUDACXX:-nvcc}" >/dev/null ||
        fail "there is no CUDA compiler (${CUDACXX:-nvcc}). Install CUDA's toolkit, or set CUDACXX"
    "$PYTHON" -m pip --version >/dev/null 2>&1 ||
        fail "$PYTHON has no pip. Try: $PYTHON -m ensurepip"
    mkdir -p "$root"
    work=$(mktemp -d "$root/.build-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/source" "$work/wheel"
    source=$(prepare_source "$work/source")
    echo "llama-wheel: building llama-cpp-python $VERSION (minutes); it is kept in $kept" >&2
    # Without pip's cache: it would hand out a wheel that was built with other flags.
    CMAKE_ARGS="$FLAGS" "$PYTHON" -m pip wheel --no-deps --no-cache-dir --wheel-dir "$work/wheel" \
        "$source" >&2 || fail "the build failed; what pip said is above"
    try_wheel "$work" "$(find "$work/wheel" -name '*.whl' -print -quit)"
    # One rename: another build that finished first keeps its place, and a killed one leaves nothing half made.
    mv -T "$work/wheel" "$kept" 2>/dev/null || [ -n "$(find_wheel)" ] || fail "cannot write $kept"
    wheel=$(find_wheel)
    [ -n "$wheel" ] || fail "the build left no wheel in $kept"
fi
echo "$wheel"
