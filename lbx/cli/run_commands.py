"""``lbx tasks`` and ``lbx run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lbx.cli.options import (
    AsJson,
    CopyEvery,
    CountFirst,
    HashBundle,
    Log,
    ResultsOutput,
    RetryEmpty,
    RetryFailed,
    Scratch,
    ShardNumber,
    Shards,
    VerifyBatching,
)
from lbx.cli.spec_options import of_run, takes_spec
from lbx.running.spec import RunSpec


def tasks(bundle: Annotated[Path, of_run("bundle")], as_json: AsJson = False) -> None:
    """List what the bundle holds to run.

    Example: lbx tasks --bundle demo
    """
    from lbx.cli.running import show_tasks

    show_tasks(bundle=bundle, as_json=as_json)


@takes_spec
def run(
    *,
    spec: RunSpec,
    spec_file: Path | None,
    output: ResultsOutput,
    verify_batching: VerifyBatching = 0,
    retry_failed: RetryFailed = False,
    retry_empty: RetryEmpty = False,
    plan: CountFirst = True,
    log: Log = None,
    shards: Shards = None,
    shard: ShardNumber = None,
    scratch: Scratch = None,
    copy_every: CopyEvery = 10.0,
    hash_bundle: HashBundle = False,
    as_json: AsJson = False,
) -> None:
    """Ask a model every sample and write answers and scores to one file. The same command again continues.

    Never touches the network, but for the one address of a card with backend = "endpoint". Exit code 3 means done,
    but some samples failed.

    Example: lbx run --bundle demo --model demo-hf --tasks needle -o results.duckdb
    """
    from lbx.cli.running import ask

    ask(
        spec=spec,
        spec_file=spec_file,
        output=output,
        verify_batching=verify_batching,
        retry_failed=retry_failed,
        retry_empty=retry_empty,
        plan=plan,
        log=log,
        shards=shards,
        shard=shard,
        scratch=scratch,
        copy_every=copy_every,
        hash_bundle=hash_bundle,
        as_json=as_json,
    )
