#!/usr/bin/env bash
# Print the path of llama.cpp's Vulkan backend for the tests of GPU offload (tests/cli/test_vulkan.py), or say why
# there is none: exit code 1. Mesa's llvmpipe computes Vulkan on the CPU, so the tests need no GPU.
#
#     .ci/vulkan-build.sh [--kept]      --kept: only look for one that was built before
#
# It is not for users: all shaders but those for models of Llama's kind in F32 or F16 are stubs, and no code is optimised,
# so that it takes a minute of one core, not 10 of two. The library is kept under
# ${LBX_VULKAN:-${XDG_CACHE_HOME:-$HOME/.cache}/lbx/vulkan}.
set -euo pipefail
. "${BASH_SOURCE[0]%/*}/llama-source.sh"

fail() {
    echo "vulkan-build: GPU offload will not be tested: $*" >&2
    exit 1
}

readonly FLAGS="-DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-w -DCMAKE_SKIP_RPATH=ON -DBUILD_SHARED_LIBS=ON
    -DGGML_VULKAN=ON -DGGML_BACKEND_DL=ON -DGGML_CPU=OFF -DGGML_NATIVE=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_CURL=OFF"
readonly DRIVERS="mesa-vulkan-drivers libvulkan1" TOOLS="libvulkan-dev spirv-headers glslc cmake ninja-build g++"
readonly SHADERS='^(add|mul|sub|div)(_f(16|32))+$|^(add_rms|multi_add|contig_cpy|cpy|fa|flash_attn_f32_f16|get_rows|set_rows'\
'|matmul|mul_mat_vec|rms_norm|rope_norm|rope_neox|scale|silu|swiglu|soft_max|split_k)(_(f16|f32|i32|i64|rms|mul|add'\
'|rope|set_rows|partials|transpose|reduce|mask_opt|sparse_compact|split_k|f16acc|fp32|large[123]|nc|p021|subgroup|no_shmem))*$'

missing_packages() {
    local package
    for package; do
        case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) in *" installed") ;; *) echo "$package" ;; esac
    done
}

install_packages() {
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || fail "only root can install ${missing[*]}"
    command -v apt-get >/dev/null || fail "there is no apt-get to install ${missing[*]}"
    echo "vulkan-build: installing ${missing[*]}" >&2
    { timeout 120 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq \
        --no-install-recommends "${missing[@]}"; } >/dev/null || fail "apt-get cannot install ${missing[*]}"
}

# Vulkan headers before 1.3.261 (Debian 12's) lack a structure that serves validation only.
guard_layer_settings() {
    python3 - "$1/ggml/src/ggml-vulkan/ggml-vulkan.cpp" <<'END'
import pathlib, sys
path = pathlib.Path(sys.argv[1])
text = path.read_text("utf-8")
start = text.index("    std::vector<vk::LayerSettingEXT> settings = {")
end = text.index("\n", text.index("&layer_setting_info);", start)) + 1
last = text[text.rindex("    vk::InstanceCreateInfo ", start, end) : end]
plain = last.replace(", &layer_setting_info", "")
guarded = f"#ifdef VK_EXT_layer_settings\n{text[start:end]}#else\n{plain}#endif\n"
path.write_text(text[:start] + guarded + text[end:], "utf-8")
END
}

# A compiler of shaders that leaves out those that no test needs, and every extension: so that all distributions build
# the same kernels. A stub fails when it is used.
write_glslc() {
    cat > "$1" <<END
#!/usr/bin/env bash
case "\$*" in *feature-tests/*)
    printf 'extension not supported: %s\n' GL_{KHR_cooperative_matrix,NV_cooperative_matrix{2,_decode_vector}} \\
        GL_EXT_{integer_dot_product,bfloat16,float_e2m1,float_e4m3} >&2
    exit 1 ;;
esac
output= dependencies= previous=
for argument; do
    case \$previous in -o) output=\$argument ;; -MF) dependencies=\$argument ;; esac
    previous=\$argument
done
name=\${output##*/}
[[ ! \${name%.spv} =~ $SHADERS ]] || exec glslc "\$@"
printf 'stub' > "\$output"
[ -z "\$dependencies" ] || echo "\$output:" > "\$dependencies"
END
    chmod +x "$1"
}

hash=$(printf '%s' "$FLAGS $SHADERS $(declare -f guard_layer_settings write_glslc)" | sha256sum | cut -c1-12)
root="${LBX_VULKAN:-${XDG_CACHE_HOME:-$HOME/.cache}/lbx/vulkan}"
distribution=$(. /etc/os-release 2>/dev/null && echo "${ID:-linux}${VERSION_ID:-}") || distribution=linux
kept="$root/$llama_version-$hash-$distribution-$(uname -m)/libggml-vulkan.so"

if [ "${1:-}" = --kept ]; then
    [ -f "$kept" ] && [ -z "$(missing_packages $DRIVERS)" ] || fail "its library is not built. Run: .ci/vulkan-build.sh"
    echo "$kept"
    exit 0
fi
# shellcheck disable=SC2086
install_packages $DRIVERS
if [ ! -f "$kept" ]; then
    # shellcheck disable=SC2086
    install_packages $TOOLS
    mkdir -p "$root"
    work=$(mktemp -d "$root/.build-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    source=$(fetch_llama_source "$work" python3)/vendor/llama.cpp
    guard_layer_settings "$source" || fail "ggml-vulkan.cpp of $llama_version is not as this script expects"
    write_glslc "$work/glslc"
    echo "vulkan-build: building llama.cpp's Vulkan backend (a minute); it is kept in ${kept%/*}" >&2
    # shellcheck disable=SC2086
    { cmake -S "$source" -B "$work/build" -G Ninja $FLAGS -DVulkan_GLSLC_EXECUTABLE="$work/glslc" &&
        cmake --build "$work/build" --target ggml-vulkan; } > "$work/log" 2>&1 ||
        { tail -n 30 "$work/log" >&2; fail "the build failed; its last lines are above"; }
    mkdir "$work/kept"
    cp "$work/build/bin/libggml-vulkan.so" "$work/kept/"
    # One rename: another build that finished first keeps its place, and a killed one leaves nothing half made.
    mv -T "$work/kept" "${kept%/*}" 2>/dev/null || [ -f "$kept" ] || fail "cannot write ${kept%/*}"
fi
echo "$kept"
