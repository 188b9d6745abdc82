"""``lbx models``, and what a name that is none is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import gguf
import pytest

from lbx.backends.weights import resolve_model
from lbx.base.errors import BackendError, UsageError
from tests.command_line import Lbx, fails
from tests.gguf_copy import gguf_copy

DEMO = Path(__file__).parents[2] / "models" / "demo" / "hf"


def write_gguf(path: Path, window: int) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(window)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


@pytest.fixture(scope="module")
def folder(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder as people have it: a bundle with models, cards and weights beside it, and other things."""
    root = tmp_path_factory.mktemp("work")
    shutil.copytree(bundle, root / "long")
    shutil.copytree(DEMO, root / "long/data/files/tiny")
    repo = root / "long/data/hub/models--org--small"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs/main").write_text("c0ffee")
    shutil.copytree(DEMO, repo / "snapshots/c0ffee")
    (root / "models").mkdir()
    write_gguf(root / "models/some-q4.gguf", 4096)
    (root / "models/of-bundle.toml").write_text('backend = "hf"\n[weights]\nbundle = "tiny"\n')
    (root / "models/gone.toml").write_text('backend = "llamacpp"\ncontext_window = 99\n[weights]\npath = "gone.gguf"\n')
    (root / "models/broken.toml").write_text('backend = "lamacpp"\n')
    for part in (1, 2):
        write_gguf(root / f"split-0000{part}-of-00002.gguf", 8192)
    (root / "served.toml").write_text(
        'backend = "endpoint"\n[options]\nurl = "http://127.0.0.1:9/v1"\napi = "chat"\nmodel = "m"\n'
    )
    (root / "vectors.toml").write_text('backend = "sentence_transformers"\n[weights]\nrepo = "org/vectors"\n')
    (root / "recipe.toml").write_text('name = "long"\n')
    return root


def test_what_can_be_named(lbx: Lbx, folder: Path) -> None:
    found = {one["name"]: one for one in json.loads(lbx("models", "--bundle", "long", "--json", cwd=folder).stdout)}
    shown = {
        name: (one["kind"], one["backend"], one["embeds"], one["context_window"], one["files_exist"])
        for name, one in found.items()
    }
    window = json.loads((DEMO / "config.json").read_text())["max_position_embeddings"]
    assert shown == {
        "broken": ("card", "", False, None, False),
        "gone": ("card", "llamacpp", False, 99, False),
        "of-bundle": ("card", "hf", False, window, True),
        "models/some-q4.gguf": ("weights", "llamacpp", False, 4096, True),
        "served.toml": ("card", "endpoint", False, None, None),
        "split-00001-of-00002.gguf": ("weights", "llamacpp", False, 8192, True),
        "vectors.toml": ("card", "sentence_transformers", True, None, False),
        "org/small": ("weights", "hf", False, window, True),
        "long/data/files/tiny": ("weights", "hf", False, window, True),
    }
    assert found["of-bundle"]["size_bytes"] > (DEMO / "model.safetensors").stat().st_size
    parts = sum(path.stat().st_size for path in folder.glob("split-*.gguf"))
    assert found["split-00001-of-00002.gguf"]["size_bytes"] == parts
    assert "lamacpp" in found["broken"]["problem"]


def test_what_is_listed_can_be_named(lbx: Lbx, folder: Path) -> None:
    for one in json.loads(lbx("models", "--bundle", "long", "--json", cwd=folder).stdout):
        if one["files_exist"] and one["backend"] == "hf":
            lbx.ok("plan", "-b", "long", "-m", one["name"], "-t", "needle/single_en", "--limit", 1,
                "--no-measure-speed", cwd=folder,
            )  # fmt: skip


def test_for_people(lbx: Lbx, folder: Path, tmp_path: Path) -> None:
    done = lbx.ok("models", cwd=folder)
    assert "models/some-q4.gguf" in done.stdout and "4,096" in done.stdout and "on a server" in done.stdout
    said = " ".join(done.stderr.split())
    assert "gone: The weights of gone are missing: models/gone.gguf does not exist." in said
    assert "Pass --bundle DIR: these models need weights from a bundle: of-bundle, vectors.toml." in said
    given = lbx.ok("models", "--bundle", "long", cwd=folder).stderr.split("\n")
    assert given.count("Without weights in the bundle long (add the source to a recipe): "
        "vectors.toml (org/vectors).") == 1, given  # fmt: skip
    assert not any("does not contain" in line for line in given)
    empty = lbx("models", cwd=tmp_path)
    assert (empty.returncode, empty.stdout) == (0, "")
    assert "No models found" in empty.stderr
    assert lbx("models", "--json", cwd=tmp_path).stdout.strip() == "[]"
    fails(lbx("models", "--bundle", "nowhere", cwd=tmp_path), 1, "Bundle folder nowhere does not exist.")


def test_what_a_card_says_whose_weights_are_in_no_bundle(lbx: Lbx, folder: Path) -> None:
    facts = json.loads(lbx("doctor", "--json", cwd=folder).stdout)
    assert facts["models"]["of-bundle"] == "in a bundle: tiny"
    run = ("plan", "-m", "of-bundle", "-b", "long", "-t", "needle/single_en", "--limit", 1, "--no-measure-speed")
    assert lbx(*run, cwd=folder).returncode == 0


def test_the_help_says_what_is_listed_with_a_bundle(lbx: Lbx, folder: Path) -> None:
    """The cards of models/ of this folder are listed in any case."""
    words = " ".join(lbx("models", "--help").stdout.replace("│", " ").split())
    assert (
        "List the weights of this bundle and the cards next to it, not this folder's; ./models is always listed."
        in words
    )


@pytest.mark.parametrize("name", ["vllm", "sglang", "openai", "tgi", "llamacp"])
def test_a_server_is_no_backend_but_a_card_for_one_is(lbx: Lbx, folder: Path, name: str) -> None:
    done = lbx("plan", "-b", "long", "-m", "of-bundle", "--backend", name, "-t", "needle", cwd=folder)
    fails(done, 2, f"Unknown backend '{name}'.", 'a card with backend = "endpoint" (docs/models.md)')
    assert ("Did you mean llamacpp?" in " ".join(done.stderr.split())) == (name == "llamacp")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nope.gguf", ("The file nope.gguf does not exist.", "lbx models --bundle long")),
        ("some-q8.gguf", ("The file some-q8.gguf does not exist.", "Did you mean models/some-q4.gguf?")),
        ("models/some-q5.gguf", ("The file models/some-q5.gguf does not exist.", "Did you mean models/some-q4.gguf?")),
        (
            "org/smal",
            ("The file org/smal does not exist, and the bundle has no repository with this name.", "mean org/small"),
        ),
        ("nothere.gguf", ("The file nothere.gguf does not exist. List the names that --model accepts:",)),
        ("some-q4", ("Model some-q4 not found:", "Did you mean models/some-q4.gguf?")),
        ("of-bundel", ("models/of-bundel.toml does not exist.", "Did you mean of-bundle?")),
    ],
)
def test_a_name_that_is_none(lbx: Lbx, folder: Path, name: str, words: tuple[str, ...]) -> None:
    fails(lbx("run", "-b", "long", "-m", name, "-t", "needle", "-o", "r.duckdb", cwd=folder), 2, *words)


@pytest.mark.parametrize("kind", ["hf", "llamacpp"])
def test_a_model_without_a_chat_template_is_named_before_anything_is_asked(
    kind: str, lbx: Lbx, bundle: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Asked raw, a model that was trained to chat scores as if it knew nothing; nothing else would show it."""
    pytest.importorskip("torch" if kind == "hf" else "llama_cpp", reason="needs lbx[llama,hf]")
    place = DEMO if kind == "hf" else request.getfixturevalue("demo_gguf")
    asked = ("--bundle", bundle, "--model", place, "--tasks", "needle/single_en", "--limit", "1")
    results = tmp_path / "r.duckdb"
    done = lbx.ok("run", *asked, "-o", results)
    told = " ".join(done.stderr.split())
    name = Path(place).stem
    assert told.index(f"{name} has no chat template: its prompts are sent without one") < told.index("of 1 task")
    assert f"{name} has no chat template" in " ".join(lbx("prompts", *asked).stderr.split())
    (row,) = json.loads(lbx("report", results, "task_scores", "--format", "json").stdout)
    assert row["mode"] == "no chat template"
    meant = lbx("run", *asked, "--no-chat", "-o", tmp_path / "meant.duckdb")
    assert "no chat template" not in meant.stderr
    (row,) = json.loads(lbx("report", tmp_path / "meant.duckdb", "task_scores", "--format", "json").stdout)
    assert row["mode"] == "no chat template"


def test_a_model_with_named_templates_only_is_refused(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    """As Command R's, whose first template asks for documents or tools."""
    pytest.importorskip("torch", reason="needs lbx[hf]")
    folder = Path(shutil.copytree(DEMO, tmp_path / "m"))
    (folder / "additional_chat_templates").mkdir()
    template = "TOOLS {% for m in messages %}{{ m.content }}{% endfor %}"
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text(template)
    asked = ("--bundle", bundle, "--tasks", "needle/single_en", "--limit", "1")
    words = ("m has no default chat template, only named ones: tool_use.", "template_file under [chat]", "--no-chat")
    for command in (("prompts",), ("plan",), ("run", "-o", tmp_path / "r.duckdb")):
        fails(lbx(*command, *asked, "--model", folder), 2, *words)
    assert not (tmp_path / "r.duckdb").exists()
    assert "TOOLS" not in lbx.ok("prompts", *asked, "--model", folder, "--no-chat").stdout
    card = tmp_path / "card.toml"
    card.write_text(
        'backend = "hf"\n[weights]\npath = "m"\n[chat]\ntemplate_file = "m/additional_chat_templates/tool_use.jinja"\n'
    )
    assert "TOOLS" in lbx.ok("prompts", *asked, "--model", card).stdout


def test_a_model_with_an_incomplete_tokenizer_is_announced_and_marked(
    lbx: Lbx, bundle: Path, demo_gguf: Path, tmp_path: Path
) -> None:
    pytest.importorskip("llama_cpp", reason="needs lbx[llama]")
    model = gguf_copy(demo_gguf, tmp_path / "old.gguf", without=["tokenizer.ggml.pre", "tokenizer.ggml.eos_token_id"])
    asked = ("--bundle", bundle, "--model", model, "--tasks", "needle/single_en", "--limit", "1", "--no-chat")
    said = " ".join(lbx.ok("run", *asked, "-o", tmp_path / "r.duckdb").stderr.split())
    said += " ".join(lbx.ok("prompts", *asked).stderr.split())
    for words in ("does not name its pre-tokenizer (tokenizer.ggml.pre)", "lacks tokenizer.ggml.eos_token_id"):
        assert said.count(words) == 2, said
    (row,) = json.loads(lbx("report", tmp_path / "r.duckdb", "task_scores", "--format", "json").stdout)
    assert row["mode"] == "no chat template incomplete tokenizer"


def test_a_link_to_nothing_is_a_model_that_is_not_there(
    lbx: Lbx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the disk with the weights was taken away. Once all that lists models ended in a RecursionError."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models/gone.gguf").symlink_to("nowhere.gguf")
    done = lbx("models", cwd=tmp_path)
    cause = "models/gone.gguf is a link to nowhere.gguf, which does not exist."
    assert done.returncode == 0 and cause in done.stderr, done.stderr
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BackendError, match=cause):
        resolve_model("models/gone.gguf")
    with pytest.raises(UsageError, match="Model other not found") as refused:
        resolve_model("other")
    assert refused.value.fix == "List the names that --model accepts:"


def hub_cache(folder: Path, files: Path) -> Path:
    """A snapshot in a cache of the hub, whose files are links to blobs."""
    repo = folder / "hub/models--org--small--it"
    snapshot = repo / "snapshots" / ("c0ffee00" * 5)
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    for number, file in enumerate(sorted(files.iterdir())):
        shutil.copy(file, repo / f"blobs/{number}")
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    return snapshot


def test_a_model_in_a_hub_cache_is_named_by_its_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = hub_cache(tmp_path, DEMO)
    assert resolve_model(str(snapshot)).name == "org/small--it"
    monkeypatch.chdir(snapshot)
    assert resolve_model(".").name == "org/small--it"
    monkeypatch.chdir(snapshot.parent)
    assert resolve_model(f"{snapshot.name}/").name == "org/small--it"
    with pytest.raises(UsageError, match=f"contains no model: .* Pass one of its snapshots: {snapshot}"):
        resolve_model(str(snapshot.parents[1]))


def test_a_snapshot_without_its_blobs_is_refused_by_that_cause(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    """A cache whose snapshots were copied without what their links lead to."""
    snapshot = hub_cache(tmp_path, DEMO)
    blob = (snapshot / "model.safetensors").readlink()
    card = tmp_path / "card.toml"
    card.write_text(f'backend = "hf"\n[weights]\npath = "{snapshot}"\n')
    (snapshot / blob).unlink()
    asked = ("-b", bundle, "-t", "needle/single_en", "-o", tmp_path / "r.duckdb")
    for model in (snapshot, card):
        fails(
            lbx("run", *asked, "-m", model),
            1,
            f"model.safetensors is a link to {blob}, which does not exist.",
            "cp -rL",
        )
    shutil.rmtree(snapshot.parents[1] / "blobs")
    fails(lbx("run", *asked, "-m", snapshot), 1, "config.json is a link to ../../blobs/", "which does not exist.")
    listed = lbx("models", cwd=snapshot.parent)
    assert f"{snapshot.name}/config.json is a link to" in listed.stderr, listed.stderr


def test_a_later_part_of_a_gguf_model_names_the_first(lbx: Lbx, bundle: Path, tmp_path: Path) -> None:
    for part in (1, 2, 3):
        write_gguf(tmp_path / f"m-0000{part}-of-00003.gguf", 8192)
    card = tmp_path / "card.toml"
    card.write_text('backend = "llamacpp"\n[weights]\npath = "m-00003-of-00003.gguf"\n')
    for model in (tmp_path / "m-00002-of-00003.gguf", card):
        done = lbx("run", "-b", bundle, "-t", "needle/single_en", "-o", tmp_path / "r.duckdb", "-m", model)
        fails(done, 1, "of 3 of a model", f"Use its first part: {tmp_path}/m-00001-of-00003.gguf.")


def test_a_window_beyond_the_models_is_named_where_models_are_listed(lbx: Lbx, tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", 4096)
    text = 'backend = "llamacpp"\ncontext_window = 9999\n[weights]\npath = "m.gguf"\n'
    (tmp_path / "wide.toml").write_text(text)
    (tmp_path / "stretched.toml").write_text(f"{text}[options]\nrope_scaling = 'yarn'\n")
    done = lbx("models", cwd=tmp_path)
    assert "wide.toml: The files of wide declare a context of 4096 tokens; a context window of 9999" in done.stderr
    assert "stretched" not in done.stderr


def test_a_file_that_holds_no_model_says_so(lbx: Lbx, tmp_path: Path) -> None:
    """Empty, a web page, and the beginning of a download."""
    models = tmp_path / "models"
    models.mkdir()
    write_gguf(models / "whole.gguf", 4096)
    (models / "empty.gguf").touch()
    (models / "page.gguf").write_text("<!doctype html><title>404</title>")
    (models / "cut.gguf").write_bytes((models / "whole.gguf").read_bytes()[:60])
    found = {one["name"]: one for one in json.loads(lbx("models", "--json", cwd=tmp_path).stdout)}
    problems = {Path(name).stem: (one["files_exist"], one["problem"]) for name, one in found.items()}
    assert problems == {
        "whole": (True, ""),
        "empty": (False, "models/empty.gguf is not a GGUF file: it is empty."),
        "page": (False, "models/page.gguf is not a GGUF file: it begins with b'<!do'."),
        "cut": (False, "The header of models/cut.gguf cannot be read."),
    }
