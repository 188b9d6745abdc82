#!/usr/bin/env bash
# Makes .venv with everything lbx needs, from the lock. Does nothing when that is already so.
#
# Three steps, because pip checks hashes for all packages of a call or for none: everything with a published
# file is installed by hash; torch comes without one (which build is right depends on the machine); llama.cpp
# is built here once and kept, because no published wheel runs on every CPU.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.13.0
python=.venv/bin/python
stamp=.venv/.lbx-$(cat .ci/setup.sh .ci/llama-wheel.sh .ci/llama-source.sh requirements.lock pyproject.toml .ci/build_kernel.py \
    lbx/backends/hf/kernel/*.cpp lbx/backends/hf/kernel/*.h | sha256sum | cut -c1-16)
if [ -e "$stamp" ]; then
    exit 0
fi

say() { printf 'setup: %s\n' "$*" >&2; }
base=${PYTHON:-python3}
"$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    say "lbx needs Python 3.11 or newer; $base is $("$base" --version). Set PYTHON to a newer one."
    exit 1
}
[ -x "$python" ] || "$base" -m venv .venv
pip() { "$python" -m pip --disable-pip-version-check --quiet "$@"; }

# Beside the downloads, which leave the processor alone: where it is not kept, the wheel takes minutes.
say "the llama.cpp wheel (built once and kept: about 4 minutes on two cores the first time)"
built=$(mktemp)
.ci/llama-wheel.sh "$python" own > "$built" &
building=$!
trap 'kill "$building" 2>/dev/null || true; rm -f "$built"' EXIT
# Compiled below, by all cores: pip would do it with one.
say "the locked packages"
pip install --no-compile --no-deps --require-hashes -r requirements.lock  # whole but for torch and llama.cpp
say "torch $torch_version"
pip install --no-compile "torch==$torch_version"
wait "$building"
pip install --no-compile --no-deps --force-reinstall "$(cat "$built")"
pip install --no-deps --no-build-isolation --editable .
# Some packages bring files that no Python compiles; pip passes over them, too. What nothing here imports, or one model
# of hundreds at a time, is compiled when it is.
"$python" -W ignore -m compileall -q -j 0 -x '/(transformers/models|pip|setuptools|mypy|mypyc|networkx|jieba)/' \
    "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" lbx >/dev/null 2>&1 || true
"$python" -m pip check >&2
rm -f .venv/.lbx-*
touch "$stamp"
say "done"
