"""Does llama.cpp under lbx ever lose to the loop that a user writes in an afternoon? Each weight format, each shape.

    python -m bench.formats [--formats Q4_0,F16,...] [--variant haswell] [--document N] [--repeats N]

SmolLM2-135M-Instruct (Q4_1, whose numbers the other formats get from llama.cpp's own quantiser) answers questions
greedily on one CPU core. Beside each other, in processes of their own, taking turns: "llamacpp-reuse", the loop that
keeps the longest prefix of the question before; lbx; and lbx one answer at a time. Three shapes: one question a
document, twelve questions on one, and twelve with long answers. Figures are the loop's CPU seconds over lbx's, each the
best of its repeats; loading is left out. --variant takes one of llama.cpp's builds, as haswell for AVX2 alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.figures import ratio, table
from bench.job import Job, own_cores, run_contender
from bench.model import fetch_smollm2, write_cards

FORMATS = ("Q4_0", "Q4_1", "Q4_K_M", "Q8_0", "F16", "BF16")
LOOP, LBX, ALONE = "llamacpp-reuse", "llamacpp-lbx", "llamacpp-lbx-alone"


class Shape(NamedTuple):
    """Documents, questions on each, tokens of an answer, and who answers."""

    documents: int
    questions: int
    new_tokens: int
    contenders: tuple[str, ...]


SHAPES = {
    "1 question, 32 tokens": Shape(3, 1, 32, (LOOP, LBX)),
    "12 questions, 32 tokens": Shape(1, 12, 32, (LOOP, LBX, ALONE)),
    "12 questions, 256 tokens": Shape(1, 12, 256, (LOOP, LBX)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--formats", default=",".join(FORMATS), help="as llama.cpp names them")
    parser.add_argument("--variant", default="", help="of llama.cpp for this CPU: haswell, skylakex, zen4 ...")
    parser.add_argument("--document", type=int, default=2048, help="tokens")
    parser.add_argument("--repeats", type=int, default=2, help="each contender's turns; the best counts")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lbx-bench-") as temporary:
        folder = Path(temporary)
        if args.variant:
            _only(args.variant, folder / "variant")
        rows = []
        for name in args.formats.split(","):
            rows += _format(name, args.document, args.repeats, folder)
    print(table(["format", "answers", "loop CPU s", "loop / lbx", "loop / lbx --no-batching"], rows))
    return 0


def _only(variant: str, folder: Path) -> None:
    """Let this process's children see one of llama.cpp's builds for the CPU."""
    from lbx.backends.llama.library import libraries
    from lbx.backends.llama.variants import FOLDER_VARIABLE

    files = {file.name: file for file in libraries()[1] or ()}
    wanted = f"libggml-cpu-{variant}.so"
    if wanted not in files:
        sys.exit(f"There is no {wanted}; there are {', '.join(sorted(files)) or 'no variants'}.")
    folder.mkdir()
    (folder / wanted).symlink_to(files[wanted])
    os.environ[FOLDER_VARIABLE] = str(folder)


def _format(name: str, document: int, repeats: int, folder: Path) -> list[list[str]]:
    place = folder / name
    place.mkdir()
    _quantise(fetch_smollm2("gguf"), place / "model.gguf", name)
    cards = {key: str(path) for key, path in write_cards(place, threads=1).items()}
    rows = []
    for label, shape in SHAPES.items():
        weights = {"llamacpp": str(place / "model.gguf")}
        job = job_of(shape.documents, shape.questions, shape.new_tokens, document, weights, cards, never=[0, 1, 2])
        seconds: dict[str, list[float]] = {contender: [] for contender in shape.contenders}
        for _ in range(repeats):
            for contender in shape.contenders:
                seconds[contender].append(run_contender(contender, job, place).cpu_s)
        best = {contender: min(each) for contender, each in seconds.items()}
        rows.append(
            [name, label, f"{best[LOOP]:.1f}", ratio(best[LOOP], best[LBX]), ratio(best[LOOP], best.get(ALONE))]
        )
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    (place / "model.gguf").unlink()
    return rows


def _quantise(source: Path, target: Path, name: str) -> None:
    """Write a GGUF file's numbers in another format, by llama.cpp."""
    from lbx.backends.llama.library import library

    llama_cpp = library()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{name}")
    params.allow_requantize = True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), params):
        sys.exit(f"llama.cpp cannot write {name}.")


def job_of(
    documents: int,
    questions: int,
    new_tokens: int,
    length: int,
    weights: dict[str, str],
    cards: dict[str, str],
    *,
    vocabulary: int = 40_000,
    never: Sequence[int] = (),
) -> Job:
    """Questions of 24 tokens on documents of so many, on one core; ``never`` are the tokens that end an answer."""

    def ids(start: int, step: int, count: int) -> list[int]:  # what they say costs nothing
        return [3 + (start + place * step) % (vocabulary - 3) for place in range(count)]

    prompts = [
        ids(1000 + document * length, 7919, length) + ids(question * 104_729, 31, 24)
        for document in range(documents)
        for question in range(questions)
    ]
    return Job(
        prompts=prompts,
        texts=[""] * len(prompts),
        new_tokens=new_tokens,
        window=length + 24 + new_tokens + 64,
        weights=weights,
        cards=cards,
        cores=own_cores(1),
        never=never,
    )


if __name__ == "__main__":
    sys.exit(main())
