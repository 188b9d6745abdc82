"""Bill of materials of a bundle in CycloneDX 1.6 JSON, for scanners and registers.

A source is a component: a dataset is ``data``, a model ``machine-learning-model``, an image ``container``; its files
are nested components, each with its SHA-256. https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

from lbx.bundle.making.outline import source_label

_HUB = "https://huggingface.co"
_COMMIT = re.compile(r"[0-9a-f]{40}")
# The hub writes SPDX identifiers in lower case; licences missing here are written as plain names.
_SPDX = {
    name.lower(): name
    for name in (
        *("AFL-3.0", "AGPL-3.0", "Apache-2.0", "Artistic-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0"),
        *("CC-BY-2.0", "CC-BY-2.5", "CC-BY-3.0", "CC-BY-4.0", "CC-BY-NC-2.0", "CC-BY-NC-3.0", "CC-BY-NC-4.0"),
        *("CC-BY-NC-ND-3.0", "CC-BY-NC-ND-4.0", "CC-BY-NC-SA-2.0", "CC-BY-NC-SA-3.0", "CC-BY-NC-SA-4.0"),
        *("CC-BY-ND-4.0", "CC-BY-SA-3.0", "CC-BY-SA-4.0", "ECL-2.0", "EPL-1.0", "EPL-2.0", "EUPL-1.1", "EUPL-1.2"),
        *("GPL-2.0", "GPL-3.0", "ISC", "LGPL-2.1", "LGPL-3.0", "MIT", "MPL-2.0", "MS-PL", "NCSA", "ODbL-1.0"),
        *("OFL-1.1", "OSL-3.0", "PDDL-1.0", "PostgreSQL", "Unlicense", "WTFPL", "Zlib"),
    )
}


def render_sbom(name: str, description: str, sources: Sequence[Mapping[str, Any]], epoch: int) -> bytes:
    """Render the bill of materials of a bundle. The bytes depend only on the arguments.

    Args:
        sources: sources in bundle.json, with ``files``.
        epoch: timestamp of the document, seconds since 1970.
    """
    body = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "tools": {"components": [{"type": "application", "name": "lbx"}]},
            "component": {"type": "data", "bom-ref": f"bundle:{name}", "name": name}
            | ({"description": description} if description else {}),
        },
        "components": [_component(source) for source in sources],
        "dependencies": [
            {"ref": f"bundle:{name}", "dependsOn": sorted(_ref(source) for source in sources)},
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    document = {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "serialNumber": f"urn:uuid:{serial}"}
    return (json.dumps({**document, **body}, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _ref(source: Mapping[str, Any]) -> str:
    return f"source:{source_label(source)}"


def _component(source: Mapping[str, Any]) -> dict[str, Any]:
    # Classify a source as dataset, model, image or file; files without a type by their extension
    if source["kind"] == "image":
        nature = "image"
    elif "type" in source:
        nature = str(source["type"])
    else:
        weights = any(str(file["path"]).endswith((".gguf", ".safetensors")) for file in source["files"])
        nature = "model" if weights else "file"
    kind = {"model": "machine-learning-model", "image": "container"}.get(nature, "data")
    group, _, name = source_name(source).rpartition("/")
    component: dict[str, Any] = {"type": kind, "bom-ref": _ref(source), "name": name}
    component |= {"group": group} if group else {}
    component |= {"version": source["commit"]} if source.get("commit") else {}
    component |= {"purl": purl} if (purl := _purl(source)) else {}
    component |= {"licenses": licences} if (licences := _licences(str(source.get("licence", "")))) else {}
    if kind == "data":
        component["data"] = [{"type": "dataset", "name": name}]
    if len(source["files"]) == 1:
        component["hashes"] = _hashes(source["files"][0])
    if address := _address(source):
        # A hash here covers the content at the address; the address of a repository is a web page.
        file_hashes = {"hashes": _hashes(source["files"][0])} if source["kind"] == "https" else {}
        component["externalReferences"] = [{"type": "distribution", "url": address, **file_hashes}]
    values = {"lbx:kind": source["kind"]}
    if source["kind"] == "hub":
        values |= {"lbx:revision": source["revision"], "lbx:gated": str(source["gated"]).lower()}
    properties = [{"name": key, "value": str(value)} for key, value in values.items()]
    component["properties"] = properties + [{"name": "lbx:allowed", "value": path} for path in source["allowed"]]
    component["components"] = [_file(file, _ref(source)) for file in source["files"]]
    return component


def source_name(source: Mapping[str, Any]) -> str:
    """Name of a source without the type."""
    return str(source.get("repo") or source["to"])


def _file(file: Mapping[str, Any], parent: str) -> dict[str, Any]:
    return {
        "type": "file",
        "bom-ref": f"{parent}#{file['path']}",
        "name": file["path"],
        "hashes": _hashes(file),
        "properties": [{"name": "lbx:size", "value": str(file["size"])}],
    }


def _hashes(file: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": file["sha256"]}]


def _licences(licence: str) -> list[dict[str, Any]]:
    """Convert the stated licences: SPDX identifiers where known, plain names otherwise."""
    names = [name for part in licence.split(",") if (name := part.strip())]
    return [{"license": {"id": _SPDX[name.lower()]} if name.lower() in _SPDX else {"name": name}} for name in names]


def _purl(source: Mapping[str, Any]) -> str:
    """Create a package URL for hub models, files of a GitHub commit, other pinned files and images, or "" otherwise."""
    if source["kind"] == "hub" and source["type"] == "model":
        return f"pkg:huggingface/{quote(source['resolved_repo'])}@{source['commit']}"
    if source["kind"] == "image" and source["images"]:
        name = source["to"].rpartition(".")[0] or source["to"]
        return f"pkg:oci/{quote(name.lower(), safe='')}@{quote(source['images'][0]['digest'], safe='')}"
    if source["kind"] != "https":
        return ""
    parts = urlsplit(source["url"])
    path = parts.path.strip("/").split("/")
    if parts.netloc == "raw.githubusercontent.com" and len(path) > 3 and _COMMIT.fullmatch(path[2]):
        return f"pkg:github/{path[0].lower()}/{path[1].lower()}@{path[2]}#{'/'.join(path[3:])}"
    sha256 = source["files"][0]["sha256"]
    return (
        f"pkg:generic/{quote(path[-1], safe='')}?checksum=sha256:{sha256}&download_url={quote(source['url'], safe='')}"
    )


def _address(source: Mapping[str, Any]) -> str:
    """Return the original address of a source, even if a mirror served it."""
    if source["kind"] == "https":
        return str(source["url"])
    if source["kind"] != "hub":
        return ""
    kind = "datasets/" if source["type"] == "dataset" else ""
    return f"{_HUB}/{kind}{source['resolved_repo']}/tree/{source['commit']}"
