#!/usr/bin/env bash
# Runs a command in an unpacked image as a careful container runtime would, and records every call on sockets:
# no network interface, a read-only root, a tmpfs on /tmp, one writable folder at /work, a user without rights.
#
#     .ci/image-jail.sh ROOT WORK RECORD UID COMMAND...     ROOT: the image's files
#
# JAIL_ENV holds the image's environment, one variable a line. For .ci/image-test.sh, as root. `podman run` does all of
# this where it works; it wants control groups that a machine within a machine may not have.
set -euo pipefail
if [ "${JAIL_INSIDE:-}" != 1 ]; then
    JAIL_INSIDE=1 exec unshare --net --mount --pid --ipc --uts --fork --kill-child --propagation private "$0" "$@"
fi
root=$1 work=$2 record=$3 user=$4
shift 4

jail=$(mktemp -d)  # within this mount namespace only: gone with it
mount --bind "$root" "$jail"
mount -o remount,bind,ro "$jail"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$jail/tmp"
mount --bind "$work" "$jail/work"
mount -t proc -o nosuid,nodev,noexec proc "$jail/proc"
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$jail/sys"
mount -t tmpfs -o mode=755,nosuid tmpfs "$jail/dev"
for device in null zero full random urandom; do
    : > "$jail/dev/$device"
    mount --bind "/dev/$device" "$jail/dev/$device"
done
mkdir -m 1777 "$jail/dev/shm"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$jail/dev/shm"

mapfile -t environment <<< "$JAIL_ENV"
# A seccomp filter stops at these calls alone, so that watching costs nothing. execve shows what was watched.
exec strace --seccomp-bpf -f -qq -e signal=none -e trace=network,io_uring_setup,execve -o "$record" \
    chroot --userspec="$user:$user" --groups= "$jail" \
    env -i "${environment[@]}" sh -c 'cd /work && exec "$@"' jail "$@"
