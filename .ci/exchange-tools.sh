#!/usr/bin/env bash
# Makes .venv-exchange with the tools that read lbx's exports (every-eval-ever, inspect_ai, lm_eval) for tests/exchange,
# or says why it cannot: exit code 1. Apart from .venv, because they need Python 3.12 and other versions of its packages.
set -euo pipefail
cd "$(dirname "$0")/.."

without() {
    echo "exchange-tools: exports will not be tested with the tools that read them: $*" >&2
    exit 1
}
is_new_enough() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; }

python=.venv-exchange/bin/python
stamp=.venv-exchange/.lbx-$(cat .ci/exchange-tools.sh .ci/exchange.lock | sha256sum | cut -c1-16)
[ ! -e "$stamp" ] || exit 0
base=
for candidate in python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python3; do
    if is_new_enough "$candidate"; then
        base=$candidate
        break
    fi
done
[ -n "$base" ] || without "no Python 3.12 or newer found"
echo "exchange-tools: installing them with $("$base" --version)" >&2
rm -rf .venv-exchange
{ "$base" -m venv .venv-exchange && timeout 600 "$python" -m pip --disable-pip-version-check -qq install \
    --no-compile --no-deps --require-hashes -r .ci/exchange.lock; } >&2 || without "pip cannot install them"
touch "$stamp"
