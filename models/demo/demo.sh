#!/usr/bin/env bash
# The main job on the embedded demo: bundle -> verify -> unpack -> run (both backends, no network) -> report.
# Usage: models/demo/demo.sh [FOLDER]     default: work/demo, made anew each time
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-work/demo}
rm -rf "$out"
mkdir -p "$out"

step() {
    printf '\n$ %s\n' "$*"
    "$@"
}

# Signing needs ssh-keygen, which a machine that only checks need not have.
if command -v ssh-keygen >/dev/null; then
    ssh-keygen -q -t ed25519 -N '' -C demo -f "$out/key"
    sign=(--sign "$out/key") trust=(--trust "$out/key.pub")
else
    sign=() trust=(--allow-unsigned)
fi

# A network namespace of its own has no interface but loopback; without the right to make one, lbx still
# refuses every connection in-process. `lbx run` says which of the two it was.
if unshare -n true 2>/dev/null; then
    offline=(unshare -n)
elif unshare -rn true 2>/dev/null; then
    offline=(unshare -rn)
else
    offline=()
fi

# The image brings it, in a folder that nobody can write to.
if [ ! -e models/demo/demo.gguf ] || [ -w models/demo ]; then
    step python models/demo/export_gguf.py --dtype f32 models/demo/hf models/demo/demo.gguf
fi
step lbx bundle bundle/demo.toml "${sign[@]}" -o "$out"
step lbx verify "${trust[@]}" "$out/demo.tar"
step lbx unpack "${trust[@]}" "$out/demo.tar" --to "$out/bundle"
for model in demo-hf demo-llamacpp; do
    if [ $model = demo-hf ] && python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is not None)'; then
        printf '\nThere is no torch here: llama.cpp alone is run.\n'
        alone=yes
        continue
    fi
    step "${offline[@]}" lbx run --bundle "$out/bundle" --model "models/$model.toml" --tasks needle -o "$out/results.duckdb"
done
step lbx report "$out/results.duckdb"
printf '\nCodes found in English texts on llama.cpp, by the number of words, in percent:\n'
lbx sql "$out/results.duckdb" "
    PIVOT (
        SELECT task, sum(n) OVER (PARTITION BY task)::INT AS questions, length_up_to, round(100 * score)::INT AS found
        FROM length_curve WHERE length_unit = 'words' AND backend = 'llamacpp'
    ) ON length_up_to IN (64, 128, 256, 512, 1024) USING any_value(found) GROUP BY task, questions
    ORDER BY task LIKE 'multi%', task"
[ -z "${alone:-}" ] || exit 0

echo
lbx sql "$out/results.duckdb" --format csv "
    SELECT count(*) = (SELECT count(*) FROM generations WHERE run_id = a.run_id) AND bool_and(a.output = b.output),
           count(*) FILTER (WHERE a.output = b.output), count(*)
    FROM generations a JOIN generations b USING (benchmark, task, sample_id, iteration)
    WHERE a.run_id < b.run_id GROUP BY a.run_id" | tail -n 1 | {
    IFS=, read -r agree same all
    echo "Hugging Face and llama.cpp gave the same greedy output on $same of $all samples."
    [ "$agree" = True ] || { echo "They must agree on every one." >&2; exit 1; }
}
