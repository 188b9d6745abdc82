#!/usr/bin/env bash
# Makes this machine ready for the image's test, or says why it cannot be: tools from the distribution, a base, the
# wheelhouse. Exit code 1 when something is missing; nothing is left half done. Needs .venv (just setup).
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/image-lib.sh

without() { fail "the image will not be tested: $*"; }
[ "$(id -u)" = 0 ] || without "only root can make a root file system"
tools=(buildah mmdebstrap strace skopeo)
missing=()
for tool in "${tools[@]}"; do command -v "$tool" >/dev/null || missing+=("$tool"); done
if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || without "${missing[*]} not found, and there is no apt-get to install them"
    say "installing ${missing[*]}"
    { timeout 120 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq \
        --no-install-recommends "${missing[@]}"; } >/dev/null || without "apt-get cannot install ${missing[*]}"
fi
unshare -n -m -p -f true 2>/dev/null || without "namespaces cannot be made here"
say "the base"
timeout 600 .ci/image-base.sh >/dev/null || without "the base cannot be made; what mmdebstrap said is above"
say "the wheelhouse"
timeout 600 .ci/wheelhouse.sh >/dev/null || without "the wheelhouse cannot be gathered; what pip said is above"
say "ready"
