"""Where transformers' time goes: attention kernels, matrix products, and all else that lbx and the model's code add.

    python -m bench.floor [FAMILY ...] [--all] [--dtypes float32,bfloat16] [--document N]

Random models of the families of docs/architectures.md that compute many sequences in one row, wide enough that kernels
matter (hidden size 1,024, two layers or as many as there are sorts). Each answers twelve questions on one document of
2,048 tokens, 32 new tokens each, on one thread: once as it is, which gives the CPU seconds of all, and once with a
clock at each operation. "Python" is what is left. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.figures import table
from bench.model import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tests"))

FAMILIES = (
    "llama", "qwen3", "qwen3_moe", "mistral, window", "mixtral", "gemma2", "gemma3", "gpt_oss", "phi3", "deepseek_v3",
    "olmo2", "cohere2", "llama4", "gpt_neox", "gpt2",
)  # fmt: skip
"""One of each way of computing that the others of the table have, too."""

ATTENTION, PRODUCTS, ALL = "attention", "products", "all"
PRODUCT_NAMES = ("linear", "matmul", "mm", "einsum")
_LARGER: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim"), 1024),
    **dict.fromkeys(("intermediate_size", "intermediate_size_mlp", "ffn_dim", "ffn_hidden_size"), 4096),
    **dict.fromkeys(("num_attention_heads", "n_heads", "num_heads", "n_head"), 16),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size"), 1024),
    **dict.fromkeys(("head_dim", "global_head_dim", "v_head_dim", "qk_nope_head_dim"), 64),
    **dict.fromkeys(("sliding_window", "attention_chunk_size"), 512),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 4096),
    **dict.fromkeys(("qk_rope_head_dim", "rotary_dim"), 32),
    "num_key_value_heads": 4,
    "kv_lora_rank": 256,
    "q_lora_rank": 384,
    "query_pre_attn_scalar": 64,
    "initializer_range": 0.02,
}
"""Sizes in place of those of ``tiny_families.shrinking``."""


def main() -> int:
    args = _arguments()
    rows = []
    for name in args.families:
        for dtype in args.dtypes.split(","):
            rows.append([name, dtype, *_row(name, dtype, args)])
            print(*rows[-1], sep="\t", flush=True)
    rows.sort(key=lambda row: row[4])
    print("\n" + table(["family", "dtype", "attention", "products", "both", "CPU s", "most of all else"], rows))
    return 0


def _arguments() -> argparse.Namespace:
    from tiny_families.configs import FAMILIES as KNOWN

    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="rows of docs/architectures.md")
    parser.add_argument("--all", action="store_true", help="every family of the table that packs rows")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--document", type=int, default=2048, help="tokens")
    args = parser.parse_args()
    if unknown := [name for name in args.families if name not in KNOWN]:
        sys.exit(f"There is no family {unknown[0]!r}. There are: {', '.join(KNOWN)}.")
    page = (REPOSITORY / "docs" / "architectures.md").read_text("utf-8").splitlines()
    packing = [line.split(" | ")[0].removeprefix("| ") for line in page if " | yes | " in line]
    args.families = packing if args.all else args.families or FAMILIES
    return args


def _row(name: str, dtype: str, args: argparse.Namespace) -> list[str]:
    """The shares of attention, of products, and of both, in percent; CPU seconds; and what else took most."""
    try:
        with tempfile.TemporaryDirectory(prefix="lbx-bench-") as folder:
            spent, others = _measure(name, Path(folder), dtype, args.document)
    except Exception as exc:  # a family that cannot be made so large is named, and the others go on
        return ["", "", f"not measured: {str(exc).partition(chr(10))[0][:80]}", "", ""]
    both = spent[ATTENTION] + spent[PRODUCTS]
    shares = [f"{100 * part / spent[ALL]:.1f}" for part in (spent[ATTENTION], spent[PRODUCTS], both)]
    most = ", ".join(f"{op} {100 * part / spent[ALL]:.1f}" for op, part in others.most_common(5))
    return [*shares, f"{spent[ALL]:.2f}", most]


def _measure(name: str, folder: Path, dtype: str, document: int) -> tuple[Mapping[str, float], Counter[str]]:
    from lbx.backends import load, resolve_model
    from lbx.backends.hf import attention
    from lbx.inference.batching import DecodeBatch

    card = resolve_model(str(_made(name, folder)))
    options: Any = replace(card.options, dtype=dtype, kv_cells=2 * document, max_sequences=32, threads=1)
    model = load(replace(card, context_window=2 * document, options=options))

    def answer() -> float:
        began = time.process_time()
        dict(DecodeBatch(model.sequences(), _requests(document), model.tokenizer, ()).run())
        return time.process_time() - began

    answer()  # the store has its size, and kernels are chosen
    spent, others = Counter({ALL: answer()}), Counter[str]()
    with patch.object(attention, "_run_kernel", _timed(attention._run_kernel, spent)), _operations(spent, others):
        answer()
    model.close()
    others["Python"] = spent[ALL] - spent[ATTENTION] - spent[PRODUCTS] - sum(others.values())
    return spent, others


def _timed(function: Callable[..., Any], spent: Counter[str]) -> Callable[..., Any]:
    """The same, beside the clock, and with no operation counted within."""
    import torch

    def timed(*arguments: Any) -> Any:
        began = time.process_time()
        with torch._C.DisableTorchFunction():
            result = function(*arguments)
        spent[ATTENTION] += time.process_time() - began
        return result

    return timed


def _operations(spent: Counter[str], others: Counter[str]) -> Any:
    """While it lasts, each operation of torch that Python calls is timed."""
    from torch.overrides import TorchFunctionMode

    class Timing(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            began = time.process_time()
            result = func(*args, **(kwargs or {}))
            took, name = time.process_time() - began, getattr(func, "__name__", str(func))
            if any(part in name for part in PRODUCT_NAMES):
                spent[PRODUCTS] += took
            else:
                others[name] += took
            return result

    return Timing()


def _made(name: str, folder: Path) -> Path:
    from backends.tiny import make_tokenizer
    from tiny_families import making, shrinking
    from tiny_families.configs import FAMILIES as KNOWN

    family = KNOWN[name]
    own = {key: _LARGER.get(key, value) if type(value) is int else value for key, value in family.options.items()}
    with (
        patch.dict(shrinking.COMMON, {key: _LARGER[key] for key in shrinking.COMMON if key in _LARGER}),
        patch.dict(shrinking._SMALL, {key: _LARGER[key] for key in shrinking._SMALL if key in _LARGER}),
    ):
        return making.make(replace(family, options=own), folder / "hf", make_tokenizer())


def _requests(document: int) -> list[Any]:
    from lbx.base.records import Request, SampleKey

    rng = random.Random(0)
    shared = rng.choices(range(2, 500), k=document)
    return [
        Request(
            SampleKey("bench", "bench", str(n)), (*shared, *rng.choices(range(2, 500), k=24)), 32, min_new_tokens=32
        )
        for n in range(12)
    ]


if __name__ == "__main__":
    sys.exit(main())
