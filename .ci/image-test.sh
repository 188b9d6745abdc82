#!/usr/bin/env bash
# Builds the image with no network and runs the main job of the embedded demo in it, with no network, a read-only root
# and a user without rights; fails if a connection or a name look-up was so much as tried. `just image-test`.
#
#     .ci/image-test.sh [WORK [VARIANT]]     WORK: a folder that keeps the results and the record (default: a temporary
#                                            one); VARIANT: cpu, or llama, which has one backend (default: cpu)
#
# Needs root, buildah, mmdebstrap and strace: .ci/image-tools.sh installs them.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/image-lib.sh
temporary=$(mktemp -d)
work=${1:-$temporary}
variant=${2:-cpu}
mkdir -p "$work" "$image_root"
container="" pages=""
clean() {
    [ -z "$pages" ] || { pkill -P "$pages"; kill "$pages"; } 2>/dev/null || true  # it would keep the lock for ever
    [ -z "$container" ] || in_store rm "$container" >/dev/null 2>&1 || true
    rm -rf "$temporary"
}
trap clean EXIT
exec 9> "$image_root/lock"
flock 9  # one store, one user of it
export STORAGE_DRIVER=${STORAGE_DRIVER:-$(image_driver)}

wheel=$(find "wheelhouse/$variant" -name 'lbx-*.whl' 2>/dev/null)
[ -n "$wheel" ] && [ -z "$(find lbx -name '*.py' -newer "$wheel" -print -quit)" ] ||
    fail "the wheelhouse has no lbx, or an older one than lies here. Run: just wheelhouse $variant"
image=$(.ci/image-build.sh "$variant")
container=$(in_store from --pull-never "$image")
root=$(in_store mount "$container")
JAIL_ENV=$(in_store inspect --type image "$image" |
    python3 -c 'import json, sys; print("\n".join(json.load(sys.stdin)["OCIv1"]["config"]["Env"]))')
# Where other tests share the cores, threads that spin while they wait make the demo several times slower.
[ -z "${OMP_WAIT_POLICY:-}" ] || JAIL_ENV+=$'\n'OMP_WAIT_POLICY=$OMP_WAIT_POLICY
export JAIL_ENV
install -d -m 755 -o 1000 -g 1000 "$work/job"

in_jail() { .ci/image-jail.sh "$root" "$work/job" "$work/$1.strace" "${@:2}"; }
step() { printf '\n== %s\n' "$*"; }

step "the jail: a user without rights, a root that cannot be written, no interface, and a watch that sees an attempt"
in_jail jail 1000 sh -c '
    [ "$(id -u)" = 1000 ] && grep -q "^CapEff:[[:space:]]*0*$" /proc/self/status || { echo "it has rights"; exit 1; }
    for place in / /opt/lbx /etc /var/tmp; do
        ! touch "$place/written" 2>/dev/null || { echo "$place can be written"; exit 1; }
    done
    [ "$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d " ")" = lo ] || { echo "there is a network"; exit 1; }'
for attempt in 'getaddrinfo("example.org", 443)' 'create_connection(("192.0.2.1", 443))'; do
    ! in_jail control 1000 python3 -c "import socket; socket.$attempt" 2>/dev/null || fail "the jail has a network"
    ! python3 tests/image/attempts.py "$work/control.strace" || fail "the watch did not see $attempt"
done

step "doctor: as the image's user, and as one that it does not know"
in_jail doctor 1000 lbx doctor
in_jail doctor-unknown 54321 lbx doctor --json >/dev/null

step "the demo: bundle, verify, unpack, run on each backend, report"
time in_jail demo 1000 bash /opt/lbx/share/models/demo/demo.sh /work/demo

step "pages: a socket in the mounted folder is the way in, with the link's secret and not without"
in_jail pages 1000 lbx browse /work/demo/results.duckdb --uds /work/pages.sock > "$work/pages.said" 2>&1 &
pages=$!
page() { curl --silent --max-time 20 --unix-socket "$work/job/pages.sock" -o /dev/null -w '%{http_code}' -L -c "$work/jar" \
    -b "$work/jar" "http://127.0.0.1$1"; }
for _ in $(seq 60); do
    grep -q 'token=' "$work/pages.said" && break
    sleep 1
done
link=$(grep -o '/[A-Za-z0-9_-]*/?token=[A-Za-z0-9_-]*' "$work/pages.said" | sed -n 1p)
[ "$(page "${link%\?*}")" = 403 ] && [ "$(page "$link")" = 200 ] || { cat "$work/pages.said"; fail "no page came through"; }
pkill -INT -f 'lbx browse /work/demo/results.duckdb' && wait "$pages"
pages=""
cat "$work/pages.said"

step "what was tried"
python3 tests/image/attempts.py "$work"/{doctor,doctor-unknown,demo,pages}.strace

step "the image"
printf 'size unpacked: %s, of which lbx and what it needs: %s\n' "$(du -sx --block-size=MB "$root" | cut -f1)" \
    "$(du -s --block-size=MB "$root/opt/lbx" | cut -f1)"
