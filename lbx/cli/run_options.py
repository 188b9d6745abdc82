"""Options of the commands of ``lbx runs``."""

from dataclasses import dataclass

from lbx.cli.options import AsJson, ResultsArgument


@dataclass(frozen=True, kw_only=True)
class ListRunsOptions:
    """`lbx runs FILE` is the same command. Sizes are estimates: bytes of a run's own texts and rows before
    compression; questions, which runs share, are not counted.

    Example: lbx runs list results.duckdb
    """

    results: ResultsArgument
    as_json: AsJson = False
