"""Which files may travel: data and weights, never something that runs when it is loaded.

A pickle runs code as it is opened, and a configuration with ``auto_map`` makes transformers import code
from the repository. Both are refused unless the recipe allows the file by name, and then recorded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

REFUSED = {
    **dict.fromkeys((".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".dill"), "a pickle"),
    **dict.fromkeys((".h5", ".keras"), "a Keras file, which can hold code"),
    **dict.fromkeys((".py", ".pyc", ".pyd", ".so", ".dll", ".dylib", ".sh", ".exe", ".whl", ".jar"), "code"),
}
_CONFIG_LIMIT = 16 << 20


def why_refused(name: str) -> str:
    """What makes a file of this name unsafe ("a pickle", "code" ...), or "" when nothing does."""
    return REFUSED.get(Path(name).suffix.lower(), "")


def names_code(name: str, content: Path) -> bool:
    """Whether ``content`` is a Hugging Face configuration that asks for code of its repository (``auto_map``)."""
    if not name.lower().endswith("config.json") or content.stat().st_size > _CONFIG_LIMIT:
        return False
    found = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or any(key == "auto_map" for key, _ in pairs)

    try:
        json.loads(content.read_bytes(), object_pairs_hook=look)
    except (ValueError, RecursionError):
        return False
    return found
