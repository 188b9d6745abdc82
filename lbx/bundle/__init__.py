"""Bundles of data sets and models: archives are created from recipes, verified and unpacked.

An archive is a BagIt bag (RFC 8493) in a plain, deterministic tar; its payload is a Hugging Face hub cache without
links. An archive can be checked and unpacked with just ``sha256sum`` and ``tar``. Modules are imported lazily: code for
creating archives is not loaded to read them, and neither is loaded if a run only reads its unpacked bundle. This is the
only package that imports huggingface_hub, and only to fetch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lbx.bundle.disk import Progress as Progress
    from lbx.bundle.making.fetch import Retry as Retry
    from lbx.bundle.making.outline import Outline as Outline
    from lbx.bundle.making.pack import ArchiveFormat as ArchiveFormat
    from lbx.bundle.making.pack import BundleInputs as BundleInputs
    from lbx.bundle.making.pack import CreateResult as CreateResult
    from lbx.bundle.making.pack import create as create
    from lbx.bundle.making.pack import survey as survey
    from lbx.bundle.receiving.unpacking import UnpackResult as UnpackResult
    from lbx.bundle.receiving.unpacking import unpack as unpack
    from lbx.bundle.receiving.verification import VerifyReport as VerifyReport
    from lbx.bundle.receiving.verification import check_unchanged as check_unchanged
    from lbx.bundle.receiving.verification import verify as verify
    from lbx.bundle.receiving.verification import verify_folder as verify_folder
    from lbx.bundle.signing.trust import Trust as Trust
    from lbx.bundle.volumes import parse_volume_size as parse_volume_size

_WHERE = {
    "CreateResult": "making.pack",
    "Outline": "making.outline",
    "Progress": "disk",
    "Retry": "making.fetch",
    "Trust": "signing.trust",
    "UnpackResult": "receiving.unpacking",
    "VerifyReport": "receiving.verification",
    "BundleInputs": "making.pack",
    "ArchiveFormat": "making.pack",
    "check_unchanged": "receiving.verification",
    "create": "making.pack",
    "parse_volume_size": "volumes",
    "survey": "making.pack",
    "unpack": "receiving.unpacking",
    "verify": "receiving.verification",
    "verify_folder": "receiving.verification",
}
__all__ = [*_WHERE]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'lbx.bundle' has no attribute {name!r}")
    return getattr(importlib.import_module(f"lbx.bundle.{_WHERE[name]}"), name)
