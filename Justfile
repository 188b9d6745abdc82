# All jobs of a developer or user. `just` lists them; each first runs `setup`.

export PATH := justfile_directory() / ".venv/bin:" + env("PATH")
export MYPY_CACHE_DIR := cache_directory() / "lbx/mypy"  # kept between clones, like llama.cpp's wheel
export PYTHONDONTWRITEBYTECODE := ""  # if set, every process compiles its imports again

[private]
default:
    @just --list --unsorted

# the main job on the embedded demo: bundle, verify, unpack, run both backends offline, report; --real: a chat model, too
[positional-arguments]
demo *args:
    @case "$*" in '' | --real) ;; *) echo "just demo has one option, --real, and was given: $*" >&2; exit 2 ;; esac
    @just --no-deps setup
    models/demo/demo.sh
    {{ if args == "--real" { "models/smollm2/demo.sh" } else { "" } }}

# tests of the README's promises (listed in tests/promises.py); arguments replace the selection
[positional-arguments]
test *args: setup
    pytest -n 4 --dist worksteal "${@:--mpromise}"

# every test; --hypothesis-profile=all: all examples of property tests, architectures and series of kills (hours)
[positional-arguments]
test-all *args: setup
    .ci/slurm-tools.sh || true
    .ci/exchange-tools.sh || true
    .ci/vulkan-build.sh >/dev/null || true
    .ci/server-tools.sh || true
    pytest -n 4 --dist worksteal -m '' "$@"

# lines and branches of lbx that the tests reach, by file, in out/coverage.txt and out/coverage.json; arguments like `test`
[positional-arguments]
coverage *args: setup
    mkdir -p out && coverage erase
    -coverage run -m pytest -n 4 --dist worksteal "${@:--mpromise}"
    coverage combine --quiet
    coverage json --quiet -o out/coverage.json
    coverage report > out/coverage.txt
    @tail -1 out/coverage.txt

# compare lbx with all official scores: records and largest difference by metric
golden: setup
    python tests/golden/table.py

# compare prompts with the authors' own scripts (checkouts in a folder), which run with a recording model
official folder *args: setup
    .ci/official-tools.sh || true
    python -m tests.official {{ folder }} {{ args }}

# seconds to score a LongBench run, compared with the reference packages; checks that the digits agree
bench-score *folder: setup
    python -m bench.score {{ folder }}

# compare lbx on L-Eval (../shared) with a loop that keeps the longest prefix: tokens, seconds, memory, answers
bench-engine *args: setup
    python -m bench.engine {{ args }}

# cost of `lbx parity --depth` at a vocabulary of 150,000: seconds and memory beyond the model's passes (bench/depth.py)
bench-depth *args: setup
    python -m bench.depth {{ args }}

# compare ways of waiting on quiet CPUs, next to a busy process and under a CPU quota: seconds (see bench/neighbours.py)
bench-neighbours *args: setup
    python -m bench.neighbours {{ args }}

# compare lbx on transformers with vLLM's CPU build, by document length and questions: seconds, speed-up of threads
bench-vllm *args: setup
    .ci/server-tools.sh vllm
    python -m bench.vllm {{ args }}

# seconds of both on attention, matrix products and all else, and of lbx on prefill and decode
profile-vllm *args: setup
    .ci/server-tools.sh vllm
    python -m bench.vllm_profile {{ args }}

# compare lbx with that loop: `formats` of llama.cpp's weights, or `growth` with document length and questions
bench-loop *args: setup
    python -m bench.loop {{ args }}

# reports and pages of 19 to 1,000 runs and 10 million answers, a merge of 256 files: seconds, memory, linear growth
bench-report *args: setup
    python -m bench.report {{ args }}

# RULER's samples made by lbx and by the authors' scripts: CPU seconds, memory, equality (see bench/ruler.py)
bench-ruler *args: setup
    python -m bench.ruler {{ args }}

# how often 95% intervals contain the true value, in simulated data sets: the table of docs/intervals.md
bench-coverage *args: setup
    python -m bench.coverage {{ args }}

# prefill rate relative to the GPU's matrix rate, and tokens per second; needs a CUDA device (--tiny: a CPU)
bench-gpu *args: setup
    python -m bench.gpu {{ args }}

# test a tiny model of every architecture: loading, answers of `generate`, shared prefixes, GGUF logits; --write FILE
architectures *args: setup
    @.ci/convert-setup.sh
    python tests/architectures.py {{ args }}

# create, verify and unpack an archive, compared with tar and openssl: --gib N, --volume-size SIZE
bench-bundle *args: setup
    python -m bench.bundle {{ args }}

# every attack of the project's own collection
attack *args: setup
    pytest -q -n 3 --dist worksteal -p no:cacheprovider tests/attacks {{ args }}

# read randomly damaged archives for a number of seconds
fuzz seconds="60": setup
    python tests/fuzz_archive.py {{ seconds }}

# run an array on a real Slurm, kill three shards, and compare the merged file with one run (root; Debian)
slurm-test: setup
    .ci/slurm-tools.sh
    pytest -m slurm tests/cluster

# test llama.cpp's GPU offload on a Vulkan device that is a CPU; builds the library in a minute if needed (root, Debian)
vulkan-test: setup
    .ci/vulkan-build.sh
    pytest tests/cli/test_vulkan.py

# test with real servers (vLLM's CPU build, llama.cpp's), also what CI leaves out: a killed vLLM, a real chat model
servers-test: setup
    .ci/server-tools.sh
    LBX_TEST_SERVERS=all pytest tests/servers

# run the main job on L-Eval, LongBench and LongBench v2 (../shared) with a real chat model on both backends
real: setup
    tools/real.sh

# install everything into .venv, from the lock; does no work if .venv is current
setup:
    @.ci/setup.sh

# ruff, mypy --strict, import-linter, and the limits of tools/language.py
lint: setup
    ruff check
    ruff format --check
    mypy
    lint-imports
    python -m tools.language

# fix formatting and simple findings
format: setup
    ruff check --fix
    ruff format

# write the generated tables and cards, then build all pages as an offline site in out/site
docs: setup
    python docs/generate.py
    python docs/build.py

# make all pictures of the documents with Chromium, after a change of a page
pictures *args: setup
    python docs/pictures.py {{ args }}

# make pictures of every page and terminal view in a folder, for a look at a change; --only 'report-8-*'
gallery folder *args: setup
    python -m tools.gallery {{ folder }} {{ args }}

# resolve the dependencies again, with hashes, into requirements.lock and those under .ci
lock: setup
    .ci/lock.sh

# download the wheels that the Containerfile installs; `cuda` for GPUs, `llama` without torch
wheelhouse variant="cpu": setup
    .ci/wheelhouse.sh {{ variant }}

# build the image offline, run the demo in it, check for network access, save and bundle it (root, Debian)
image-test: setup
    .ci/image-tools.sh
    LBX_TEST_IMAGE=cpu pytest -s -m image tests/image

# build the image and save it as an OCI archive, in out/ or FILE (root, Debian)
image-save *file: setup
    .ci/image-tools.sh
    .ci/image-build.sh
    .ci/image-save.sh {{ file }}

# make a release in out/release: distributions tried away from the clone, documents, image, tag; --dry-run: no tag
release *args: setup
    .ci/release.sh {{ args }}

# train the demo model again (under 30 minutes on two cores)
train-demo: setup
    python models/demo/train.py
