#!/usr/bin/env bash
# Makes this machine ready for the image's test, or says why it cannot be: tools from the distribution, a base, the
# wheelhouse. Exit code 1 when something is missing; nothing is left half done.
#
#     .ci/image-tools.sh [VARIANT|base]      VARIANT: of the wheelhouse (default: cpu); base: only what needs no .venv,
#                                            so that it can run beside .ci/setup.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/image-lib.sh

without() { fail "the image will not be tested: $*"; }
[ "$(id -u)" = 0 ] || without "only root can make a root file system"
tools=(buildah mmdebstrap strace skopeo curl)
missing=()
for tool in "${tools[@]}"; do command -v "$tool" >/dev/null || missing+=("$tool"); done
if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || without "${missing[*]} not found, and there is no apt-get to install them"
    say "installing ${missing[*]}"
    { timeout 120 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq \
        --no-install-recommends "${missing[@]}"; } >/dev/null || without "apt-get cannot install ${missing[*]}"
fi
unshare --net --mount --pid --ipc --uts --fork sh -c 'mount -t tmpfs tmpfs /tmp && mount -t proc proc /proc' \
    2>/dev/null || without "namespaces and mounts cannot be made here"
strace --seccomp-bpf -f -o /dev/null true 2>/dev/null || without "strace may not trace here"
say "the base"
timeout 600 .ci/image-base.sh >/dev/null || without "the base cannot be made; what mmdebstrap said is above"
[ "${1:-}" != base ] || exit 0
say "the wheelhouse"
timeout 600 .ci/wheelhouse.sh "${1:-cpu}" >/dev/null ||
    without "the wheelhouse cannot be gathered; what pip said is above"
say "ready"
