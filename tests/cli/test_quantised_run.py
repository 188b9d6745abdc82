"""A folder of few bits, from the list of models to the stored run: its format is named at every step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.command_line import Lbx

pytest.importorskip("torch", reason="needs lbx[hf]")
pytest.importorskip("transformers", reason="needs lbx[hf]")

from tests.backends import quantised_folders as folders

DEMO = Path(__file__).parents[2] / "models" / "demo" / "hf"
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 24]}
FORMAT = "FP8"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder models/ with the demo's model in FP8, and the numbers that it means."""
    (tmp_path / "models").mkdir()
    folders.quantise_folder(DEMO, tmp_path / "models" / "eight", folders.float8_blocks(16, 24), FP8)
    return tmp_path


def test_a_run_names_the_format(lbx: Lbx, bundle: Path, models: Path) -> None:
    out = models / "r.duckdb"
    for name in ("eight", "eight-dense"):
        asked = ("-b", bundle, "-m", models / "models" / name, "-t", "needle/single_en", "--limit", 2, "-o", out)
        done = lbx.ok("run", *asked)
        told = " ".join(done.stderr.split())
        assert (f"eight is stored as {FORMAT}, and computed from its numbers in float32" in told) is (name == "eight")
        if name == "eight":
            assert told.index("is stored as") < told.index("of 1 task"), "before anything is asked"
            assert "activations are not rounded" in told
    query = (
        "SELECT model, settings->>'backend.stored_as' AS format, hardware->>'stored_as' AS said FROM runs ORDER BY 1"
    )
    quantised, dense = lbx.rows(out, query)
    assert (quantised["format"], dense["format"], dense["said"]) == (FORMAT, None, None)
    assert quantised["said"].startswith(f"{FORMAT}, and computed from its numbers in float32; activations are not")
    answers = lbx.rows(out, "SELECT DISTINCT sample_id, output, output_ids FROM generations")
    assert len(answers) == 2, "what the format means, asked as it is"


def test_doctor_and_models_name_it_unloaded(lbx: Lbx, models: Path) -> None:
    shutil.copytree(models / "models" / "eight", models / "models" / "broken_bytes")
    config = models / "models" / "broken_bytes" / "config.json"
    config.write_text(config.read_text().replace('"fp8"', '"made_up"'))
    listed = lbx("models", cwd=models)
    assert FORMAT in " ".join(listed.stdout.split())
    done = lbx("doctor", cwd=models)
    assert f"models/eight: hf, present, {FORMAT}" in " ".join(done.stdout.split())
    assert "made-up, a format that lbx does not support" in " ".join(done.stdout.split())
    found = json.loads(lbx("doctor", "--json", cwd=models).stdout)["models"]
    assert found["models/eight"] == f"hf, present, {FORMAT}"
    assert found["models/eight-dense"] == "hf, present"
