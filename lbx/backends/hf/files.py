"""Checks of a Hugging Face folder: its JSON files before a library reads them, and its tokenizer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lbx.base.errors import BackendError
from lbx.base.inputs import SMALL, read_input
from lbx.base.limits import CONTEXT_TOKENS

_COUNT_KEYS = re.compile(r"^(?!vocab).*(layer|head|expert|block|depth)")  # Gemma 3n has a vocabulary for each layer
_MAX_COUNT = 100_000
"""Limit for layers, heads or experts; libraries list all of them before they look for the first weight."""
_LENGTH_KEYS = re.compile(r"position_embeddings$|^n_positions$|^n_ctx$|^max_seq_len$|^seq_length$|^sliding_window$")

_ADAPTER = "adapter_config.json"
_DAMAGED = "Do not trust this model; compare its files with their source (for a bundle: lbx verify)."


def refuse_unsafe_files(folder: Path) -> None:
    """Refuse files that would hang a library, or make it read outside the folder.

    Raises:
        BackendError: config.json counts its parts in millions, an index names weights outside the folder, or there is
            an adapter; one of them cannot be read, or anything in the folder is a pipe, a device or a socket.
    """
    for path in (*folder.iterdir(), *folder.glob("*/*")):  # libraries choose from these by their own names
        if path.exists() and not path.is_dir() and not path.is_file():
            raise BackendError(f"{path} is not a regular file.", fix="Put the model's own file in its place.")
    if (folder / _ADAPTER).exists():  # transformers adds it where peft happens to be installed, and else leaves it out
        raise BackendError(
            f"{folder} has an adapter ({_ADAPTER}), which transformers adds to the model only if peft is installed.",
            fix="Merge it into the weights (peft: merge_and_unload), and use the folder with the merged model.",
        )
    for key, value in _numbers(read_json(folder / "config.json")):
        if (_COUNT_KEYS.search(key) and value > _MAX_COUNT) or (_LENGTH_KEYS.search(key) and value > CONTEXT_TOKENS):
            raise BackendError(f"{folder / 'config.json'} has {key} = {value:,}, more than any model.", fix=_DAMAGED)
    for path in sorted(folder.glob("*.index.json")):
        index = read_json(path)
        weight_map = index.get("weight_map") if isinstance(index, dict) else None
        for name in set(map(str, weight_map.values())) if isinstance(weight_map, dict) else ():
            if name != Path(name).name:
                raise BackendError(f"{path} lists weights outside the model's folder: {name!r}.", fix=_DAMAGED)


def read_json(path: Path) -> Any:
    """Value in a JSON file of a model's folder; None if the file does not exist. Raises BackendError."""
    try:
        return json.loads(read_input(path, SMALL))
    except FileNotFoundError:
        return None
    except RecursionError as exc:
        raise BackendError(f"{path} cannot be read: it is nested too deeply.", fix=_DAMAGED) from exc
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise BackendError(f"{path} cannot be read: {reason}.", fix=_DAMAGED) from exc


def _numbers(value: Any) -> Iterator[tuple[str, float]]:
    """Yield every number in a nested value with its key."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if isinstance(inner, int | float) and not isinstance(inner, bool):
            yield key, inner
        yield from _numbers(inner)


_MIN_TOKEN_SHARE = 0.9
_PADDING = 1024
"""Embeddings are padded to a round number of rows, at most by 2.4 % (DeepSeek-V2: 100,002 tokens, 102,400 rows)."""

_FIX = "The tokenizer or config.json probably belongs to another model: copy both from the source of the weights."


def refuse_foreign_tokenizer(tokenizer: Any, rows: int, chat_template: str | None, folder: Path) -> None:
    """Raise BackendError if prompts could contain ids without an embedding row, or many rows have no token.

    Special tokens beyond the last row are allowed if no prompt can contain them: gemma3's image token in its
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
            f"The tokenizer in {folder} does not fit the model: its embedding has {rows:,} rows, but {len(beyond):,} "
            f"tokens have higher ids, e.g. {min(beyond)!r} ({beyond[min(beyond)]}).",
            fix=_FIX,
        )
    if len(vocabulary) < _MIN_TOKEN_SHARE * rows and rows - len(vocabulary) > _PADDING:
        raise BackendError(
            f"The tokenizer in {folder} does not fit the model: it has {len(vocabulary):,} tokens, but the model's "
            f"embedding has {rows:,} rows.",
            fix=_FIX,
        )
