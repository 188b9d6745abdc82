"""Comparisons by position, made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lbx.base.records import sha256_text
from lbx.results import DepthPairRow, DepthRow, Store
from lbx.results.file.depth import begin_depth_pair, write_depth_rows

F16 = {"backend.weights": "f16" * 8, "backend.cache_type_k": "f16", "backend.cache_type_v": "f16"}
Q4 = F16 | {"backend.weights": "q4k" * 8}


def depth_pair(model: str = "q4", settings: Mapping[str, Any] = Q4, reference: str = "original") -> DepthPairRow:
    return DepthPairRow(
        pair_id=f"{model}-llamacpp-{sha256_text(str(settings) + reference)[:8]}",
        comparison_id=f"{reference}-llamacpp-12345678",
        model=model,
        backend="llamacpp",
        backend_version="llama-cpp-python 1",
        settings=dict(settings),
        hardware={"stored_as": "Q4_K"},
        weights_bytes=100 * 2**20,
        kv_bytes_per_token=1024,
        reference_model=reference,
        reference_backend="llamacpp",
        reference_backend_version="llama-cpp-python 1",
        reference_settings=dict(F16),
        reference_hardware={"stored_as": "F16"},
        reference_weights_bytes=400 * 2**20,
        reference_kv_bytes_per_token=1024,
        texts=8,
        bundle_digest="ab" * 32,
        lbx_version="1",
    )


def depth_rows(pair: DepthPairRow, texts: Sequence[int], kl: float = 0.01) -> list[DepthRow]:
    """Rows of texts of 2,000 tokens, with a divergence that grows with the position and differs between texts."""
    return [
        DepthRow(
            pair.pair_id, f"needle/single_en/s{text}", start, stop, count, size, 8 * size, 40 * size, 1 - size,
            -2 - size, -2.0, 2.0, 4.0, 8, 1e-7, 2e-7, sha256_text(f"{text}"),
        )
        for text in texts
        for start, stop, count in ((0, 1024, 1024), (1024, 2048, 975))
        for size in [kl * (1 + text / 10) * (1 + start / 1024)]
    ]  # fmt: skip


def add_depth(store: Store, *pairs: DepthPairRow, texts: Sequence[int] = range(8), kl: float = 0.01) -> None:
    for number, pair in enumerate(pairs or (depth_pair(),), start=1):
        begin_depth_pair(store, pair)
        write_depth_rows(store, depth_rows(pair, texts, number * kl))
