"""How seconds and memory grow with the document and with the questions on it, beside the loop of an afternoon.

    python -m bench.growth [--documents 2048,8192,32768] [--questions 1,5,20] [--only hf] [--new-tokens N]

A random Llama of 3 M parameters answers questions on one document greedily, on one CPU core: through lbx and by the
loop that keeps the longest prefix of the question before, each in a process of its own. Memory is what answering added
to the loaded model, at its highest. Exit code 1: on transformers, lbx answered otherwise than the loop; llama.cpp
keeps a rounded cache, where near-ties may differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.figures import equal_outputs, ratio, table, texts
from bench.formats import job_of
from bench.job import run_contender
from bench.model import REPOSITORY, Shape, make_gguf, make_hf, write_cards

SHAPE = Shape(vocabulary=1024, hidden=256, intermediate=512, layers=4, heads=4, kv_heads=2, context=65_536)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--documents", default="2048,8192,32768", help="tokens")
    parser.add_argument("--questions", default="1,5,20")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--only", default="llamacpp,hf", help="backends")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lbx-bench-") as temporary:
        folder = Path(temporary)
        make_hf(folder, [(REPOSITORY / "README.md").read_text("utf-8")], SHAPE)
        make_gguf(folder)
        rows = [
            _row(folder, backend, int(document), int(questions), args.new_tokens)
            for backend in args.only.split(",")
            for document in args.documents.split(",")
            for questions in args.questions.split(",")
        ]
    print(
        table(["backend", "document", "questions", "loop s", "lbx s", "loop / lbx", "loop MB", "lbx MB", "equal"], rows)
    )
    return int(any(row[0] == "hf" and row[-1] != f"{row[2]} of {row[2]}" for row in rows))


def _row(folder: Path, backend: str, document: int, questions: int, new_tokens: int) -> list[str]:
    from tokenizers import Tokenizer

    weights = {"hf": str(folder / "hf"), "llamacpp": str(folder / "model.gguf")}
    cards = write_cards(folder, threads=1, dtype="float32", device="cpu")
    job = job_of(
        1,
        questions,
        new_tokens,
        document,
        weights,
        {name: str(path) for name, path in cards.items()},
        vocabulary=SHAPE.vocabulary,
    )
    loop, lbx = (run_contender(f"{backend}-{name}", job, folder) for name in ("reuse", "lbx"))
    decode = Tokenizer.from_file(str(folder / "hf" / "tokenizer.json")).decode
    equal, of = equal_outputs(texts(loop.outputs, decode), texts(lbx.outputs, decode))
    seconds = [f"{loop.cpu_s:.1f}", f"{lbx.cpu_s:.1f}", ratio(loop.cpu_s, lbx.cpu_s)]
    memory = [f"{one.peak_mb - one.loaded_mb:.0f}" for one in (loop, lbx)]
    row = [backend, str(document), str(questions), *seconds, *memory, f"{equal} of {of}"]
    print(" ".join(row), file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
