#!/usr/bin/env bash
# Builds the image with buildah, with no network in the build: localhost/lbx:VARIANT in a store of its own.
#
#     .ci/image-build.sh [cpu|cuda|llama]      BASE_IMAGE: another base (default: the small Debian of .ci/image-base.sh)
#
# Where podman works, `podman build --network=none` does the same; the head of the Containerfile shows it.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/image-lib.sh
variant=${1:-cpu}
[ -e "wheelhouse/$variant/SHA256SUMS" ] ||
    fail "there is no wheelhouse/$variant. On a connected machine: just wheelhouse $variant"

base=${BASE_IMAGE:-}
if [ -z "$base" ]; then
    tar=$(.ci/image-base.sh)
    base=localhost/lbx-base:$(basename "$tar" .tar)
    if ! in_store inspect --type image "$base" >/dev/null 2>&1; then
        say "importing the base"
        container=$(in_store from scratch)
        in_store add --quiet "$container" "$tar" / >/dev/null
        in_store config --cmd /bin/bash "$container"
        in_store commit --quiet --rm --timestamp 0 "$container" "$base" >/dev/null
    fi
fi

# One time for every file and for the image, so that the same inputs give the same image.
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
[ "$revision" = unknown ] || git diff --quiet HEAD -- . || revision+=-dirty
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
version=$(sed -nE 's/^__version__ = "(.*)"$/\1/p' lbx/base/version.py)

# What was built from the same is not built again. `lbx.inputs` stands for all of it, the base by its content.
inputs=$(
    {
        printf '%s\n' "$revision" "$time" "$version" "$variant"
        in_store inspect --type image --format '{{.FromImageID}}' "$base"
        sha256sum Containerfile .containerignore .ci/image-{build,install}.sh "wheelhouse/$variant/SHA256SUMS"
        find models bundle -type f ! -path '*/__pycache__/*' ! -name demo.gguf -print0 | LC_ALL=C sort -z |
            xargs -0 sha256sum
    } | sha256sum | cut -c1-64
)
kept=$(in_store inspect --type image --format '{{index .OCIv1.Config.Labels "lbx.inputs"}}' \
    "$image_name:$variant" 2>/dev/null || true)
if [ "$kept" = "$inputs" ]; then
    say "$image_name:$variant is there already, of the same inputs"
    echo "$image_name:$variant"
    exit 0
fi

say "building $image_name:$variant from $base"
# The namespace has no interface: a build step that wants the network cannot have it, whatever the tool allows.
export STORAGE_DRIVER=${STORAGE_DRIVER:-$(image_driver)}
unshare -n buildah --root "$image_root/store" --runroot "$image_root/run" build --isolation chroot \
    --pull-never --quiet --format oci --timestamp "$time" --build-arg BASE_IMAGE="$base" \
    --build-arg VARIANT="$variant" --label "lbx.inputs=$inputs" \
    --build-arg VERSION="$version" --build-arg REVISION="$revision" --tag "$image_name:$variant" . >&2
in_store rmi --prune >/dev/null 2>&1 || true  # the build stage, and what the last build left
echo "$image_name:$variant"
