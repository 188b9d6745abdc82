"""Names and formats that files in a bundle may have.

Names must be portable and visually distinct. The same checks apply to creating and reading bundles, so that every
packed file is accepted by the recipient.

Files contain data and weights, never code that runs on loading: a pickle runs code when it is opened, and a
configuration with ``auto_map`` makes transformers import code from the repository. Both are refused unless the recipe
allows the file by name, and then recorded. Zip bombs are always refused.
"""

from __future__ import annotations

import json
import re
import unicodedata
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lbx.base.limits import is_zip_bomb

_DRIVE = re.compile(r"[A-Za-z]:")
_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\\%:\u2028\u2029\ud800-\udfff]")
# Invisible characters, which make different names look alike: Unicode's ignorable characters other than category Cf.
_UNSEEN = re.compile(r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]")
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(\..*)?", re.IGNORECASE)
_NAMED = 10
_MAX_PART = 255
_MAX_PATH = 1024
_BUNDLE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


def first_names(names: Sequence[str]) -> str:
    """Format names for a message as "a, b and 3 more", with at most ten names."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def is_bundle_name(name: str) -> bool:
    """Whether ``name`` is valid as the name of an archive and of the top-level folder inside."""
    return _BUNDLE_NAME.fullmatch(name) is not None


def unsafe_reason(path: str) -> str:
    """Reason why ``path`` is not allowed in a bundle, as the end of a sentence ("it ..."), or "" if allowed.

    Backslash and percent are refused because sha256sum and BagIt escape them differently in a manifest.
    """
    parts = path.split("/")
    sizes = [len(part.encode("utf-8", "surrogatepass")) for part in parts]
    checks = (
        (not path, "it is empty"),
        (path.startswith("/") or _DRIVE.match(path), "it is an absolute path"),
        (".." in parts, "it leads out of the folder ('..')"),
        ("" in parts or "." in parts, "it has an empty or '.' part"),
        (_ODD.search(path), "it has a control character, a backslash, a colon, a percent sign or a broken character"),
        (_UNSEEN.search(path) or _has_format_character(path), "it has an invisible character"),
        (unicodedata.normalize("NFC", path) != path, "it is not in Unicode's composed form (NFC)"),
        (any(part[-1:] in (".", " ") for part in parts), "a part of it ends with a dot or a blank"),
        (any(_DEVICE.fullmatch(part) for part in parts), "it is the name of a device on Windows"),
        (max(sizes) > _MAX_PART or sum(sizes) + len(sizes) - 1 > _MAX_PATH, "it is too long for common file systems"),
    )
    return next((reason for wrong, reason in checks if wrong), "")


def _has_format_character(path: str) -> bool:
    return not path.isascii() and any(unicodedata.category(c) == "Cf" for c in path)


class PathSet:
    """Set of paths that can coexist on any file system: no duplicates, case variants, or files that are folders."""

    def __init__(self) -> None:
        self._spellings: dict[str, str] = {}
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, path: str) -> str:
        """Add ``path`` and return "", or return a description of the conflict with an earlier path."""
        if path in self._files:
            return "it appears twice"
        parts = path.split("/")
        prefixes = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        for prefix in prefixes:
            spelled = self._spellings.setdefault(_fold(prefix), prefix)
            if spelled != prefix:
                return f"it differs from {spelled} only in upper and lower case"
            if prefix in self._files:
                return f"{prefix} is a file, not a folder"
        if path in self._folders:
            return "it is both a file and a folder"
        self._files.add(path)
        self._folders.update(prefixes[:-1])
        return ""


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", path.casefold())


UNSAFE_SUFFIXES = {
    **dict.fromkeys((".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".dill"), "a pickle"),
    **dict.fromkeys((".h5", ".keras"), "a Keras file, which can contain code"),
    **dict.fromkeys((".py", ".pyc", ".pyd", ".so", ".dll", ".dylib", ".sh", ".exe", ".whl", ".jar"), "code"),
}
_CONFIG_LIMIT = 16 << 20


@dataclass(frozen=True, slots=True)
class UnsafeContent:
    """Reason why the content of a file is unsafe.

    Attributes:
        reason: why the content is unsafe, as the end of a sentence ("it ...").
        can_allow: whether a recipe can allow the file by name.
    """

    reason: str
    can_allow: bool = True


NAMES_CODE = UnsafeContent("it names code to run (auto_map)")
_OPAQUE = UnsafeContent("it is too large or too deeply nested to be checked")


def unsafe_format(name: str) -> str:
    """Unsafe format that a file name implies ("a pickle", "code" ...), or "" if the name is safe."""
    return UNSAFE_SUFFIXES.get(Path(name).suffix.lower(), "")


def needs_content_check(name: str) -> bool:
    """Whether the content of a file of this name must be checked by ``find_unsafe_content``."""
    return name.lower().endswith(("config.json", ".zip"))


def find_unsafe_content(name: str, size: int, file: IO[bytes]) -> UnsafeContent | None:
    """Find unsafe content in a file selected by ``needs_content_check``. None if the content is safe.

    Args:
        size: size of ``file`` in bytes.
        file: must be seekable.
    """
    if name.lower().endswith(".zip"):
        try:
            with zipfile.ZipFile(file) as archive:
                declared = sum(info.file_size for info in archive.infolist())
        except Exception:  # not a readable zip, so it cannot be a zip bomb; the code that reads it reports the error
            return None
        if not is_zip_bomb(declared, size):
            return None
        return UnsafeContent(f"its {size:,} bytes would unpack to {declared:,}: a zip bomb", can_allow=False)
    return _OPAQUE if size > _CONFIG_LIMIT else _unsafe_json(file.read(_CONFIG_LIMIT))


def _unsafe_json(content: bytes) -> UnsafeContent | None:
    found = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or any(key == "auto_map" for key, _ in pairs)

    try:
        json.loads(content, object_pairs_hook=look)
    except RecursionError:
        return _OPAQUE
    except ValueError:  # not JSON; the code that reads it reports the error
        return None
    return NAMES_CODE if found else None
