"""Options of the commands that carry a bundle across the air gap."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from lbx.options.common import OUTPUT, REPLACE, RUN, RUN_FORMS, AsJson, OnlyRuns, ResultsArgument
from lbx.options.option import Argument, Option

Keys = Annotated[
    Path | None,
    Option("The signer's public key, or a file of allowed signers in ssh-keygen's format.", "KEYS", ("--trust",)),
]
AllowUnsigned = Annotated[
    bool, Option("Accept a file that is unsigned, or not signed by a key of --trust.", names=("--allow-unsigned",))
]
SIGN = Option(
    "Sign with this SSH key, using ssh-keygen; give the .pub file if ssh-agent has the key.", "KEY", ("--sign",)
)
RefuseUnsafe = Annotated[
    bool,
    Option("Refuse pickles and code even if the recipe allowed them.", names=("--refuse-unsafe",)),
]


@dataclass(frozen=True, kw_only=True)
class BundleOptions:
    """Shows the sources, their licences and their sizes before the first download. Repeat the command to continue after
    an interruption.

    Example: lbx bundle bundle/longbench.toml bundle/leval.toml -o out

    Example: lbx bundle bundle/leval.toml --base bundle.json -o out
    """

    BRIEF: ClassVar[Sequence[str]] = ("output", "bundle_name", "base", "sign", "dry_run")

    recipes: Annotated[
        tuple[Path, ...],
        Argument("Recipes or model cards (TOML), combined into one bundle.", "RECIPE..."),
    ]
    output: Annotated[Path, OUTPUT.with_help("Folder for the archive.", metavar="DIR")] = Path()
    bundle_name: Annotated[
        str | None,
        Option("Name of the bundle; default: the joined names of the recipes.", "NAME"),
    ] = None
    hub: Annotated[
        str | None,
        Option("Address of a hub mirror to use instead of the public hub.", "URL"),
    ] = None
    mirror: Annotated[
        str | None,
        Option("Address of a mirror that serves the paths of https sources, to use instead of their hosts.", "URL"),
    ] = None
    work: Annotated[Path | None, Option("Folder for the downloads; default: inside -o.", "DIR")] = None
    base: Annotated[
        Path | None,
        Option(
            "Make a delta that leaves out the files of this bundle (its lbx/bundle.json, folder or archive).", "BUNDLE"
        ),
    ] = None
    images: Annotated[
        tuple[Path, ...],
        Option("A container image (OCI archive) to include.", "FILE", ("--include-image",)),
    ] = ()
    volume_size: Annotated[
        str | None,
        Option("Split the archive into volumes of this size, such as 650M or 2GiB; default: 4294967295 bytes.", "SIZE"),
    ] = None
    sign: Annotated[Path | None, SIGN] = None
    zstd: Annotated[bool, Option("Compress the archive, for slow links; weights shrink little.")] = False
    dry_run: Annotated[bool, Option("Show sources, licences and sizes without downloading.")] = False
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Example: lbx verify demo.tar --trust bundler.pub

    Example: lbx verify results.duckdb --trust lab.pub
    """

    archive: Annotated[
        Path,
        Argument(
            "NAME.tar, one of its volumes, NAME.SHA256SUMS, an unpacked bundle's folder, or a results file with "
            "an attestation.",
            "FILE",
        ),
    ]
    trust: Keys = None
    allow_unsigned: AllowUnsigned = False
    refuse_unsafe: RefuseUnsafe = False
    attestation: Annotated[
        Path | None,
        Option("Of a results file: what `lbx attest` wrote; default: RESULTS.attestation.jsonl.gz.", "FILE"),
    ] = None
    runs: Annotated[
        tuple[str, ...],
        RUN.with_help(f"Of a results file: only this run: {RUN_FORMS}. Can be repeated.", completion=""),
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
        OUTPUT.with_help("The attestation; default: RESULTS.attestation.jsonl.gz."),
    ] = None
    force: Annotated[bool, REPLACE] = False
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class UnpackOptions:
    """Example: lbx unpack demo.tar --trust bundler.pub --to demo"""

    archive: Annotated[Path, Argument("NAME.tar, one of its volumes, or NAME.SHA256SUMS.", "ARCHIVE")]
    to: Annotated[Path, Option("The new folder; it appears only when it is complete.", "DIR")]
    trust: Keys = None
    allow_unsigned: AllowUnsigned = False
    refuse_unsafe: RefuseUnsafe = False
    base: Annotated[
        Path | None,
        Option("For a delta: the unpacked bundle that it is based on.", "DIR"),
    ] = None
    as_json: AsJson = False
