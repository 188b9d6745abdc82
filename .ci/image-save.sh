#!/usr/bin/env bash
# Saves the built image as one file, an OCI archive, which podman, apptainer and skopeo read.
#
#     .ci/image-save.sh [FILE [VARIANT]]     default: lbx-image-VERSION-VARIANT.tar in out/, variant cpu
#
# The same inputs give the same image, whose digest is printed; the file around it carries today's date in its headers.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/image-lib.sh
variant=${2:-cpu}
version=$(sed -nE 's/^__version__ = "(.*)"$/\1/p' lbx/base/version.py)
file=${1:-out/lbx-image-$version-$variant.tar}
mkdir -p "$(dirname "$file")"
in_store inspect --type image "$image_name:$variant" >/dev/null 2>&1 ||
    fail "there is no image $image_name:$variant yet. Build it: .ci/image-build.sh $variant"
partial=$file.partial
rm -f "$partial"
trap 'rm -f "$partial"' EXIT
in_store push --quiet --digestfile "$partial.digest" "$image_name:$variant" \
    "oci-archive:$partial:lbx:$version-$variant" >&2
digest=$(cat "$partial.digest")
rm -f "$partial.digest"
mv "$partial" "$file"
say "$file: $(du --block-size=MB "$file" | cut -f1), image $digest"
echo "$file"
