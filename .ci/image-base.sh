#!/usr/bin/env bash
# Print the path of a small Debian with python3 as a tar file: the base that the image is built on and tested with here.
# It is made once, on a connected machine, as root, and kept under ${LBX_IMAGE:-~/.cache/lbx/image}.
#
#     .ci/image-base.sh [SUITE]      SUITE: a Debian release with the wheelhouse's python3 (default: bookworm, 3.11)
set -euo pipefail
suite=${1:-bookworm}
root=${LBX_IMAGE:-${XDG_CACHE_HOME:-$HOME/.cache}/lbx/image}
kept=$root/base-$suite-$(dpkg --print-architecture)-$(sed '/^ *#/d' "$0" | sha256sum | cut -c1-12).tar

if [ ! -e "$kept" ]; then
    mkdir -p "$root"
    partial=$(mktemp "$root/.base-XXXXXX")
    trap 'rm -f "$partial"' EXIT
    # Documentation, man pages and translations are half of it, and nothing in a container reads them. Copyright files
    # stay: they are the licences. fsync after each package would take most of the time. mmdebstrap copies how this
    # machine is called and whom it asks for names: that is no business of the image.
    mmdebstrap --quiet --variant=minbase --include=python3 --mode=root --format=tar \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt=force-unsafe-io \
        --customize-hook='rm -f "$1/etc/resolv.conf" "$1/etc/hostname" "$1/etc/hosts"' \
        "$suite" "$partial" >&2
    chmod 644 "$partial"
    mv "$partial" "$kept"
fi
echo "$kept"
