"""Whether a tokenizer is the model's own, as far as the number of its tokens can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lbx.base.errors import BackendError

_FEWEST = 0.9
_PADDING = 1024
"""Embeddings are padded to a round number of rows, at most by 2.4 % (DeepSeek-V2: 100,002 tokens, 102,400 rows)."""

_FIX = "The tokenizer or config.json is probably another model's: take both from where the weights came from."


def refuse_foreign_tokenizer(tokenizer: Any, rows: int, chat_template: str | None, folder: Path) -> None:
    """Raise BackendError where a prompt could hold ids that the embedding has no row for, or many rows have no token.

    Special tokens beyond the last row are let through where no prompt can hold them: gemma3's image token in its
    models without images, the padding token that finetunes add.

    Args:
        tokenizer: of transformers.
        rows: of the model's input embedding.
        chat_template: the one in use.
    """
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    silent = {
        number
        for number, token in tokenizer.added_tokens_decoder.items()
        if token.special and token.content not in (chat_template or "")
    } - {tokenizer.bos_token_id, tokenizer.eos_token_id}
    beyond = {text: i for text, i in vocabulary.items() if i >= rows and i not in silent}
    if beyond:
        raise BackendError(
            f"The tokenizer in {folder} does not fit the model: its embedding has {rows:,} rows, and {len(beyond):,} "
            f"tokens have ids beyond them, e.g. {min(beyond)!r} ({beyond[min(beyond)]}).",
            fix=_FIX,
        )
    if len(vocabulary) < _FEWEST * rows and rows - len(vocabulary) > _PADDING:
        raise BackendError(
            f"The tokenizer in {folder} does not fit the model: it has {len(vocabulary):,} tokens, and the model's "
            f"embedding {rows:,} rows.",
            fix=_FIX,
        )
