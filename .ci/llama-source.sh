# The released source of llama-cpp-python, which llama-wheel.sh and vulkan-build.sh build from. Source it from a script
# that defines fail.
llama_version=0.3.36
llama_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

# Download the source into FOLDER, check and unpack it, and print where it is: fetch_llama_source FOLDER PYTHON
fetch_llama_source() {
    local archive="$1/llama_cpp_python-$llama_version.tar.gz"
    "$2" -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$1" \
        "llama-cpp-python==$llama_version" >&2 || fail "the source cannot be downloaded; what pip said is above"
    echo "$llama_sha256  $archive" | sha256sum --check --quiet >&2 || fail "the source is not the one that was released"
    tar -xzf "$archive" -C "$1"
    echo "${archive%.tar.gz}"
}
