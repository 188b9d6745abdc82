"""Which files may travel: data and weights, never something that runs when it is loaded.

A pickle runs code as it is opened, and a configuration with ``auto_map`` makes transformers import code
from the repository. Both are refused unless the recipe allows the file by name, and then recorded. A zip that would
unpack to far more than any text does is refused in any case.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import IO, Any

from lbx.benchmarks.files import is_zip_bomb

REFUSED = {
    **dict.fromkeys((".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".dill"), "a pickle"),
    **dict.fromkeys((".h5", ".keras"), "a Keras file, which can hold code"),
    **dict.fromkeys((".py", ".pyc", ".pyd", ".so", ".dll", ".dylib", ".sh", ".exe", ".whl", ".jar"), "code"),
}
_CONFIG_LIMIT = 16 << 20
NAMES_CODE = "it names code to run (auto_map)"
_OPAQUE = "it is too large or too deeply nested to be looked through"


def why_refused(name: str) -> str:
    """What makes a file of this name unsafe ("a pickle", "code" ...), or "" when nothing does."""
    return REFUSED.get(Path(name).suffix.lower(), "")


def why_unsafe_config(name: str, content: Path) -> str:
    """``why_unsafe_inside`` of a Hugging Face configuration that is a file; "" for any other."""
    if not name.lower().endswith("config.json"):
        return ""
    with content.open("rb") as file:
        return why_unsafe_inside(name, content.stat().st_size, file)


def wants_look(name: str) -> bool:
    """Whether ``why_unsafe_inside`` has to see the content of a file of this name."""
    return name.lower().endswith(("config.json", ".zip"))


def why_unsafe_inside(name: str, size: int, file: IO[bytes]) -> str:
    """What the content makes unsafe of a file whose name is harmless, as the end of a sentence ("it ..."), or "".

    Args:
        size: of ``file`` in bytes, which must be seekable.
    """
    if name.lower().endswith(".zip"):
        try:
            with zipfile.ZipFile(file) as archive:
                declared = sum(info.file_size for info in archive.infolist())
        except Exception:  # whatever it is, it unpacks to nothing; who wants to read it will say what is wrong
            return ""
        bomb = is_zip_bomb(declared, size)
        return f"its {size:,} bytes would unpack to {declared:,}: a zip bomb" if bomb else ""
    return _OPAQUE if size > _CONFIG_LIMIT else _why_unsafe_json(file.read(_CONFIG_LIMIT))


def _why_unsafe_json(content: bytes) -> str:
    found = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or any(key == "auto_map" for key, _ in pairs)

    try:
        json.loads(content, object_pairs_hook=look)
    except RecursionError:
        return _OPAQUE
    except ValueError:  # nobody reads that: whoever tries will say what is wrong
        return ""
    return NAMES_CODE if found else ""
