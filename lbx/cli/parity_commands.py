"""``lbx parity``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lbx.cli.options import AsJson
from lbx.cli.spec_options import of_run

_LIMIT = 10


def parity(
    *,
    first: Annotated[str, typer.Argument(metavar="MODEL_A", help="A model card, a .gguf file, or a model folder.")],
    second: Annotated[str, typer.Argument(metavar="MODEL_B", help="The model to compare it with.")],
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", "-b", metavar="DIR", help="Where prompts come from; default: built-in ones."),
    ] = None,
    task_names: Annotated[
        list[str] | None, typer.Option("--tasks", "-t", metavar="NAMES", help="Which of the bundle's tasks.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", metavar="N", min=1, help=f"Only the first N samples of each task; default: {_LIMIT}."
        ),
    ] = None,
    documents: Annotated[int | None, of_run("documents")] = None,
    sample: Annotated[int | None, of_run("sample")] = None,
    seed: Annotated[int, of_run("seed")] = 0,
    ids: Annotated[list[str] | None, of_run("ids")] = None,
    positions: Annotated[
        int,
        typer.Option(
            "--positions", metavar="N", min=0, help="Compare logits after each of the first N tokens of an answer."
        ),
    ] = 16,
    max_prompt_tokens: Annotated[int | None, of_run("max_prompt_tokens")] = None,
    max_new_tokens: Annotated[int | None, of_run("max_new_tokens")] = None,
    chat: Annotated[bool, of_run("chat")] = True,
    threads: Annotated[int | None, of_run("threads")] = None,
    fail_above: Annotated[
        float | None,
        typer.Option(
            "--fail-above",
            metavar="X",
            min=0,
            help="Exit with 1 if any logit differs by more than X, token ids differ, or either cannot be compared.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two models on the same prompts: token ids, logits, greedy answers, scores.

    One after the other in memory. Says whether two formats of one model agree, and what a quantisation costs.

    Example: lbx parity models/my-model.toml my-model-q4_k_m.gguf --bundle demo --tasks needle
    """
    from lbx.cli.comparing import compare

    compare(
        first=first,
        second=second,
        bundle=bundle,
        task_names=task_names,
        limit=limit,
        usual_limit=_LIMIT,
        documents=documents,
        sample=sample,
        seed=seed,
        ids=ids,
        positions=positions,
        max_prompt_tokens=max_prompt_tokens,
        max_new_tokens=max_new_tokens,
        chat=chat,
        threads=threads,
        fail_above=fail_above,
        as_json=as_json,
    )
