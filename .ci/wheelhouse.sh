#!/usr/bin/env bash
# Gathers, on a connected machine, what the Containerfile installs from: lbx, both backends and what they need, for the
# Python of .venv (or of PYTHON) and this kind of processor.
#
#     .ci/wheelhouse.sh [cpu|cuda|llama]       into wheelhouse/cpu ...; `just wheelhouse` is the first
#
# llama has llama.cpp alone, for CPUs: no torch, no transformers, a third of the size. LLAMA_VARIANT=own takes the wheel of
# .venv, whose CPU variants are those of this processor and AVX2; the default has one for each processor.
#
# Everything in requirements.lock is checked against its hash. SHA256SUMS covers all of it, and the build checks that.
# Where pip finds torch only as its CUDA build, PIP_EXTRA_INDEX_URL can name PyTorch's index of CPU builds.
set -euo pipefail
cd "$(dirname "$0")/.."
variant=${1:-cpu}
python=${PYTHON:-.venv/bin/python}
out=wheelhouse/$variant

say() { printf 'wheelhouse: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 1
}
case $variant in
    cpu | cuda) extras=(llama hf web) ;;
    llama) extras=(llama web) ;;
    *) fail "there is no variant $variant: cpu, cuda or llama" ;;
esac
[ -x "$python" ] || fail "there is no $python. Run: just setup"

torch_version=$(sed -nE 's/^torch_version=(.*)$/\1/p' .ci/setup.sh)
llama=$(.ci/llama-wheel.sh "$python" "${LLAMA_VARIANT:-${variant/llama/cpu}}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip() { "$python" -m pip --disable-pip-version-check "$@" --quiet; }

# A full one is gathered again only when what it is made from changed; lbx's own wheel always is.
stamp=$(cat .ci/wheelhouse.sh .ci/needs.py .ci/setup.sh requirements.lock pyproject.toml <(echo "$llama") | sha256sum)
if [ "$(cat "$out/.made-from" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$out"
    mkdir -p "$out/lib"
    "$python" .ci/needs.py "${extras[@]}" > "$work/locked.txt"
    say "the locked packages"
    pip wheel --no-deps --require-hashes --wheel-dir "$out" -r "$work/locked.txt"
    [ "$variant" = llama ] || say "torch $torch_version"
    if [ "$variant" = cuda ]; then  # NVIDIA's libraries come along; the lock has none of them
        sed -nE 's/^([A-Za-z0-9_.-]+==[^\\]*[^\\ ]) *\\?$/\1/p' "$work/locked.txt" > "$work/constraints.txt"
        pip wheel --wheel-dir "$out" --find-links "$out" --constraint "$work/constraints.txt" "torch==$torch_version"
    elif [ "$variant" = cpu ]; then
        pip wheel --no-deps --wheel-dir "$out" "torch==$torch_version"
        if unzip -p "$out"/torch-*.whl '*.dist-info/METADATA' | grep '^Requires-Dist: nvidia-' >/dev/null; then
            rm -rf "$out"
            fail "pip finds torch only as its CUDA build, which takes gigabytes. Set PIP_EXTRA_INDEX_URL to PyTorch's" \
                "index of CPU builds, or gather for GPUs: .ci/wheelhouse.sh cuda"
        fi
    fi
    cp "$llama" "$out/"
    # The build runs this pip, so that the base needs none.
    pip download --no-deps --dest "$out" "pip==$("$python" -c 'import pip; print(pip.__version__)')"
    # llama.cpp's OpenMP, which slim images lack.
    # It reads to the end: a reader that leaves early ends the whole script now and then, by SIGPIPE and pipefail.
    gomp=$(ldconfig -p | awk '/libgomp\.so\.1 .*(x86-64|AArch64)/ && !n++ {print $NF}')
    [ -n "$gomp" ] || fail "there is no libgomp.so.1 here. Install it, e.g. apt-get install libgomp1"
    cp "$gomp" "$out/lib/libgomp.so.1"
    echo "$stamp" > "$out/.made-from"
fi

rm -f "$out"/lbx-*.whl
SOURCE_DATE_EPOCH=315532800 pip wheel --no-deps --no-build-isolation --no-cache-dir --wheel-dir "$out" .
"$python" models/demo/export_gguf.py --dtype f32 models/demo/hf "$out/demo.gguf" >&2
{
    "$python" -c 'import sys; print("python=%d.%d" % sys.version_info[:2])'
    echo "variant=$variant"
    echo "extras=$(IFS=,; echo "${extras[*]}")"
} > "$out/made-for"
(cd "$out" && find . -type f ! -name SHA256SUMS ! -name .made-from -printf '%P\0' | LC_ALL=C sort -z |
    xargs -0 sha256sum > SHA256SUMS)
say "$out: $(find "$out" -name '*.whl' | wc -l) wheels, $(du -sh --si "$out" | cut -f1)"
