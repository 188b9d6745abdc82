"""The value of --serve: what is a command, and its address."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lbx.backends.serving.command import ServerCommand, server_settings
from lbx.base.errors import UsageError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no command"),
        ("   ", "has no command"),
        ("'' --port {port}", "has no command"),
        ("vllm serve 'm --port {port}", "cannot be read"),
        ("vllm serve m", "names no port"),
        ("vllm serve m --port", "not a port"),
        ("vllm serve m --port 70000", "not a port"),
        ("vllm serve m --port ٣٠٠٠", "not a port"),
        ("vllm serve m --port 1 --port 2", "several ports: 1 and 2"),
        ("vllm serve m --port 1 --metrics {port}", "several ports: {port} and 1"),
        ("vllm serve m --host a --host=b --port 1", "several hosts: a and b"),
        ("vllm serve m --port {port} | tee log", r"shell syntax: '\|'"),
        ("vllm serve m --port {port} && true", "shell syntax: '&'"),
        ("vllm serve m --port {port}; true", "shell syntax: ';'"),
        ("vllm serve m --port {port} > log", "shell syntax: '>'"),
        ("vllm serve m --port {port} &", "shell syntax: '&'"),
        ("vllm serve $HOME/m --port {port}", r"shell syntax: '\$'"),
        ('vllm serve "$HOME/m" --port {port}', r"shell syntax: '\$'"),
        ("vllm serve `pwd` --port {port}", "shell syntax: '`'"),
        ("vllm serve ~/m --port {port}", "shell syntax: '~'"),
        ("vllm serve m*.gguf --port {port}", r"shell syntax: '\*'"),
        ("module load vllm\nvllm serve m --port {port}", "shell syntax: a line break"),
        ("CUDA_VISIBLE_DEVICES=0 vllm serve m --port {port}", "Begin with env: .*env CUDA"),
        ("vllm serve m --api-key abc --port {port}", "--api-key.*VLLM_API_KEY"),
        ("vllm serve m --api-key=abc --port {port}", "--api-key"),
        ("x " * 2000 + "--port {port}", "2,002 words"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        ServerCommand.parse(text)
    assert "abc" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("vllm serve m --port {port}", "http://127.0.0.1:5/v1"),
        ("vllm serve m --port 5", "http://127.0.0.1:5/v1"),
        ("vllm serve m --host 0.0.0.0 --port=5", "http://127.0.0.1:5/v1"),
        ("vllm serve m --host ::1 --port 5", "http://[::1]:5/v1"),
        ("vllm serve m --host localhost --port 5", "http://localhost:5/v1"),
        ("srun ./serve.sh {host} {port}", f"http://{socket.gethostname()}:5/v1"),
        ("srun vllm serve m --host 127.0.0.1 --port {port} --master-addr {host}", "http://127.0.0.1:5/v1"),
        ("vllm serve m \\\n --port {port}", "http://127.0.0.1:5/v1"),
        ("srun bash -c 'vllm serve m --port {port} --node-rank $SLURM_NODEID'", "http://127.0.0.1:5/v1"),
        ("""vllm serve m --port {port} --x '{"a": "b|c"}'""", "http://127.0.0.1:5/v1"),
    ],
)
def test_read(text: str, url: str) -> None:
    command = ServerCommand.parse(text)
    assert command.url(command.port or 5) == url
    assert not any("{port}" in word or "{host}" in word for word in command.fill_in(5))


def test_json_in_a_command_is_kept() -> None:
    words = ServerCommand.parse("""vllm serve m --port {port} --rope-scaling '{"factor": 4.0}'""").fill_in(5)
    assert words[-1] == '{"factor": 4.0}'


def test_the_identity_has_contents_in_place_of_folders(tmp_path: Path) -> None:
    settings = []
    for folder, port, host in (("a", "{port}", "127.0.0.1"), ("b", "8000", "node7")):
        model = tmp_path / folder / "model"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
        template, key = model.parent / "chat.jinja", model.parent / "key.pem"
        template.write_text("{{ x }}")
        key.write_text(folder)
        text = f"/opt/{folder}/bin/vllm serve {model} --host {host} --port {port} --chat-template={template}"
        text += f" --ssl-keyfile {key}"
        settings.append(server_settings(ServerCommand.parse(text)))
    assert settings[0] == settings[1]
    assert settings[0]["serve_files"].keys() == {"chat.jinja"}
    assert settings[0]["serve"].startswith("vllm serve model --host '{host}' --port '{port}'")
    assert settings[0]["backend.weights"]
