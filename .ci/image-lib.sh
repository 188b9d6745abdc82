# What the image-*.sh scripts share. Source it from the repository's root.
#
# buildah gets a store of its own, so that a test neither sees nor fills the machine's.
image_root=${LBX_IMAGE:-${XDG_CACHE_HOME:-$HOME/.cache}/lbx/image}
image_name=localhost/lbx

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }
fail() {
    say "$*"
    exit 1
}

# overlay where the kernel lets us; vfs copies every layer, but works in a container too.
image_driver() {
    local driver=overlay probe
    mkdir -p "$image_root/probe"
    probe=$(mktemp -d "$image_root/probe/XXXXXX")
    mkdir "$probe/a" "$probe/b" "$probe/w" "$probe/m"
    unshare -m mount -t overlay overlay -o "lowerdir=$probe/a,upperdir=$probe/b,workdir=$probe/w" "$probe/m" \
        2>/dev/null || driver=vfs
    rm -rf "$probe"
    echo "$driver"
}

in_store() {
    STORAGE_DRIVER=${STORAGE_DRIVER:-$(image_driver)} \
        buildah --root "$image_root/store" --runroot "$image_root/run" "$@"
}
