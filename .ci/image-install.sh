#!/bin/sh
# Runs in the build stage of the Containerfile, with no network: installs lbx from the wheelhouse beside this script.
#
#     image-install.sh PREFIX        a virtual environment of the base's python3, complete and stripped
#
# Plain sh and python3, because a base need not have more.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=$1

fail() {
    echo "image-install: $*" >&2
    exit 1
}
cd "$here"
[ -e made-for ] || fail "the wheelhouse is empty. On a connected machine: just wheelhouse"
sha256sum --check --quiet --strict SHA256SUMS || fail "the wheelhouse is damaged: copy it again"
command -v python3 > /dev/null || fail "the base has no python3. Choose another BASE_IMAGE"
wanted=$(sed -n 's/^python=//p' made-for)
found=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ "$found" = "$wanted" ] ||
    fail "the base has Python $found, the wheels are for $wanted. Choose another BASE_IMAGE, or gather the wheels" \
        "again with PYTHON set to a $found"

python3 -m venv --without-pip "$prefix"
# The wheelhouse's own pip, run from its wheel: it never becomes part of the image.
pip="$prefix/bin/python $(echo pip-*.whl)/pip --disable-pip-version-check"
$pip install --quiet --no-index --find-links . --no-cache-dir --no-compile --root-user-action=ignore \
    "lbx[$(sed -n 's/^extras=//p' made-for)]"
$pip check >&2

site=$("$prefix/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# Tests, C++ headers, build-time programs and second copies: nothing reads them at run time.
rm -rf "$site"/torch/test "$site"/torch/include "$site"/torch/share/cmake "$site"/lib/cmake "$site"/lib/pkgconfig \
    "$site"/include "$site"/llama_cpp/include
[ ! -d "$site/torch/bin" ] || find "$site/torch/bin" -type f ! -name torch_shm_manager -delete
for package in numpy scipy sklearn sympy networkx mpmath joblib nltk jieba threadpoolctl; do
    [ ! -d "$site/$package" ] || find "$site/$package" -depth -type d \( -name tests -o -name test \) -exec rm -rf {} +
done
# Compiled now, because the root is read-only later; by hash and unchecked, so that it does not depend on file times.
# transformers' several hundred models stay source: a run needs one or two of them. A file for a newer Python does not
# compile, and none here imports it.
"$prefix/bin/python" -m compileall -qq -j 0 --invalidation-mode unchecked-hash -x '/transformers/models/[^/]+/' \
    "$site" || true

# llama.cpp's CPU variants look for libgomp where the system does; so does its CUDA backend for CUDA's libraries.
mkdir -p "$prefix/lib/shared"
cp lib/libgomp.so.1 "$prefix/lib/shared/"
{
    echo "$prefix/lib/shared"
    find "$site" -type d -path '*/nvidia/*/lib' | LC_ALL=C sort
} > /etc/ld.so.conf.d/lbx.conf
ldconfig -X
grep -q '^[^:]*:[^:]*:1000:' /etc/passwd || echo 'lbx:x:1000:1000:lbx:/tmp:/usr/sbin/nologin' >> /etc/passwd
"$prefix/bin/lbx" doctor > /dev/null || fail "lbx does not run on this base; the reason is above, or in: lbx doctor"
