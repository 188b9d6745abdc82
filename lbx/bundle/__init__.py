"""Recipe to snapshot to archive; verify; unpack. The only room that imports huggingface_hub, and only to fetch.

An archive is a BagIt bag (RFC 8493) in a plain, deterministic tar; its payload is a Hugging Face hub cache
without links. ``sha256sum`` and ``tar`` alone can check and unpack it.
"""

from lbx.bundle.making.archive import Writing
from lbx.bundle.making.outline import Outline
from lbx.bundle.making.pack import CreateResult, Where, create, survey
from lbx.bundle.making.request import RequestResult, write_request
from lbx.bundle.making.retry import Retry
from lbx.bundle.progress import Progress
from lbx.bundle.receiving.check import VerifyReport, verify, verify_folder
from lbx.bundle.receiving.extract import UnpackResult, unpack
from lbx.bundle.receiving.unchanged import check_unchanged
from lbx.bundle.signing.trust import Trust
from lbx.bundle.volumes import parse_volume_size

__all__ = [
    "CreateResult",
    "Outline",
    "Progress",
    "RequestResult",
    "Retry",
    "Trust",
    "UnpackResult",
    "VerifyReport",
    "Where",
    "Writing",
    "check_unchanged",
    "create",
    "parse_volume_size",
    "survey",
    "unpack",
    "verify",
    "verify_folder",
    "write_request",
]
