"""What sharing wins, whatever a model's layers keep: questions on one document, and decoding of many.

    python -m bench.copies [--questions 16] [--document 8192] [--question 64] [--new-tokens 16]
                           [--answers 32] [--answer-tokens 256] [KIND...]

Random models of about 25 million parameters, one thread, on transformers: full (Llama), sliding (Gemma 3, five layers
of six see 512 tokens), hybrid (LFM2, convolutions and attention), recurrent (Mamba 2); on llama.cpp: gguf (a Llama in
F16). Prints CPU seconds of answering: questions that share the document against each one cold, then answers to as many
questions together against one after the other, both on the document read once. Beside them the prompt tokens computed
as a part of the distinct ones, and how many answers are equal. Exit code 1 where one is not, or more than 1.02 of the
distinct tokens were computed. --answers 0 leaves the second table out.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.figures import MOST_COMPUTED, table
from bench.model import Shape, make_gguf, make_hf
from lbx.backends import Backend, load, resolve_model
from lbx.engine.batching import DecodeBatch
from lbx.engine.completing import complete
from lbx.records import Completion, Request, SampleKey

_VOCABULARY = 8192
_GGUF = "gguf"
_FULL, _SLIDING = "full_attention", "sliding_attention"
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "full": (
        "llama",
        {
            "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 7, "num_attention_heads": 8,
            "num_key_value_heads": 2,
        },
    ),
    "sliding": (
        "gemma3_text",
        {
            "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 8,
            "num_key_value_heads": 2, "head_dim": 64, "sliding_window": 512, "layer_types": [*[_SLIDING] * 5, _FULL],
        },
    ),
    "hybrid": (
        "lfm2",
        {
            "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 8,
            "num_key_value_heads": 2, "block_auto_adjust_ff_dim": False,
            "layer_types": ["conv", "conv", _FULL, "conv", "conv", _FULL],
        },
    ),
    "recurrent": (
        "mamba2",
        {
            "hidden_size": 512, "num_hidden_layers": 10, "num_heads": 16, "head_dim": 64, "state_size": 64,
            "n_groups": 1, "expand": 2, "chunk_size": 128,
        },
    ),
}  # fmt: skip


def main() -> int:
    args = _arguments()
    cold, many, good = [], [], True
    for kind in args.kinds or [*KINDS, _GGUF]:
        with tempfile.TemporaryDirectory(prefix="lbx-bench-") as folder:
            window = args.document + args.question + max(args.new_tokens, args.answer_tokens)
            cells = window + max(args.questions, args.answers) * (args.question + args.answer_tokens)
            card = resolve_model(str(_made(kind, Path(folder))), threads=1)
            card = replace(
                card,
                context_window=window,
                options=replace(card.options, kv_cells=cells, max_sequences=args.answers + 2),
            )
            backend = load(card)
            try:
                row, equal = _against_cold(kind, backend, _requests(args, args.questions, args.new_tokens))
                cold.append(row)
                good = good and equal
                if args.answers:
                    row, equal = _against_one_by_one(kind, backend, _requests(args, args.answers, args.answer_tokens))
                    many.append(row)
                    good = good and equal
            finally:
                backend.close()
    header = ("kind", "parameters", "cold CPU s", "lbx CPU s", "ratio", "computed / distinct", "equal answers")
    print(table(header, cold))
    if many:
        print("\n" + table(("kind", "one by one CPU s", "together CPU s", "ratio", "equal answers"), many))
    return int(not good)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join([*KINDS, _GGUF])}; all without")
    numbers = {"questions": 16, "document": 8192, "question": 64, "new-tokens": 16, "answers": 32, "answer-tokens": 256}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N")
    args = parser.parse_args()
    if unknown := set(args.kinds) - KINDS.keys() - {_GGUF}:
        parser.error(f"there is no kind {', '.join(sorted(unknown))}")
    return args


def _made(kind: str, folder: Path) -> Path:
    """A random model's folder, with a tokenizer of single words; or its file."""
    if kind == _GGUF:
        make_hf(folder, [" ".join(f"w{n}" for n in range(100_000))], Shape(_VOCABULARY, context=65_536))
        return make_gguf(folder)
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    name, keywords = KINDS[kind]
    torch.manual_seed(1)
    config = AutoConfig.for_model(name, vocab_size=_VOCABULARY, max_position_embeddings=65_536, **keywords)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    words = {"</s>": 0, "<unk>": 1} | {f"w{n}": n for n in range(2, _VOCABULARY)}
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="</s>", unk_token="<unk>").save_pretrained(folder)
    return folder


def _requests(args: argparse.Namespace, questions: int, new_tokens: int) -> list[Request]:
    chance = random.Random(3)
    document = chance.choices(range(2, _VOCABULARY), k=args.document)
    return [
        Request(
            SampleKey("bench", "copies", str(n)),
            (*document, *chance.choices(range(2, _VOCABULARY), k=args.question)),
            new_tokens,
            min_new_tokens=new_tokens,
        )
        for n in range(questions)
    ]


def _against_cold(kind: str, backend: Backend, requests: list[Request]) -> tuple[list[str], bool]:
    memory = backend.sequences()
    assert memory.traits.single_reason is None, memory.traits.single_reason
    begin = time.process_time()
    batch = DecodeBatch(memory, requests, backend.tokenizer, backend.eos_ids)
    shared = dict(batch.run())
    middle = time.process_time()
    cold: dict[int, Completion] = {n: complete(backend, request) for n, request in enumerate(requests)}
    end = time.process_time()
    equal = sum(shared[n].output_ids == said.output_ids for n, said in cold.items())
    computed = batch.prompt_tokens / batch.plan.tree_tokens
    cells = [
        kind, f"{_parameters(backend) / 1e6:.0f} M", f"{end - middle:.1f}", f"{middle - begin:.1f}",
        f"{(end - middle) / (middle - begin):.2f}", f"{computed:.3f}", f"{equal} of {len(requests)}",
    ]  # fmt: skip
    return cells, equal == len(requests) and computed <= MOST_COMPUTED


def _parameters(backend: Any) -> int:
    if backend.info.name == "llamacpp":
        return int(backend._lib.llama_model_n_params(backend._model))
    return sum(numbers.numel() for numbers in backend._model.parameters())


def _against_one_by_one(kind: str, backend: Backend, requests: list[Request]) -> tuple[list[str], bool]:
    memory = backend.sequences()
    seconds, said = [], []
    for at_once in (None, 1):
        begin = time.process_time()
        answers = dict(DecodeBatch(memory, requests, backend.tokenizer, backend.eos_ids, answers=at_once).run())
        seconds.append(time.process_time() - begin)
        said.append([answers[n].output_ids for n in range(len(requests))])
    equal = sum(one == other for one, other in zip(*said, strict=True))
    together, alone = seconds
    cells = [kind, f"{alone:.1f}", f"{together:.1f}", f"{alone / together:.2f}", f"{equal} of {len(requests)}"]
    return cells, equal == len(requests)


if __name__ == "__main__":
    sys.exit(main())
