"""Which files may travel: data and weights, never something that runs when it is loaded.

A pickle runs code as it is opened, and a configuration with ``auto_map`` makes transformers import code
from the repository. Both are refused unless the recipe allows the file by name, and then recorded. A zip that would
unpack to far more than any text does is refused in any case.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lbx.benchmarks.base.files import is_zip_bomb

REFUSED = {
    **dict.fromkeys((".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".dill"), "a pickle"),
    **dict.fromkeys((".h5", ".keras"), "a Keras file, which can hold code"),
    **dict.fromkeys((".py", ".pyc", ".pyd", ".so", ".dll", ".dylib", ".sh", ".exe", ".whl", ".jar"), "code"),
}
_CONFIG_LIMIT = 16 << 20


@dataclass(frozen=True, slots=True)
class Unsafe:
    """What is wrong with a file's content.

    Attributes:
        reason: as the end of a sentence ("it ...").
        may_be_allowed: whether a recipe can let it through by name.
    """

    reason: str
    may_be_allowed: bool = True


NAMES_CODE = Unsafe("it names code to run (auto_map)")
_OPAQUE = Unsafe("it is too large or too deeply nested to be looked through")


def why_refused(name: str) -> str:
    """What makes a file of this name unsafe ("a pickle", "code" ...), or "" when nothing does."""
    return REFUSED.get(Path(name).suffix.lower(), "")


def wants_look(name: str) -> bool:
    """Whether ``unsafe_inside`` has to see the content of a file of this name."""
    return name.lower().endswith(("config.json", ".zip"))


def unsafe_inside(name: str, size: int, file: IO[bytes]) -> Unsafe | None:
    """What the content makes unsafe of a file whose name ``wants_look``; None where nothing does.

    Args:
        size: of ``file`` in bytes, which must be seekable.
    """
    if name.lower().endswith(".zip"):
        try:
            with zipfile.ZipFile(file) as archive:
                declared = sum(info.file_size for info in archive.infolist())
        except Exception:  # whatever it is, it unpacks to nothing; who wants to read it will say what is wrong
            return None
        if not is_zip_bomb(declared, size):
            return None
        return Unsafe(f"its {size:,} bytes would unpack to {declared:,}: a zip bomb", may_be_allowed=False)
    return _OPAQUE if size > _CONFIG_LIMIT else _unsafe_json(file.read(_CONFIG_LIMIT))


def _unsafe_json(content: bytes) -> Unsafe | None:
    found = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or any(key == "auto_map" for key, _ in pairs)

    try:
        json.loads(content, object_pairs_hook=look)
    except RecursionError:
        return _OPAQUE
    except ValueError:  # nobody reads that: whoever tries will say what is wrong
        return None
    return NAMES_CODE if found else None
