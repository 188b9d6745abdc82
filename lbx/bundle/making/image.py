"""A container image that travels with a bundle: what an OCI archive says of itself."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.inputs import open_input

_INDEX_LIMIT = 4 << 20
_NAME = "org.opencontainers.image.ref.name"


def read_image(path: Path) -> list[dict[str, str]]:
    """The images in an OCI archive, by its index; nothing but that small file is read into memory.

    Returns:
        [{"name": "localhost/lbx:latest", "digest": "sha256:..."}], name "" where the index gives none.

    Raises:
        UsageError: there is no file, or it is not an OCI archive (a plain tar with oci-layout and index.json).
    """
    config: dict[str, Any] = {}
    try:
        with open_input(path) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name in ("oci-layout", "index.json") and member.isfile() and member.size <= _INDEX_LIMIT:
                    content = tar.extractfile(member)
                    assert content is not None
                    config[name] = json.load(content)
        manifests = config["index.json"]["manifests"]
        config["oci-layout"]["imageLayoutVersion"]
        images = [{"name": str((m.get("annotations") or {}).get(_NAME, "")), "digest": m["digest"]} for m in manifests]
    except OSError as exc:
        raise UsageError(f"The image {path} cannot be read: {exc.strerror}.", fix="Check the path.") from exc
    except (tarfile.TarError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise UsageError(
            f"{path} is not an OCI archive ({type(exc).__name__}: {exc}).",
            fix="Save the image in that format.",
            command=as_command("podman", "save", "--format", "oci-archive", "-o", path, "IMAGE"),
        ) from exc
    if not images or not all(isinstance(image["digest"], str) for image in images):
        raise UsageError(f"{path} holds no image.", fix="Save it again.")
    return images
