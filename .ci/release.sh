#!/usr/bin/env bash
# Makes a release of the committed tree in out/release: sdist, wheel, documents, image if one was built, SHA256SUMS, and
# the tag. Each distribution is installed away from the clone and used before the tag is made.
#
#     .ci/release.sh [--dry-run]     --dry-run: everything but the tag, also from a tree or CHANGELOG.md that is not ready
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/image-lib.sh  # say and fail
case $* in '' | --dry-run) readonly dry_run=$* ;; *) fail "there is one option, --dry-run, and it was given: $*" ;; esac
# What keeps a release from being made, and is only told in a dry run.
refuse() { [ -n "$dry_run" ] && say "not ready: $*" || fail "$*"; }

clone=$PWD
python=$PWD/.venv/bin/python
version=$(sed -nE 's/^__version__ = "(.*)"$/\1/p' lbx/base/version.py)
out=$PWD/out/release
[ -z "$(git status --porcelain)" ] || refuse "the tree has changes that are not committed. Commit them: a release is a commit"
! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || refuse "there is a tag v$version. Raise lbx/base/version.py"
grep -qE "^## $version, [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md ||
    refuse "CHANGELOG.md has no line \"## $version, $(date -u +%F)\". Date the section of this version"

rm -rf "$out"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
git archive --prefix=source/ HEAD | tar -x -C "$work"
(cd "$work/source" && "$python" -m hatchling build -d "$out" -t sdist -t wheel) >&2

printf 'name = "needle"\n[[source]]\nkind = "path"\npath = "source/bundle/needle"\nto = "needle"\nlicence = "MIT"\n' > "$work/needle.toml"

# A package list of its own, as a user's: with the packages of .venv, and lbx from nowhere but the distribution.
try_distribution() {
    local name=$1 file=$2
    "$python" -m venv --without-pip "$work/$name"
    "$python" -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --no-compile \
        --target "$work/$name/lbx" "$file" >&2 || fail "$file cannot be installed; what pip said is above"
    "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
        "$(echo "$work/$name"/lib/python3.*/site-packages)/packages.pth"
    cd "$work/$name"
    export PYTHONPATH=$work/$name/lbx
    [ "$(bin/python -c 'import lbx; print(*lbx.__path__)')" = "$PYTHONPATH/lbx" ] || fail "another lbx was tried"
    [ "$(bin/python -m lbx --version)" = "lbx $version" ] || fail "the installed lbx does not call itself lbx $version"
    { bin/python -m lbx bundle "$work/needle.toml" -o . && bin/python -m lbx verify needle.tar --allow-unsigned &&
        bin/python -m lbx unpack needle.tar --allow-unsigned --to bundle && bin/python -m lbx tasks --bundle bundle; } >&2 ||
        fail "lbx installed from $file does not work; what it said is above"
    unset PYTHONPATH
    cd "$clone"
    say "$name: $(basename "$file"), kernels: $(find "$work/$name/lbx/lbx" -name 'kernel.*.so' | wc -l)"
}
try_distribution wheel "$(echo "$out"/*.whl)"
try_distribution sdist "$(echo "$out"/*.tar.gz)"
CXX=no-compiler try_distribution without-a-compiler "$(echo "$out"/*.tar.gz)"
[ -z "$(find "$work/without-a-compiler/lbx/lbx" -name 'kernel.*.so')" ] || fail "a kernel came from nowhere"

"$python" docs/build.py "$work/lbx-$version-docs" >&2
grep -q "lbx $version" "$work/lbx-$version-docs/index.html" || fail "the first page of the documents does not name $version"
tar --sort=name --owner=0 --group=0 --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -cf - "lbx-$version-docs" |
    gzip -n > "$out/lbx-$version-docs.tar.gz"
if [ -n "$dry_run" ]; then
    say "the image is tagged lbx:$version-cpu: just image-save"
elif ! .ci/image-save.sh "$out/lbx-image-$version-cpu.tar" >/dev/null; then
    fail "the image is a part of a release. Build and test it: just image-test"
fi
(cd "$out" && sha256sum -- * > SHA256SUMS)
say "$out: $(ls "$out" | tr '\n' ' ')"
[ -z "$dry_run" ] || exit 0
git tag -a "v$version" -m "lbx $version"
say "tagged v$version. Next: git push origin v$version, and upload what is in $out"
