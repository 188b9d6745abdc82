# Every job a person does. `just` lists them; each one sets up what it needs.

export PATH := justfile_directory() / ".venv/bin:" + env("PATH")
export MYPY_CACHE_DIR := cache_directory() / "lbx/mypy"  # kept, as the wheel of llama.cpp is
export PYTHONDONTWRITEBYTECODE := ""  # where it is set, every process compiles what it imports anew

[private]
default:
    @just --list --unsorted

# bundle, verify, unpack, run both backends with no network, report: the main job on the embedded demo; then a real model
demo: setup
    models/demo/demo.sh
    models/smollm2/demo.sh

# what the README promises (tests/promises.py says by which tests), and lint beside it; given arguments, those for pytest
[positional-arguments]
test *args: setup
    @just --no-deps lint & lint=$!; pytest -n 3 --dist worksteal "${@:--mpromise}"; tests=$?; wait $lint && exit $tests

# every test; --hypothesis-profile=all has all examples of the property tests and the longer rows of kills, for hours
[positional-arguments]
test-all *args: lint
    .ci/slurm-tools.sh || true
    pytest -n 3 --dist worksteal -m '' "$@"

# every golden record and aggregate beside what lbx gives: records and largest difference by metric
golden: setup
    python tests/golden/table.py

# the authors' own scripts, from checkouts in a folder, with a recorder for a model: do they ask what lbx asks?
official folder *args: setup
    python -m tests.official {{ folder }} {{ args }}

# seconds to score a LongBench run: lbx against the reference packages, and whether the digits agree
bench-score *folder: setup
    python -m bench.score {{ folder }}

# lbx against the loop that keeps the longest prefix, on L-Eval from ../shared: tokens, seconds, memory, answers
bench-engine *args: setup
    python -m bench.engine {{ args }}

# lbx against the loop that keeps the longest prefix: `formats` of llama.cpp's weights, or `growth` with document and questions
bench-loop *args: setup
    python -m bench.loop {{ args }}

# reports of 36 and 1,000 runs and 10 million answers, 256 files merged: seconds, memory, and whether they grow linearly
bench-report *args: setup
    python -m bench.report {{ args }}

# prefill against the card's matrix rate, and tokens a second; needs a CUDA device (--tiny tries it out on a CPU)
bench-gpu *args: setup
    python -m bench.gpu {{ args }}

# tiny models of every architecture: load, answer as `generate` does, share prefixes, same logits as GGUF; --write FILE
architectures *args: setup
    @.ci/convert-setup.sh
    python tests/architectures.py {{ args }}

# create, verify and unpack an archive beside tar and openssl: --gib N, --volume-size SIZE
bench-bundle *args: setup
    python -m bench.bundle {{ args }}

# every attack of the project's own collection
attack *args: setup
    pytest -q -n 3 --dist worksteal -p no:cacheprovider tests/attacks {{ args }}

# break archives in every way and have them read, for so many seconds
fuzz seconds="60": setup
    python tests/fuzz_archive.py {{ seconds }}

# an array on a real Slurm, three shards killed, merged equals one run (root; Debian's slurm-wlm and munge)
slurm-test: setup
    .ci/slurm-tools.sh
    pytest -m slurm tests/cluster

# the main job on L-Eval, LongBench and LongBench v2 from ../shared with a real chat model, both backends, and their parity
real: setup
    tests/real.sh

# install everything into .venv, from the lock; a second time does nothing
setup:
    @.ci/setup.sh

# ruff, mypy --strict, import-linter
lint: setup
    ruff check
    ruff format --check
    mypy
    lint-imports

# rewrite what ruff can mend
format: setup
    ruff check --fix
    ruff format

# write the generated tables and cards, then a site of all pages: out/site, offline
docs: setup
    python docs/generate.py
    python docs/build.py

# resolve the dependencies anew, with hashes, into requirements.lock
lock: setup
    .ci/lock.sh

# gather the wheels that the Containerfile installs from, on the connected machine; `cuda` for GPUs, `llama` without torch
wheelhouse variant="cpu": setup
    .ci/wheelhouse.sh {{ variant }}

# build the image with no network, run the demo in it, show that nothing reached out, save it, bundle it (root, Debian)
image-test: setup
    .ci/image-tools.sh
    LBX_TEST_IMAGE=cpu pytest -s -m image tests/image

# build the image and save it as an OCI archive, in out/ or the file that you name (root on Debian)
image-save *file: setup
    .ci/image-tools.sh
    .ci/image-build.sh
    .ci/image-save.sh {{ file }}

# train the demo model again (under 30 minutes on two cores)
train-demo: setup
    python models/demo/train.py
