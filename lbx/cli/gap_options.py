"""Options of the commands that carry a bundle across the air gap."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from lbx.cli.options import RUN_FORMS, AsJson, OnlyRuns, ResultsArgument

Keys = Annotated[
    Path | None,
    typer.Option(
        "--trust", metavar="KEYS", help="The signer's public key, or a file of allowed signers in ssh-keygen's format."
    ),
]
AllowUnsigned = Annotated[
    bool, typer.Option("--allow-unsigned", help="Accept a file that is unsigned, or not signed by a key of --trust.")
]
SIGN = typer.Option(
    "--sign",
    metavar="KEY",
    help="Sign with this SSH key, using ssh-keygen; give the .pub file if ssh-agent has the key.",
)
RefuseUnsafe = Annotated[
    bool,
    typer.Option("--refuse-unsafe", help="Refuse pickles and code even if the recipe allowed them."),
]


@dataclass(frozen=True, kw_only=True)
class BundleOptions:
    """Shows the sources, their licences and their sizes before the first download. Repeat the command to continue after
    an interruption.

    Example: lbx bundle bundle/longbench.toml bundle/leval.toml -o out

    Example: lbx bundle models/new.toml --base bundle.json -o out
    """

    BRIEF: ClassVar[Sequence[str]] = ("out", "name", "base", "sign", "dry_run")

    recipes: Annotated[
        tuple[Path, ...],
        typer.Argument(
            help="Recipes or model cards (TOML), combined into one bundle.",
            metavar="RECIPE...",
        ),
    ]
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the archive.")] = Path()
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the bundle; default: the joined names of the recipes."),
    ] = None
    hub: Annotated[
        str | None,
        typer.Option("--hub", metavar="URL", help="Address of a hub mirror to use instead of the public hub."),
    ] = None
    mirror: Annotated[
        str | None,
        typer.Option(
            "--mirror",
            metavar="URL",
            help="Address of a mirror that serves the paths of https sources, to use instead of their hosts.",
        ),
    ] = None
    work: Annotated[
        Path | None, typer.Option("--work", metavar="DIR", help="Folder for the downloads; default: inside -o.")
    ] = None
    base: Annotated[
        Path | None,
        typer.Option(
            "--base",
            metavar="BUNDLE",
            help="Make a delta that leaves out the files of this bundle (its lbx/bundle.json, folder or archive).",
        ),
    ] = None
    images: Annotated[
        tuple[Path, ...],
        typer.Option("--include-image", metavar="FILE", help="A container image (OCI archive) to include."),
    ] = ()
    volume_size: Annotated[
        str | None,
        typer.Option(
            "--volume-size",
            metavar="SIZE",
            help="Split the archive into volumes of this size, such as 650M or 2GiB; default: 4294967295 bytes.",
        ),
    ] = None
    sign: Annotated[Path | None, SIGN] = None
    zstd: Annotated[
        bool, typer.Option("--zstd", help="Compress the archive, for slow links; weights shrink little.")
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show sources, licences and sizes without downloading.")
    ] = False
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Example: lbx verify demo.tar --trust bundler.pub

    Example: lbx verify results.duckdb --trust lab.pub
    """

    archive: Annotated[
        Path,
        typer.Argument(
            help="NAME.tar, one of its volumes, NAME.SHA256SUMS, an unpacked bundle's folder, or a results file with "
            "an attestation.",
            metavar="FILE",
        ),
    ]
    trust: Keys = None
    allow_unsigned: AllowUnsigned = False
    refuse_unsafe: RefuseUnsafe = False
    attestation: Annotated[
        Path | None,
        typer.Option(
            "--attestation",
            metavar="FILE",
            help="Of a results file: what `lbx attest` wrote; default: RESULTS.attestation.jsonl.gz.",
        ),
    ] = None
    runs: Annotated[
        tuple[str, ...],
        typer.Option("--run", metavar="RUN", help=f"Of a results file: only this run: {RUN_FORMS}. Can be repeated."),
    ] = ()
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class AttestOptions:
    """Example: lbx attest results.duckdb --sign ~/.ssh/id_ed25519"""

    results: ResultsArgument
    sign: Annotated[Path, SIGN]
    runs: OnlyRuns = ()
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The attestation; default: RESULTS.attestation.jsonl.gz."),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace an existing attestation.")] = False
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class UnpackOptions:
    """Example: lbx unpack demo.tar --trust bundler.pub --to demo"""

    archive: Annotated[
        Path, typer.Argument(help="NAME.tar, one of its volumes, or NAME.SHA256SUMS.", metavar="ARCHIVE")
    ]
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="The new folder; it appears only when it is complete.")
    ]
    trust: Keys = None
    allow_unsigned: AllowUnsigned = False
    refuse_unsafe: RefuseUnsafe = False
    base: Annotated[
        Path | None,
        typer.Option("--base", metavar="DIR", help="For a delta: the unpacked bundle that it is based on."),
    ] = None
    as_json: AsJson = False
