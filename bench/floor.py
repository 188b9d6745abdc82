"""Where transformers' time goes: attention kernels, matrix products, and all else that lbx and the model's code add.

    python -m bench.floor [FAMILY ...] [--all] [--dtypes float32,bfloat16] [--document N]

Random models of the families of docs/architectures.md that compute many sequences in one row, wide enough that kernels
matter (hidden size 768, two layers or as many as there are sorts). Each answers twelve questions on one document of
2,048 tokens, 32 new tokens each, on one thread under torch's profiler. "else" has everything that is no kernel: norms,
activations, rotary embeddings, copies, Python, and the profiler's own price for each operation. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
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
    "llama", "qwen2", "qwen3", "mistral", "mistral, window", "mixtral", "gemma2", "gemma3", "gpt_oss", "phi3", "glm4",
    "deepseek_v3", "olmo2", "olmo3", "olmoe", "cohere2", "granite", "llama4", "gpt_neox", "gpt2", "nemotron",
    "qwen3_moe",
)  # fmt: skip
"""One of each way of computing that the others of the table have, too."""

ATTENTION, PRODUCTS, ALL = "attention", "products", "all"
PRODUCT_OPS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_grouped_mm", "mkldnn::", "aten::mkldnn")
_LARGER: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim"), 768),
    **dict.fromkeys(("intermediate_size", "intermediate_size_mlp", "ffn_dim", "ffn_hidden_size"), 2048),
    **dict.fromkeys(("num_attention_heads", "n_heads", "num_heads", "n_head"), 12),
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
    except Exception as exc:  # noqa: BLE001  # a family that cannot be made so large is named, and the others go on
        return ["", "", f"not measured: {str(exc).partition(chr(10))[0][:80]}", "", ""]
    both = spent[ATTENTION] + spent[PRODUCTS]
    shares = [f"{100 * part / spent[ALL]:.1f}" for part in (spent[ATTENTION], spent[PRODUCTS], both)]
    most = ", ".join(f"{op} {100 * part / spent[ALL]:.1f}" for op, part in others.most_common(5))
    return [*shares, f"{spent[ALL] / 1e6:.2f}", most]


def _measure(name: str, folder: Path, dtype: str, document: int) -> tuple[Mapping[str, float], Counter[str]]:
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    from lbx.backends import load, resolve_model
    from lbx.backends.hf import attention
    from lbx.inference.batching import DecodeBatch

    card = resolve_model(str(_made(name, folder)))
    options: Any = replace(card.options, dtype=dtype, kv_cells=2 * document, max_sequences=32, threads=1)
    model = load(replace(card, context_window=2 * document, options=options))

    def computed(function: Callable[..., Any]) -> Callable[..., Any]:
        def labelled(*arguments: Any) -> Any:
            with record_function(ATTENTION):
                return function(*arguments)

        return labelled

    def answer() -> None:
        dict(DecodeBatch(model.sequences(), _requests(document), model.tokenizer, ()).run())

    answer()  # the store has its size, and kernels are chosen
    with (
        patch.object(attention, "_computed", computed(attention._computed)),
        profile(activities=[ProfilerActivity.CPU]) as profiled,
        torch.inference_mode(),
        record_function(ALL),
    ):
        answer()
    model.close()
    return _added_up(profiled.events())


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
        Request(SampleKey("bench", "bench", str(n)), (*shared, *rng.choices(range(2, 500), k=24)), 32, min_new_tokens=32)
        for n in range(12)
    ]


def _added_up(events: Any) -> tuple[Mapping[str, float], Counter[str]]:
    """Microseconds of attention, products and all; and of each other operation, without those within."""
    spent: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for event in events:
        if event.name in (ALL, ATTENTION):
            spent[event.name] += event.cpu_time_total
        if event.name != ATTENTION and not _within_attention(event):
            if event.name.startswith(PRODUCT_OPS):
                spent[PRODUCTS] += event.self_cpu_time_total
            else:
                others["Python" if event.name == ALL else event.name.removeprefix("aten::")] += event.self_cpu_time_total
    return spent, others


def _within_attention(event: Any) -> bool:
    parent = event.cpu_parent
    while parent is not None and parent.name != ATTENTION:
        parent = parent.cpu_parent
    return parent is not None


if __name__ == "__main__":
    sys.exit(main())
