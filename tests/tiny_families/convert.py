"""llama.cpp's own converter on many folders in one process; run by the Python that has it, never imported.

    python tests/tiny_families/convert.py FOLDER... > lines of {"folder": ..., "gguf": ..., "error": ...}

The tests' tokenizer is none that the converter knows: it is written as the byte-level BPE that it is, for each of them.
"""

from __future__ import annotations

import enum
import json
import logging
import sys
from pathlib import Path


def _unknown_name(kind, name):
    """The package holds a gguf that is older than itself. What that does not name is of models newer than it."""
    if not kind.__module__.startswith("gguf.") or name.startswith("_"):
        raise AttributeError(name)
    return name


def main() -> None:
    sys.stdout, said = sys.stderr, sys.stdout  # its progress is no answer
    enum.EnumType.__getattr__ = _unknown_name  # type: ignore[attr-defined]
    import torch
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class
    from conversion.base import TextModel

    logging.disable(logging.CRITICAL)
    TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"

    def convert(folder: Path, out: Path) -> None:
        import gguf

        known = ModelBase.load_hparams(folder, False)
        found = get_model_class(get_model_architecture(known, ModelType.TEXT))
        kind = type(found.__name__, (found,), {"set_vocab": TextModel.set_vocab, "model_arch": found.model_arch})
        kind.no_mtp = True  # type: ignore[attr-defined]  # heads for several tokens at once, which these models lack
        with torch.inference_mode():
            kind(folder, gguf.LlamaFileType.ALL_F32, out).write()

    for folder in map(Path, sys.argv[1:]):
        out, error = folder.with_suffix(".gguf"), None
        try:
            convert(folder, out)
        except BaseException as exc:  # it ends the process where it does not know a model
            lines = [line for line in str(exc).splitlines() if line.strip()]
            error = f"{type(exc).__name__}: {lines[0] if lines else ''}"
        print(json.dumps({"folder": str(folder), "gguf": str(out), "error": error}), file=said, flush=True)


if __name__ == "__main__":
    main()
