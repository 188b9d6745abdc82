"""Recipe to snapshot to archive; verify; unpack. The only room that imports huggingface_hub, and only to fetch.

An archive is a BagIt bag (RFC 8493) in a plain, deterministic tar; its payload is a Hugging Face hub cache
without links. ``sha256sum`` and ``tar`` alone can check and unpack it.
"""

from lbx.bundle.check import VerifyReport, verify, verify_folder
from lbx.bundle.extract import UnpackResult, unpack
from lbx.bundle.pack import CreateResult, create
from lbx.bundle.progress import Progress
from lbx.bundle.retry import Retry

__all__ = [
    "CreateResult",
    "Progress",
    "Retry",
    "UnpackResult",
    "VerifyReport",
    "create",
    "unpack",
    "verify",
    "verify_folder",
]
