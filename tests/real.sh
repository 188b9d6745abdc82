#!/usr/bin/env bash
# The main job on real data: L-Eval, LongBench and LongBench v2 from ../shared, served by a hub-shaped server on
# loopback, bundled, unpacked, and run with the demo model in both backends without network.
# The demo model knows none of this and scores near zero; what it shows is that every step is real.
# Usage: tests/real.sh [FOLDER [LIMIT]]     default: work/real, made anew each time, and 8 samples a task
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-work/real}
limit=${2:-8}
shared=../shared/data
[ -d "$shared" ] || { echo "needs the real data in ../shared, which is not here" >&2; exit 1; }
rm -rf "$out"
mkdir -p "$out"

step() {
    printf '\n$ %s\n' "$*"
    "$@"
}

python tests/bundle/hubserver.py --hub "$shared/hub" --upstream "$shared/upstream" --port 0 > "$out/hub.url" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
until [ -s "$out/hub.url" ]; do sleep 0.1; done
hub=$(head -n 1 "$out/hub.url")

python models/demo/export_gguf.py --dtype f32 models/demo/hf models/demo/demo.gguf
step lbx bundle bundle/leval.toml bundle/longbench.toml bundle/longbench_v2.toml bundle/demo.toml \
    --name real --hub "$hub" --mirror "$hub/upstream" -o "$out"
kill "$server"
step lbx verify --allow-unsigned "$out/real.tar"
step lbx unpack --allow-unsigned "$out/real.tar" --to "$out/bundle"
step lbx tasks --bundle "$out/bundle"

offline=()
if unshare -n true 2>/dev/null; then offline=(unshare -n); elif unshare -rn true 2>/dev/null; then offline=(unshare -rn); fi
tasks=leval/tpo,leval/coursera,longbench/passage_retrieval_zh,longbench_v2
step lbx plan --bundle "$out/bundle" --model models/demo-hf.toml --tasks "$tasks" --limit "$limit"
for model in demo-hf demo-llamacpp; do
    step "${offline[@]}" lbx run --bundle "$out/bundle" --model "models/$model.toml" --tasks "$tasks" --limit "$limit" \
        -o "$out/results.duckdb"
done
step lbx report "$out/results.duckdb"
