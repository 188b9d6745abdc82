"""Chinese words: jieba 0.42.1 with its own dictionary and HMM, as the official scripts call it.

Only jieba's data is used, from the installed package, and it is cut by ``lbx.metrics.segmentation``. jieba itself is
not imported: that takes longer than to cut a benchmark's Chinese, warns, and leaves a cache file in the temporary
folder, from which the next start-up would read whatever another user has put there.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from lbx.base.errors import LbxError
from lbx.base.inputs import SMALL, read_input
from lbx.metrics.segmentation import Hmm, Lexicon, Segmenter


def words(text: str) -> list[str]:
    """The text cut into words; joined, they are the text again."""
    return _segmenter().cut(text)


def load() -> None:
    """Read the dictionary now, a fraction of a second, so that processes forked from this one have it already.

    Raises:
        LbxError: jieba's data is not there.
    """
    _segmenter()


@cache
def _segmenter() -> Segmenter:
    spec = find_spec("jieba")  # finds the package without running it
    if spec is None or not spec.submodule_search_locations:
        raise _no_data("the package jieba is not installed")
    folder = Path(spec.submodule_search_locations[0])
    try:
        lexicon = Lexicon(read_input(folder / "dict.txt", SMALL).decode())
        tables = [_table(folder / "finalseg" / f"prob_{name}.py") for name in ("start", "trans", "emit")]
        return Segmenter(lexicon, Hmm(*tables))
    except (OSError, ValueError, ImportError, AttributeError, KeyError) as exc:
        raise _no_data(f"the data in {folder} cannot be read ({exc})") from exc


def _no_data(cause: str) -> LbxError:
    return LbxError(
        f"Chinese text cannot be cut into words: {cause}.",
        fix="lbx needs the package jieba 0.42.1.",
        command="pip install jieba==0.42.1",
    )


def _table(path: Path) -> Any:
    """One of the model's tables: a module of jieba's with nothing but a literal named P."""
    spec = spec_from_file_location(f"_lbx_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.P
