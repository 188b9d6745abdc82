#!/usr/bin/env bash
# A real chat model on the embedded needle benchmark: SmolLM2-135M-Instruct, fetched once (93 MB), on llama.cpp.
# Where it cannot be fetched this says so, and is no failure: what the demo must show, the small model has shown.
# Usage: models/smollm2/demo.sh [FOLDER [OPTION...]]     default: work/demo-real, made anew each time; options: lbx run's
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-work/demo-real}
shift || true

step() {
    printf '\n$ %s\n' "$*"
    "$@"
}

printf '\nNow a real chat model: SmolLM2-135M-Instruct, on documents of up to 2,048 words (minutes on two cores).\n'
model=$(python models/smollm2/fetch.py gguf) || {
    echo "It is left out, because it could not be fetched. The demo above is whole without it."
    exit 0
}
rm -rf "$out"
mkdir -p "$out"
offline=()
if unshare -n true 2>/dev/null; then offline=(unshare -n); elif unshare -rn true 2>/dev/null; then offline=(unshare -rn); fi
lbx bundle models/smollm2/needle_2k.toml -o "$out" > "$out/bundle.log" 2>&1
lbx unpack --allow-unsigned "$out/needle_2k.tar" --to "$out/bundle" >> "$out/bundle.log" 2>&1
step "${offline[@]}" lbx run --bundle "$out/bundle" --model "$model" --tasks needle/single_en,needle/multikey_en \
    "$@" -o "$out/results.duckdb"
step lbx report "$out/results.duckdb" length_curve
printf '\nWhat it said of the longest documents:\n'
lbx sql "$out/results.duckdb" "
    SELECT g.task, s.meta ->> 'depth' AS depth, split_part(s.question, chr(10), 1) AS question,
           g.output AS \"the model's answer\", s.\"references\" ->> 0 AS \"the right one\"
    FROM generations g JOIN samples s USING (benchmark, task, sample_id)
    WHERE s.length = (SELECT max(length) FROM samples) ORDER BY g.task DESC, g.sample_id"
