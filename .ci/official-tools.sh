#!/usr/bin/env bash
# Makes .venv-official with the libraries that HELMET's own scripts import (datasets, pytrec_eval) for `just official`, or
# says why it cannot: exit code 1. A folder beside .venv, which has all else that they need. pytrec-eval-terrier is the
# pytrec_eval that is published as a wheel: the other's build downloads a program.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=.venv-official/.lbx-$(cat .ci/official-tools.sh .ci/official.lock | sha256sum | cut -c1-16)
[ ! -e "$stamp" ] || exit 0
echo "official-tools: installing what HELMET's scripts import" >&2
rm -rf .venv-official
timeout 600 .venv/bin/python -m pip --disable-pip-version-check -qq install --target .venv-official \
    --no-compile --no-deps --require-hashes -r .ci/official.lock >&2 || {
    echo "official-tools: HELMET will not be compared with its scripts: pip cannot install them" >&2
    exit 1
}
touch "$stamp"
