#!/usr/bin/env bash
# The main job on real data with a real model: L-Eval, LongBench and LongBench v2 from ../shared, served by a hub-shaped
# server on loopback, and SmolLM2-135M-Instruct (8,192 tokens), bundled, verified, unpacked, run on both backends without
# network, and the two held against each other. On llama.cpp it is the GGUF (Q4_1) from the bundle, on transformers a
# folder made of that file in float32: what differs is that llama.cpp rounds what it multiplies with rounded weights.
# Usage: tools/real.sh [FOLDER [short]]     default: work/real, made anew each time; short: what the tests run
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-work/real}
shared=../shared/data
[ -d "$shared" ] || { echo "just real needs the real data in ../shared, which is not here." >&2; exit 1; }

# A document of L-Eval has many questions, which share what is read; one of LongBench v2 fills the whole window.
runs=("leval/tpo 8" "longbench/multi_news,longbench_v2 1") compared="leval/tpo,longbench/multi_news 2"
judging=(--calibrate --limit 1 --max-new-tokens 16)  # all 96 questions would take this model an hour
calibrate=() bounds=() shorter=(--max-new-tokens 48)  # a summary's 512 tokens, one by one, would take minutes
if [ "${2:-}" = short ]; then
    runs=("leval/tpo,longbench/multi_news,longbench_v2 1") compared=${runs[0]}
    judging=(--run claude-100k --against turbo-16k-0613 --tasks leval/news_summ --max-new-tokens 4)
    calibrate=(--no-measure-speed) bounds=(--max-prompt-tokens 192 --max-new-tokens 4) shorter=("${bounds[@]}")
fi

step() {
    printf '\n$ %s\n' "$*"
    "$@"
}

gguf=$(python models/smollm2/fetch.py gguf)
folder=$(python models/smollm2/fetch.py hf)
rm -rf "$out"
mkdir -p "$out"
cat > "$out/smollm2.toml" <<END
name = "smollm2"

[[source]]
kind = "path"
path = "$gguf"
to = "models/$(basename "$gguf")"
licence = "Apache-2.0"
END

python tests/bundle/hubserver.py --hub "$shared/hub" --upstream "$shared"/upstream{,_more} --port 0 > "$out/hub.url" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
until [ -s "$out/hub.url" ]; do sleep 0.1; done
hub=$(head -n 1 "$out/hub.url")
step lbx bundle bundle/leval.toml bundle/longbench.toml bundle/longbench_v2.toml "$out/smollm2.toml" \
    --name real --hub "$hub" --mirror "$hub/upstream" -o "$out"
kill "$server"
step lbx verify --allow-unsigned "$out/real.tar"
step lbx unpack --allow-unsigned "$out/real.tar" --to "$out/bundle"
step lbx tasks --bundle "$out/bundle"
gguf=$out/bundle/data/files/models/$(basename "$gguf")

offline=()
if unshare -n true 2>/dev/null; then offline=(unshare -n); elif unshare -rn true 2>/dev/null; then offline=(unshare -rn); fi
for run in "${runs[@]}"; do
    step lbx plan --bundle "$out/bundle" --model "$gguf" --tasks "${run% *}" --limit "${run#* }" \
        "${calibrate[@]}" "${bounds[@]}"
done
for model in "$gguf" "$folder"; do
    for run in "${runs[@]}"; do  # two commands, one run: tasks and limit may grow
        step "${offline[@]}" lbx run --bundle "$out/bundle" --model "$model" --tasks "${run% *}" \
            --limit "${run#* }" --no-plan "${bounds[@]}" -o "$out/results.duckdb"
    done
done
step lbx report "$out/results.duckdb"
# The same model as a judge of published answers, by L-Eval's rubric.
for model in "$gguf" "$folder"; do
    step "${offline[@]}" lbx judge "$out/judged.duckdb" --bundle "$out/bundle" --judge "$model" "${judging[@]}" --no-plan
    judging=(--run claude-100k --against turbo-16k-0613 --tasks leval/news_summ --max-new-tokens 4)
done
step lbx sql "$out/judged.duckdb" \
    "SELECT judge_id, state, count(*) AS rounds, sum(prompt_tokens)::BIGINT AS prompt_tokens FROM judgements GROUP BY ALL"
step "${offline[@]}" lbx parity "$gguf" "$folder" --bundle "$out/bundle" --tasks "${compared% *}" \
    --limit "${compared#* }" "${shorter[@]}" --fail-above 4
