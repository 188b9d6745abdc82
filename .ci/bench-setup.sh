#!/usr/bin/env bash
# Makes .venv-bench with the harness that `just bench-engine` compares lbx with, from .ci/bench.lock, apart from .venv:
# none of it is needed to use or to test lbx. Does nothing when that is already so.
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=$(sed -nE 's/^torch_version=(.*)$/\1/p' .ci/setup.sh)  # the same torch, or the comparison is of two
python=.venv-bench/bin/python
stamp=.venv-bench/.lbx-$(cat .ci/bench-setup.sh .ci/bench.lock .ci/setup.sh | sha256sum | cut -c1-16)
if [ -e "$stamp" ]; then
    exit 0
fi

say() { printf 'bench-setup: %s\n' "$*" >&2; }
[ -x "$python" ] || "${PYTHON:-python3}" -m venv .venv-bench
pip() { "$python" -m pip --disable-pip-version-check --quiet "$@"; }

say "the locked packages"
pip install --no-deps --require-hashes -r .ci/bench.lock
say "torch $torch_version"
pip install "torch==$torch_version"
"$python" -m pip check >&2
rm -f .venv-bench/.lbx-*
touch "$stamp"
say "done"
