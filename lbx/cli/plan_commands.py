"""``lbx plan``: what a run would read and take, computed without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lbx.cli.options import AsJson
from lbx.cli.spec_options import takes_spec
from lbx.running.spec import RunSpec


@takes_spec
def plan(
    *,
    spec: RunSpec,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Base the estimate on the sessions in this results file."),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate/--no-calibrate", help="Compute for a few seconds to estimate how long a run takes."),
    ] = True,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="MODEL",
            help="Plan the same with this model, too, and say which is faster here: the GGUF of a folder, or the "
            "folder of a GGUF. Transformers on a CPU is measured in float32 and bfloat16, unless its card names one. "
            "Can be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count what a run would read and take: tokens, shared prefixes, truncation, memory, time.

    Nothing is run but a calibration of a few seconds, and none where a results file (-o) tells of earlier sessions.

    Example: lbx plan --bundle demo --model demo-hf --tasks needle
    """
    from lbx.cli.planning import show_plan

    show_plan(spec=spec, output=output, calibrate=calibrate, against=against, as_json=as_json)
