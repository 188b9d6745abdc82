"""How cost grows with the questions on a document, and with the document's length.

    python -m bench.growth FIGURE [--questions 1,2,5,10,20] [--lengths 1024,...,16384] [--backends hf] [--full]

lbx answers groups of questions, each group on a document of its own, cut from L-Eval's; "naive" answers one question
on a document of each length through the backend's own high-level interface, and is as much again for each further one:
it forgets everything in between. FIGURE is written as SVG, or as plain text where its name ends in .txt; the table is
printed either way. One thread, pinned; seconds of answering only. Without --full the last but one number of questions
is asked on documents of every length, and every number of questions on those of the last but one length.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from bench.figures import ratio, table
from bench.job import Job, own_cores, run_contender
from bench.model import Shape, make_gguf, make_hf, write_cards
from bench.plot import Line, Panel, svg
from bench.prompts import documents, link_bundle

QUESTION = 64
"""Tokens of a question."""


class Cell(NamedTuple):
    """One group of questions: seconds of lbx, and of the naive way."""

    backend: str
    length: int
    questions: int
    lbx_wall_s: float
    lbx_cpu_s: float
    naive_wall_s: float
    naive_cpu_s: float


def main() -> int:
    args = _arguments()
    with tempfile.TemporaryDirectory(prefix="lbx-bench-") as temporary:
        folder = Path(temporary)
        texts = list(documents(link_bundle(folder / "bundle")))
        make_hf(folder, texts, Shape(context=args.window))
        make_gguf(folder)
        cards = write_cards(folder, threads=1, dtype="float32", device="cpu")
        tokenizer = Tokenizer.from_file(str(folder / "hf" / "tokenizer.json"))
        stream = [token for text in texts for token in tokenizer.encode(text, add_special_tokens=False).ids]
        job = Job(
            prompts=[],
            texts=[],
            new_tokens=args.new_tokens,
            window=args.window,
            weights={"hf": str(folder / "hf"), "llamacpp": str(folder / "model.gguf")},
            cards={name: str(path) for name, path in cards.items()},
            cores=own_cores(1),
        )
        cells = [cell for name in args.backends for cell in _measure(name, args, job, stream, folder)]
    text = _table(cells)
    print("\n" + text)
    args.figure.write_text(text + "\n" if args.figure.suffix == ".txt" else _figure(cells), "utf-8")
    print(f"\n{args.figure} written")
    return 0


def _arguments() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("figure", type=Path, help="file to write: .svg or .txt")
    parser.add_argument("--questions", type=numbers, default=[1, 2, 5, 10, 20])
    parser.add_argument("--lengths", type=numbers, default=[1024, 2048, 4096, 8192, 16_384])
    parser.add_argument("--backends", type=lambda text: text.split(","), default=["llamacpp", "hf"])
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--full", action="store_true", help="every length with every number of questions")
    args = parser.parse_args()
    args.window = max(args.lengths) + max(args.questions) * (QUESTION + args.new_tokens) + 256
    return args


def groups(stream: Sequence[int], shape: Sequence[tuple[int, int]], bos: int = 0) -> list[list[list[int]]]:
    """For each (length, questions) so many prompts on a document of that length; no token of the stream comes twice."""
    made, at = [], 0
    for length, questions in shape:
        document, at = [bos, *stream[at : at + length - 1]], at + length
        asked = []
        for _ in range(questions):
            asked.append(document + list(stream[at : at + QUESTION]))
            at += QUESTION
        made.append(asked)
    if at > len(stream):
        raise ValueError(f"{at} tokens are needed; the documents have {len(stream)}")
    return made


def shape_of(lengths: Sequence[int], questions: Sequence[int], *, full: bool) -> list[tuple[int, int]]:
    """(length, questions) of each group: all pairs, or those with the last but one of either list."""
    length, count = lengths[-2:][0], questions[-2:][0]
    pairs = [(one, other) for one in lengths for other in questions]
    return [pair for pair in pairs if full or pair[0] == length or pair[1] == count]


def _measure(backend: str, args: argparse.Namespace, job: Job, stream: Sequence[int], folder: Path) -> list[Cell]:
    grid = shape_of(args.lengths, args.questions, full=args.full)
    warm_up = (min(args.lengths), 1)
    many = _laps(f"{backend}-lbx", [warm_up, *grid], job, stream, folder)
    alone = _laps(f"{backend}-naive", [warm_up, *((length, 1) for length in args.lengths)], job, stream, folder)
    naive = dict(zip(args.lengths, alone, strict=True))
    return [
        Cell(backend, length, questions, *lap, naive[length][0] * questions, naive[length][1] * questions)
        for (length, questions), lap in zip(grid, many, strict=True)
    ]


def _laps(
    name: str, shape: Sequence[tuple[int, int]], job: Job, stream: Sequence[int], folder: Path
) -> list[tuple[float, float]]:
    """Wall and CPU seconds of each group but the first, which only warms up."""
    made = groups(stream, shape)
    prompts = [prompt for group in made for prompt in group]
    asked = replace(job, prompts=prompts, texts=[""] * len(prompts), groups=[len(group) for group in made])
    result = run_contender(name, asked, folder)
    print(f"{name}: {result.wall_s:.1f} s, {result.cpu_s:.1f} CPU s", flush=True)
    return [(lap.wall_s, lap.cpu_s) for lap in result.laps[1:]]


def _table(cells: Sequence[Cell]) -> str:
    first = {(cell.backend, cell.length): cell for cell in reversed(cells)}
    header = [
        "backend",
        "document",
        "questions",
        "lbx wall s",
        "CPU s",
        "x fewest",
        "naive wall s",
        "CPU s",
        "ratio",
    ]
    return table(
        header,
        [
            [
                cell.backend,
                str(cell.length),
                str(cell.questions),
                f"{cell.lbx_wall_s:.2f}",
                f"{cell.lbx_cpu_s:.2f}",
                ratio(cell.lbx_cpu_s, first[cell.backend, cell.length].lbx_cpu_s),
                f"{cell.naive_wall_s:.2f}",
                f"{cell.naive_cpu_s:.2f}",
                ratio(cell.naive_cpu_s, cell.lbx_cpu_s),
            ]
            for cell in cells
        ],
    )


def _figure(cells: Sequence[Cell]) -> str:
    """Two panels for each backend: against the number of questions, and against the document's length."""
    panels = []
    for backend in dict.fromkeys(cell.backend for cell in cells):
        own = [cell for cell in cells if cell.backend == backend]
        lengths = sorted({cell.length for cell in own})
        counts = sorted({cell.questions for cell in own})
        by_count = [
            line
            for place, length in enumerate(lengths)
            for line in _lines(place, f"{length} tokens", [(c.questions, c) for c in own if c.length == length])
        ]
        by_length = [
            line
            for place, count in enumerate(counts)
            for line in _lines(place, f"{count} question(s)", [(c.length, c) for c in own if c.questions == count])
        ]
        panels.append(Panel(f"{backend}: CPU seconds against questions on a document", "questions", by_count))
        panels.append(Panel(f"{backend}: CPU seconds against the document's length", "tokens", by_length))
    return svg(panels, "solid: lbx; dashed: one question at a time")


def _lines(colour: int, label: str, points: Sequence[tuple[int, Cell]]) -> list[Line]:
    """lbx's and the naive line; none through a single point."""
    return (
        []
        if len(points) < 2
        else [
            Line(label, colour, False, [(x, cell.lbx_cpu_s) for x, cell in points]),
            Line("", colour, True, [(x, cell.naive_cpu_s) for x, cell in points]),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
