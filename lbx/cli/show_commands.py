"""``lbx prompts`` and ``lbx show``: what is asked, and what was answered, sample by sample."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lbx.cli.options import AsJson, OnlyRuns, Results
from lbx.cli.spec_options import takes_spec
from lbx.running.spec import RunSpec

_LISTED = 40

Full = Annotated[bool, typer.Option("--full", help="Show texts whole; default: their ends.")]


@takes_spec
def prompts(
    *,
    spec: RunSpec,
    full: Full = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write them as JSON lines, with token ids."),
    ] = None,
) -> None:
    """Show the prompts that a run would send: text, cut, tokens, budgets, stop rules, sampling.

    Without -o or a choice of samples (--ids, --limit, ...) the first one of each task is shown. The model is loaded for
    its tokenizer and asked nothing.

    Example: lbx prompts --bundle demo --model demo-hf --tasks needle --limit 2
    """
    from lbx.cli.showing import show_prompts

    show_prompts(spec=spec, full=full, output=output)


def show(
    *,
    results: Results,
    sample: Annotated[
        str | None,
        typer.Argument(help="BENCHMARK/TASK/ID, perhaps with #ITERATION, or an ID; default: a list of answers."),
    ] = None,
    runs: OnlyRuns = None,
    pattern: Annotated[str, typer.Option("--match", metavar="PATTERN", help="List these: 'leval/tpo/*'.")] = "*",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="List at most N.")] = _LISTED,
    prompt: Annotated[
        bool,
        typer.Option("--prompt", help="Rebuild the prompt from bundle and model, and compare it with the stored hash."),
    ] = False,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", "-b", metavar="DIR", help="For --prompt; default: the run's.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help="For --prompt; default: the run's.")
    ] = None,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Show a stored answer: question, references, reasoning, output, scores, what may have spoilt it, its prompt.

    Example: lbx show results.duckdb needle/single_en/len0064-depth000-00 --prompt
    """
    from lbx.cli.showing import show_answers

    show_answers(
        results=results,
        sample=sample,
        runs=runs,
        pattern=pattern,
        limit=limit,
        prompt=prompt,
        bundle=bundle,
        model=model,
        full=full,
        as_json=as_json,
    )
