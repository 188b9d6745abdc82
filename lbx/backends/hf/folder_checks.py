"""Checks of a Hugging Face folder, before a library reads it: JSON files and tokenizer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lbx.backends.headers import BASES, FACTORS, PARTS, POSITIONS, SIZES, NumberRange
from lbx.base.errors import BackendError
from lbx.base.inputs import SMALL, read_input

_COUNT_KEYS = re.compile(r"^(?!vocab).*(layer|head|expert|block|depth)")  # Gemma 3n has a vocabulary for each layer
_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
_RANGES: Mapping[str, NumberRange] = {
    **dict.fromkeys((*_LENGTHS, "original_max_position_embeddings"), POSITIONS),
    "sliding_window": POSITIONS._replace(minimum=0),
    **dict.fromkeys(("num_hidden_layers", "num_attention_heads", "num_key_value_heads"), PARTS),
    **dict.fromkeys(("num_nextn_predict_layers", "num_kv_shared_layers"), PARTS._replace(minimum=0)),
    **dict.fromkeys(("hidden_size", "vocab_size"), SIZES),
    **dict.fromkeys(("head_dim", "intermediate_size", "kv_lora_rank"), SIZES._replace(minimum=0)),
    "rope_theta": BASES,
    "partial_rotary_factor": NumberRange(0, 16, is_integer=False),
}
"""Ranges of numbers in config.json that lbx reads."""
_ROPE = ("rope_scaling", "rope_parameters")

_ADAPTER = "adapter_config.json"
_DAMAGED = "Do not trust this model; compare its files with their source (for a bundle: lbx verify)."


def refuse_unsafe_files(folder: Path) -> None:
    """Refuse files that would hang a library, or make it read outside the folder.

    Raises:
        BackendError: config.json contains an impossible number, an index names weights outside the folder, there is an
            adapter, a JSON file cannot be read, or the folder contains a pipe, a device or a socket.
    """
    for path in (*folder.iterdir(), *folder.glob("*/*")):  # libraries choose from these by their own names
        if path.exists() and not path.is_dir() and not path.is_file():
            raise BackendError(f"{path} is not a regular file.", fix="Put the model's own file in its place.")
    if (folder / _ADAPTER).exists():  # transformers adds it where peft happens to be installed, and else leaves it out
        raise BackendError(
            f"{folder} has an adapter ({_ADAPTER}), which transformers adds to the model only if peft is installed.",
            fix="Merge it into the weights (peft: merge_and_unload), and use the folder with the merged model.",
        )
    for key, problem in _problems(read_json(folder / "config.json")):
        raise BackendError(f"{folder / 'config.json'} has {key} = {problem}.", fix=_DAMAGED)
    for path in sorted(folder.glob("*.index.json")):
        index = read_json(path)
        weight_map = index.get("weight_map") if isinstance(index, dict) else None
        for name in set(map(str, weight_map.values())) if isinstance(weight_map, dict) else ():
            if name != Path(name).name:
                raise BackendError(f"{path} lists weights outside the model's folder: {name!r}.", fix=_DAMAGED)


def read_json(path: Path) -> Any:
    """Read a JSON file of a model folder, or return None if it does not exist. Raises BackendError if it is damaged."""
    try:
        return json.loads(read_input(path, SMALL))
    except FileNotFoundError:
        return None
    except RecursionError as exc:
        raise BackendError(f"{path} cannot be read: it is nested too deeply.", fix=_DAMAGED) from exc
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise BackendError(f"{path} cannot be read: {reason}.", fix=_DAMAGED) from exc


def _problems(value: Any, *, in_rope: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the keys of a nested value with impossible numbers, each with a clause on the number."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        limits = FACTORS if in_rope and key == "factor" else _RANGES.get(key)
        is_number = isinstance(inner, int | float) and not isinstance(inner, bool)
        if limits is None and is_number and _COUNT_KEYS.search(key):
            limits = PARTS._replace(minimum=-math.inf, is_integer=False)  # of a library's own
        is_of_parts = isinstance(inner, list | dict) and not in_rope and key not in _LENGTHS
        if limits and inner is not None and not is_of_parts and (problem := limits.problem(inner)):
            yield key, problem
        yield from _problems(inner, in_rope=in_rope or key in _ROPE)


_MIN_TOKEN_SHARE = 0.9
_PADDING = 1024
"""Embeddings are padded to a round number of rows, at most by 2.4 % (DeepSeek-V2: 100,002 tokens, 102,400 rows)."""

_FIX = "The tokenizer or config.json probably belongs to another model: copy both from the source of the weights."


def refuse_foreign_tokenizer(tokenizer: Any, rows: int, chat_template: str | None, folder: Path) -> None:
    """Raise BackendError if prompts could contain ids without an embedding row, or many rows lack a token.

    Special tokens beyond the last row are allowed if no prompt can contain them: gemma3's image token in its
    models without images, the padding token that finetunes add.

    Args:
        tokenizer: tokenizer of transformers.
        rows: number of rows of the model's input embedding.
        chat_template: chat template in use.
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
