"""``lbx models``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lbx.cli.options import AsJson


def models(
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle",
            "-b",
            metavar="DIR",
            help="List what it holds as well, and look beside it instead of in this folder.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what --model can name: cards and weights in models/ and in this folder, and weights in the bundle.

    Embedding models are for --embedding and --retriever. Nothing is loaded: context windows are what card or files say.

    Example: lbx models --bundle demo
    """
    from lbx.cli.model_list import show_models

    show_models(bundle=bundle, as_json=as_json)
