"""Options shared by several commands: mixins, and the formats of output. Options of a run are fields of ``RunSpec``."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from lbx.options.common import SCRATCH
from lbx.options.option import output_option, page_option, process_option, sample_option


class ReportFormat(StrEnum):
    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    LATEX = "latex"
    HTML = "html"
    SVG = "svg"
    PNG = "png"


class SqlFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Options of commands that run a model, here or in shards."""

    retry_failed: Annotated[bool, sample_option("Repeat samples that failed in an earlier session.")] = False
    retry_empty: Annotated[bool, sample_option("Repeat samples with an empty answer in an earlier session.")] = False
    plan: Annotated[bool, process_option("Count tokens and estimate the time before the first sample.")] = True
    hash_bundle: Annotated[
        bool,
        process_option(
            "Hash every file of the bundle first; default: compare names, sizes and times, and hash only files "
            "newer than the manifest."
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class LocalSessionOptions(SessionOptions):
    """Options of commands that run a model in this process."""

    log: Annotated[
        Path | None,
        output_option("Write a progress line to this file every minute; default: RESULTS.log.", "FILE"),
    ] = None
    scratch: Annotated[
        Path | None,
        SCRATCH.with_help(
            "A folder on this machine's own disk: write there, and copy every commit to the results file.",
            panel="One shard of many",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Options of commands that serve a page."""

    host: Annotated[
        str,
        page_option(
            "Address to listen on; an address that other machines can reach needs --others-may-reach-it.", "ADDRESS"
        ),
    ] = "127.0.0.1"
    port: Annotated[int, page_option("The port; 0 takes any free port.", "N", minimum=0, maximum=65535)] = 8765
    uds: Annotated[
        Path | None,
        page_option("Listen on a Unix socket instead, to reach a container without network.", "FILE"),
    ] = None
    others: Annotated[
        bool,
        page_option("Allow a --host that other machines can reach, unencrypted.", names=("--others-may-reach-it",)),
    ] = False
