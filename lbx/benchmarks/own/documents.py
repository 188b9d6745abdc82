"""Documents in text files that the rows of a custom benchmark name (``fields = { document_file = "file" }``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from lbx.base.inputs import path_inside, read_input
from lbx.base.limits import RECORD_BYTES, TEXT_CHARACTERS
from lbx.base.tables import entry_error
from lbx.base.visible import one_line
from lbx.benchmarks.base.files import DataRow
from lbx.benchmarks.own.definition import DOCUMENT_FILE, READERS, CustomTask


class DocumentReader:
    """Reader of the documents below a data file's folder.

    It keeps the last document: questions on the same document are consecutive rows.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last = ("", "")

    def document(self, row: DataRow, values: Mapping[str, object], names: Mapping[str, object]) -> object:
        """Return the document of a row: the value of its own field, or the text of the file that it names.

        Args:
            values: {field: value}.
            names: {field: its name in the row}.

        Raises:
            UsageError: the row has both, or the file cannot be read as text; names the row and its field.
        """
        document, path = values["document"], values.get(DOCUMENT_FILE)
        if path is None:
            if isinstance(document, str) and self._is_file(document):
                name = names["document"]
                fix = f'To read the file, set fields = {{ {DOCUMENT_FILE} = "{name}" }}.'
                raise entry_error(row.location, f"the field {name!r} has the name of a file, not a text", fix)
            return document
        name = names[DOCUMENT_FILE]
        if document is not None:
            raise entry_error(row.location, f"it has both {names['document']!r} and {name!r}", "Remove one of them.")
        if not isinstance(path, str) or not path:
            raise entry_error(row.location, f"the field {name!r} must be the path of a text file")
        if path != self._last[0]:
            try:
                self._last = path, _read_text(self._folder, path)
            except ValueError as exc:
                reason = f"the field {name!r} names {one_line(path)[:80]!r}, which {exc}"
                raise entry_error(row.location, reason, f"Paths begin at {self._folder}.") from exc
        return self._last[1]

    def _is_file(self, text: str) -> bool:
        try:
            return len(text) < TEXT_CHARACTERS and path_inside(self._folder, text).is_file()
        except (ValueError, OSError):
            return False


def _read_text(folder: Path, name: str) -> str:
    """Read a text file below a folder, without a byte order mark.

    Raises:
        ValueError: it is not such a file; the message continues a sentence about it.
    """
    try:
        path = path_inside(folder, name)
    except ValueError as exc:
        raise ValueError(f"cannot be used: {exc}") from exc
    try:
        if any(part.is_symlink() for part in (path, *path.parents[: name.count("/")])):
            raise ValueError("cannot be used: it is a link")
        return read_input(path, RECORD_BYTES).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise ValueError("does not exist") from exc
    except OSError as exc:
        raise ValueError(f"cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ValueError(f"is not UTF-8 ({exc.reason})") from exc


def document_files(path: Path, task: CustomTask) -> list[str]:
    """Return the files that the rows of a checked data file name, relative to the definition's folder."""
    field = dict(task.fields).get(DOCUMENT_FILE)
    if not isinstance(field, str):
        return []
    folder = PurePosixPath(task.data).parent
    names = dict.fromkeys(row.values.get(field) for row in READERS[path.suffix].read_rows(path))
    return [str(folder / name) for name in names if name is not None]
