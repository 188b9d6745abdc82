"""The bill of materials: what a scanner finds in it, and that it is one."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbx.bundle import CreateResult
from lbx.bundle.making.sbom import render_sbom
from tests.bundle.hubserver import HubServer, commit_of
from tests.bundle.small_hub import DATASET, MODEL
from tests.bundle.test_create import PROMPT
from tests.bundle.test_local_sources import path_source

Make = Callable[..., CreateResult]


def sbom_of(archive: Path) -> dict[str, Any]:
    with tarfile.open(archive) as tar:
        content = tar.extractfile("demo/lbx/sbom.cdx.json")
        assert content is not None
        loaded: dict[str, Any] = json.load(content)
    return loaded


@pytest.fixture
def made(bundle: Make, hub: HubServer, tmp_path: Path) -> CreateResult:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    (hub.hub / "models/org/model/.hub.json").write_text(
        json.dumps({"cardData": {"license": ["apache-2.0", "odd one"]}})
    )
    text = MODEL + 'allow = ["config.json"]\n' + DATASET + PROMPT + path_source("m.gguf", to="models/m.gguf")
    (hub.hub / "models/org/model/config.json").write_text('{"auto_map": {"AutoModel": "m.M"}}')
    return bundle(text)


def test_every_source_is_a_component_and_every_file_has_its_hash(made: CreateResult, hub: HubServer) -> None:
    sbom = sbom_of(made.archive)
    model, data, prompt, local = sbom["components"]
    commit = commit_of(hub.hub / "models/org/model")
    assert (model["type"], model["group"], model["name"]) == ("machine-learning-model", "org", "model")
    assert (model["version"], model["purl"]) == (commit, f"pkg:huggingface/org/model@{commit}")
    assert model["licenses"] == [{"license": {"id": "Apache-2.0"}}, {"license": {"name": "odd one"}}]
    assert {"name": "lbx:gated", "value": "false"} in model["properties"]
    assert [p["value"].rpartition("/")[2] for p in model["properties"] if p["name"] == "lbx:allowed"] == ["config.json"]
    (address,) = data["externalReferences"]
    data_commit = commit_of(hub.hub / "datasets/org/data")
    assert address["url"] == f"https://huggingface.co/datasets/org/data/tree/{data_commit}"
    assert (data["type"], data["data"]) == ("data", [{"type": "dataset", "name": "data"}])
    sha256 = hashlib.sha256(b"Read this.").hexdigest()
    assert prompt["hashes"] == prompt["externalReferences"][0]["hashes"] == [{"alg": "SHA-256", "content": sha256}]
    assert prompt["purl"].startswith(f"pkg:generic/prompt.txt?checksum=sha256:{sha256}&download_url=https%3A%2F%2F")
    assert (local["type"], local["name"]) == ("machine-learning-model", "m.gguf")
    listed = {f["name"]: f["hashes"][0]["content"] for c in sbom["components"] for f in c["components"]}
    assert listed == {file["path"]: file["sha256"] for source in made.sources for file in source["files"]}


def test_a_pinned_file_of_a_github_commit_has_its_package_url() -> None:
    commit = "2e00731f8d0bff23dc4325161044d0ed8af94c1e"
    url = f"https://raw.githubusercontent.com/THUDM/LongBench/{commit}/LongBench/config/a.json"
    file = {"path": "data/files/a.json", "size": 1, "sha256": "0" * 64}
    source = {"kind": "https", "url": url, "to": "a.json", "licence": "MIT", "allowed": [], "files": [file]}
    (component,) = json.loads(render_sbom("x", "", [source], 0))["components"]
    assert component["purl"] == f"pkg:github/thudm/longbench@{commit}#LongBench/config/a.json"


def test_the_document_depends_on_its_arguments_alone(made: CreateResult) -> None:
    first = render_sbom("demo", "", made.sources, 0)
    assert json.loads(first) == sbom_of(made.archive)
    assert render_sbom("demo", "", made.sources, 0) == first
    other = json.loads(render_sbom("demo", "", made.sources, 86400))
    assert other["metadata"]["timestamp"] == "1970-01-02T00:00:00Z"
    assert other["serialNumber"] != json.loads(first)["serialNumber"]


def test_references_are_unique_and_lead_somewhere(made: CreateResult) -> None:
    sbom = sbom_of(made.archive)
    parts = [
        sbom["metadata"]["component"],
        *sbom["components"],
        *(f for c in sbom["components"] for f in c["components"]),
    ]
    references = [part["bom-ref"] for part in parts]
    assert len(set(references)) == len(references)
    (dependency,) = sbom["dependencies"]
    assert {dependency["ref"], *dependency["dependsOn"]} <= set(references)


def test_it_is_valid_cyclonedx(made: CreateResult) -> None:
    """Held against the schema that the CycloneDX project publishes, as its own library ships it."""
    pytest.importorskip("cyclonedx", reason="cyclonedx-python-lib is not installed")
    pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = json.dumps(sbom_of(made.archive))
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    broken = text.replace("machine-learning-model", "model")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(broken) is not None
