"""`lbx run --serve` starts, uses, restarts and stops a server, whose command is part of the run's identity."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from lbx.backends.serving import process
from lbx.options.run_spec import RunSpec
from tests.command_line import Lbx, fails
from tests.serving.served_parts import SERVER, processes_of, serve, server_log, sessions

SAMPLES = 12


def run_words(bundle: Path, card: Path, results: Path, command: str, *more: object) -> list[object]:
    return ["run", "--bundle", bundle, "--model", card, "--tasks", "needle", "--serve", command, "-o", results, *more]


def test_a_server_is_started_used_and_stopped(lbx: Lbx, bundle: Path, card: Path, tmp_path: Path) -> None:
    results = tmp_path / "r.duckdb"
    done = lbx.ok(*run_words(bundle, card, results, serve("--orphan")))
    assert f"{SAMPLES} answered, 0 failed" in done.stdout
    assert "but to the model server 127.0.0.1:" in done.stderr
    assert not processes_of(results)
    assert "offline 1" in server_log(results)
    (row,) = lbx.rows(results, "SELECT settings, hardware, backend_version FROM runs")
    settings, hardware = json.loads(row["settings"]), json.loads(row["hardware"])
    assert settings["serve"].endswith("small_server.py --port '{port}' --orphan")
    assert settings["serve_files"].keys() == {"small_server.py"}
    assert str(SERVER.parent) not in row["settings"]
    assert hardware["url"] == "http://{host}:{port}/v1"
    assert row["backend_version"] == settings["serve_version"] == "vllm 1.2.3"

    again = lbx.ok(*run_words(bundle, card, results, serve("--orphan")))
    assert f"0 answered, 0 failed, {SAMPLES} already done" in again.stdout, "another port is the same run"
    other = lbx.ok(*run_words(bundle, card, results, serve("--orphan", "--answer", "eight")))
    assert f"{SAMPLES} answered" in other.stdout, "another option is another run"


def test_the_model_in_the_command_identifies_the_run(lbx: Lbx, bundle: Path, card: Path, tmp_path: Path) -> None:
    answered = []
    for name, weights in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        (tmp_path / name).mkdir()
        model = tmp_path / name / "m.gguf"
        model.write_bytes(weights)
        done = lbx.ok(
            *run_words(bundle, card, tmp_path / "r.duckdb", serve(f"--model={model}"), "--limit", 1, "--json")
        )
        answered.append(json.loads(done.stdout)["answered"])
    assert answered == [3, 0, 3], "a copy elsewhere is the same model"


def test_a_server_that_dies_early_is_shown_with_the_end_of_its_log(
    lbx: Lbx, bundle: Path, card: Path, tmp_path: Path
) -> None:
    results = tmp_path / "r.duckdb"
    done = lbx(*run_words(bundle, card, results, serve("--fail", "CUDA out of \x1b]0;memory")))
    fails(done, 1, "ended with exit code 1 before it was ready", "offline 1 | CUDA out of \\x1b]0;memory", "tail -n 50")
    assert "\x1b" not in done.stderr + server_log(results)
    assert not processes_of(results)


def test_a_server_that_is_never_ready_is_stopped(lbx: Lbx, bundle: Path, card: Path, tmp_path: Path) -> None:
    results = tmp_path / "r.duckdb"
    done = lbx(*run_words(bundle, card, results, serve("--ready-after", 60), "--serve-timeout", 2))
    fails(done, 1, "was not ready after 2 s", "offline 1", "raise --serve-timeout", "tail -n 50")
    assert not processes_of(results)


def test_a_port_in_use_is_refused(lbx: Lbx, bundle: Path, card: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = lbx(*run_words(bundle, card, tmp_path / "r.duckdb", serve(port=str(port))))
    fails(done, 2, f"the port {port} is in use", "{port}")


def test_two_runs_do_not_share_a_port_before_their_servers_listen() -> None:
    reservation, port = process._reserve_port(None, "127.0.0.1")
    with reservation, pytest.raises(process.UsageError, match="in use"):  # type: ignore[attr-defined]
        process._reserve_port(port, "127.0.0.1")
    process._reserve_port(port, "127.0.0.1")[0].close()


def test_a_server_that_crashes_is_restarted_and_asked_again(
    lbx: Lbx, bundle: Path, card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_GRACE_S", 0.5)
    results = tmp_path / "r.duckdb"
    command = serve("--crash-after", 5, "--crash-once", tmp_path / "crashed", "--orphan", "--stubborn")
    done = lbx(*run_words(bundle, card, results, command))
    assert f"{SAMPLES} answered, 0 failed" in done.stdout, done.stderr
    assert "was ended by SIGKILL" in done.stderr
    assert "Restart 1 of at most 5" in done.stderr
    (session,) = sessions(lbx, results)
    (restart,) = session["hardware"]["server_restarts"]  # type: ignore[index]
    assert "SIGKILL" in restart["exit"]
    assert server_log(results).count("\n== ") == 1
    assert not processes_of(results)


def test_a_question_that_crashes_the_server_twice_fails_and_the_run_goes_on(
    lbx: Lbx, bundle: Path, card: Path, tmp_path: Path
) -> None:
    results = tmp_path / "r.duckdb"
    done = lbx(*run_words(bundle, card, results, serve("--crash-on", tmp_path / "question")))
    assert "1 failed" in done.stdout, done.stderr
    assert f"{SAMPLES - 1} answered" in done.stdout
    assert done.returncode == 3
    (failure,) = lbx.rows(results, "SELECT error FROM generations WHERE error IS NOT NULL")
    assert "crashed 2 times" in failure["error"]


def test_a_server_that_always_crashes_ends_the_run_with_its_answers_safe(
    lbx: Lbx, bundle: Path, card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MOST_RESTARTS", 1)
    results = tmp_path / "r.duckdb"
    done = lbx(*run_words(bundle, card, results, serve("--crash-after", 3)))
    fails(done, 1, "SIGKILL", "after 1 restarts", "the engine has died", "Run the same command again")
    (count,) = lbx.rows(results, "SELECT count(*) AS n FROM generations WHERE error IS NULL")
    assert count["n"] == 4
    assert not processes_of(results)


def test_plans_start_no_server(lbx: Lbx, bundle: Path, card: Path, tmp_path: Path) -> None:
    words = ["--bundle", bundle, "--model", card, "--tasks", "needle", "--serve", "no-such-program --port {port}"]
    planned = lbx.ok("plan", *words)
    assert "does not measure its speed" in planned.stderr
    assert lbx("prompts", *words).returncode == 0
    shown = lbx.ok("submit", "slurm", *words, "--dry-run", "--shards", 2, "-o", tmp_path / "job")
    assert '"serve": "no-such-program --port \'{port}\'"' in shown.stdout
    fails(lbx("run", *words, "-o", tmp_path / "r.duckdb"), 2, "no-such-program was not found")


def test_only_served_models_can_be_served(lbx: Lbx, bundle: Path, card: Path, tmp_path: Path) -> None:
    results = tmp_path / "r.duckdb"
    table = tmp_path / "answers.jsonl"
    table.write_text('{"key": "a/b/c", "text": "x"}\n')
    fails(lbx(*run_words(bundle, table, results, serve())), 2, "--serve starts a model server", "scripted", "endpoint")
    card.write_text('backend = "endpoint"\n[options]\nurl = "http://127.0.0.1:1/v1"\n')
    fails(lbx(*run_words(bundle, card, results, serve())), 2, "the url http://127.0.0.1:1/v1", "Remove url")
    card.write_text('backend = "endpoint"\n')
    words = ["run", "--bundle", bundle, "--model", card, "--tasks", "needle", "-o", results]
    fails(lbx(*words), 2, "has no url of a server", "--serve")
    fails(lbx(*words, "--serve", serve(), "--workers", 2), 2, "--workers", "concurrency")


def test_a_spec_keeps_the_command_with_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.gguf").write_bytes(b"")
    (tmp_path / "serve").mkdir()
    spec = RunSpec(bundle="b", model="m", tasks="t", serve="vllm serve m.gguf --port {port} --x='{a: 1}'")
    assert spec.with_absolute_paths().serve == f"vllm serve {tmp_path}/m.gguf --port '{{port}}' '--x={{a: 1}}'"
    assert RunSpec.from_json(spec.to_json(), "x") is not None
