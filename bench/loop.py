"""lbx beside the loop that a user writes in an afternoon, by weight format, length of the document and questions on it.

    python -m bench.loop formats [--formats Q4_0,F16,...] [--documents 3400,...] [--questions 1,...] [--threads N] ...
    python -m bench.loop growth [--documents 2048,8192,32768] [--questions 1,5,20] [--backends hf]

The loop keeps the longest prefix of the question before. Each contender answers greedily in a process of its own;
loading is left out.

formats: SmolLM2-135M-Instruct on llama.cpp, its Q4_1 converted by llama.cpp's quantiser; llama-server with its prompt
cache is a contender, too. Figures are seconds by the clock / CPU seconds of all processes, each the best of its
repeats; the contenders take turns.

growth: a random Llama of 3 M parameters on both backends. Memory is what answering added to the loaded model, at its
highest. Exit code 1: on transformers an answer of lbx differs from the loop's; llama.cpp keeps a rounded cache, in
which near-ties may differ.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.contest import REPOSITORY, Job, count_equal, decode_outputs, ratio, run_contender, table, usable_cores
from bench.inputs import Shape, fetch_smollm2, make_gguf, make_hf, write_cards

FORMATS = ("Q4_0", "Q4_1", "Q4_K_M", "Q8_0", "F16", "BF16")
CONTENDERS = {
    "loop": "llamacpp-reuse",
    "llama-server": "llama-server-1",
    "llama-server with 4 slots": "llama-server-4",
    "lbx": "llamacpp-lbx",
    "lbx --no-batching": "llamacpp-lbx-alone",
}
WINDOW = 65_536
"""Declared for SmolLM2, to accept documents longer than those it was trained for; answers to them are arbitrary."""
SMOLLM2_VOCABULARY, SMOLLM2_ENDS = 40_000, (0, 1, 2)
SMALL = Shape(vocabulary=1024, hidden=256, intermediate=512, layers=4, heads=4, kv_heads=2, context=65_536)


def main() -> int:
    args = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="lbx-bench-") as folder:
        return _compare_formats(args, Path(folder)) if args.what == "formats" else _growth(args, Path(folder))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(dest="what", required=True)
    formats = commands.add_parser("formats")
    formats.add_argument("--formats", default=",".join(FORMATS), help="as llama.cpp names them")
    formats.add_argument("--variant", default="", help="of llama.cpp for this CPU: haswell, skylakex, zen4 ...")
    formats.add_argument("--documents", default="3400", help="tokens")
    formats.add_argument("--questions", default="1,12,40")
    formats.add_argument("--new-tokens", type=int, default=32)
    formats.add_argument("--threads", type=int, default=1)
    formats.add_argument("--contenders", default=",".join(("loop", "llama-server", "lbx", "lbx --no-batching")))
    formats.add_argument("--repeats", type=int, default=2, help="turns of each contender; the best counts")
    growth = commands.add_parser("growth")
    growth.add_argument("--documents", default="2048,8192,32768", help="tokens")
    growth.add_argument("--questions", default="1,5,20")
    growth.add_argument("--new-tokens", type=int, default=32)
    growth.add_argument("--backends", default="llamacpp,hf")
    return parser.parse_args()


def _compare_formats(args: argparse.Namespace, folder: Path) -> int:
    if args.variant:
        _use_variant(args.variant, folder / "variant")
    rows = []
    for name in args.formats.split(","):
        rows += _format_rows(name, args, folder / name)
    print(table(["format", "document", "questions", *args.contenders.split(",")], rows))
    return 0


def _use_variant(variant: str, folder: Path) -> None:
    """Let child processes find a single build of llama.cpp for the CPU."""
    from lbx.backends.llama.library import find_libraries
    from lbx.backends.llama.variants import FOLDER_VARIABLE

    files = {file.name: file for file in find_libraries()[1] or ()}
    name = f"libggml-cpu-{variant}.so"
    if name not in files:
        sys.exit(f"There is no {name}; there are {', '.join(sorted(files)) or 'no variants'}.")
    folder.mkdir()
    (folder / name).symlink_to(files[name])
    os.environ[FOLDER_VARIABLE] = str(folder)


def _format_rows(name: str, args: argparse.Namespace, folder: Path) -> list[list[str]]:
    folder.mkdir()
    _quantise(fetch_smollm2("gguf"), folder / "model.gguf", name)
    cards, rows = write_cards(folder, threads=args.threads), []
    for length, questions in itertools.product(args.documents.split(","), args.questions.split(",")):
        prompts = _prompts(1, int(questions), int(length), SMOLLM2_VOCABULARY)
        job = _job(folder, prompts, args.new_tokens, cards, never=SMOLLM2_ENDS, threads=args.threads)
        seconds: dict[str, list[tuple[float, float]]] = {contender: [] for contender in args.contenders.split(",")}
        for _ in range(args.repeats):
            for contender, laps in seconds.items():
                result = run_contender(CONTENDERS[contender], job, folder)
                laps.append((result.wall_s, result.cpu_s))
        best = [" / ".join(f"{min(values):.1f}" for values in zip(*laps, strict=True)) for laps in seconds.values()]
        rows.append([name, length, questions, *best])
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    (folder / "model.gguf").unlink()
    return rows


def _quantise(source: Path, target: Path, name: str) -> None:
    from gguf import GGUFReader

    from lbx.backends.llama.library import load_llama_cpp

    llama_cpp = load_llama_cpp()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{name}")
    params.allow_requantize = True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), params):
        sys.exit(f"llama.cpp cannot write {name}.")
    window = GGUFReader(target, "r+").get_field("llama.context_length")
    assert window is not None
    window.parts[window.data[0]][0] = WINDOW


def _growth(args: argparse.Namespace, folder: Path) -> int:
    make_hf(folder, [(REPOSITORY / "README.md").read_text("utf-8")], SMALL)
    make_gguf(folder)
    rows = [
        _growth_row(folder, backend, int(length), int(questions), args.new_tokens)
        for backend in args.backends.split(",")
        for length in args.documents.split(",")
        for questions in args.questions.split(",")
    ]
    header = ["backend", "document", "questions", "loop s", "lbx s", "loop / lbx", "loop MB", "lbx MB", "equal"]
    print(table(header, rows))
    return int(any(row[0] == "hf" and row[-1] != f"{row[2]} of {row[2]}" for row in rows))


def _growth_row(folder: Path, backend: str, length: int, questions: int, new_tokens: int) -> list[str]:
    from tokenizers import Tokenizer

    cards = write_cards(folder, threads=1, dtype="float32", device="cpu")
    job = _job(folder, _prompts(1, questions, length, SMALL.vocabulary), new_tokens, cards)
    loop, lbx = (run_contender(f"{backend}-{name}", job, folder) for name in ("reuse", "lbx"))
    decode = Tokenizer.from_file(str(folder / "hf" / "tokenizer.json")).decode
    equal = count_equal(decode_outputs(loop.outputs, decode), decode_outputs(lbx.outputs, decode))
    seconds = [f"{loop.cpu_s:.1f}", f"{lbx.cpu_s:.1f}", ratio(loop.cpu_s, lbx.cpu_s)]
    memory = [f"{result.peak_mb - result.loaded_mb:.0f}" for result in (loop, lbx)]
    row = [backend, str(length), str(questions), *seconds, *memory, equal]
    print(" ".join(row), file=sys.stderr, flush=True)
    return row


def _prompts(documents: int, questions: int, length: int, vocabulary: int) -> list[list[int]]:
    """Questions of 24 tokens on each document of ``length`` tokens; which tokens costs nothing."""

    def ids(start: int, step: int, count: int) -> list[int]:
        return [3 + (start + index * step) % (vocabulary - 3) for index in range(count)]

    return [
        ids(1000 + document * length, 7919, length) + ids(question * 104_729, 31, 24)
        for document in range(documents)
        for question in range(questions)
    ]


def _job(
    folder: Path,
    prompts: list[list[int]],
    new_tokens: int,
    cards: dict[str, Path],
    *,
    never: Sequence[int] = (),
    threads: int = 1,
) -> Job:
    return Job(
        prompts=prompts,
        new_tokens=new_tokens,
        window=len(prompts[0]) + new_tokens + 64,
        weights={"hf": str(folder / "hf"), "llamacpp": str(folder / "model.gguf")},
        cards={name: str(path) for name, path in cards.items()},
        cores=usable_cores(threads),
        never=never,
    )


if __name__ == "__main__":
    sys.exit(main())
