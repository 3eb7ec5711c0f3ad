"""`plait serve` in a process of its own, and what it refuses before it starts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_helpers import plait_process as plait
from paths import CHECKOUT, HELPERS

from benchmarks.serving import cli
from benchmarks.serving.server import served_model
from generators.errors import UsageError


@contextmanager
def server(
    tmp_path: Path, *words: str, **env: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL of a server in its own process, once it is ready."""
    log = tmp_path / "log"
    command = [sys.executable, str(CHECKOUT / "plait.py"), "serve", *words, "--port", "0"]
    environment = dict(os.environ, PYTHONPATH=str(HELPERS), PYTHONUNBUFFERED="1", **env)
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=file, stderr=file, text=True
        )
    try:
        for _ in range(1200):
            if "serving" in log.read_text() or process.poll() is not None:
                break
            time.sleep(0.1)
        text = log.read_text()
        assert "serving" in text, text
        yield text.split(" at ")[1].split()[0], process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_stopped(tmp_path: Path, number: int) -> None:
    with server(tmp_path, "stages:Paragraphs", "--weights", "tiny") as (url, process):
        body = {"messages": [{"role": "user", "content": "hello"}]}
        request = urllib.request.Request(
            f"{url}/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            message = json.load(reply)["choices"][0]["message"]
        assert message["content"] == "I was shown 0 pictures."
        process.send_signal(number)
        assert process.wait(20) == 0
    log = (tmp_path / "log").read_text()
    words = [line.partition(" ")[0] for line in log.splitlines()]
    assert words == ["loading", "serving", "stopped"]
    assert "Traceback" not in log


def test_a_model_that_cannot_be_loaded_ends_the_server() -> None:
    ended = plait("serve", "serving_helpers:Unloadable", "--port", "0", "--weights", "tiny")
    assert ended.returncode == 1
    assert "weights.safetensors is not in the checkpoint folder" in ended.stderr


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("anloe", "did you mean 'anole'"),
        ("gt", "from a task set"),
        ("judge:gpt-4o", "names another kind of thing"),
        ("stages:Constant", "must be 'draft', 'render'"),
        ("qwen2-vl-7b+sdxl-turbo@poem", "sdxl-turbo@poem|poem"),
    ],
)
def test_what_cannot_be_served_is_refused(name: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        served_model(name, flags={"weights": "tiny"})
    assert any(r in str(caught.value) for r in reason.split("|"))


def test_settings_of_a_model_that_does_not_exist_are_refused() -> None:
    settings = ("models.sdxl-tubo.steps=2",)
    with pytest.raises(UsageError, match="did you mean 'sdxl-turbo'"):
        served_model("sdxl-turbo", flags={"weights": "tiny"}, settings=settings)


def test_settings_and_configs_apply(tmp_path: Path) -> None:
    config, name = tmp_path / "config.toml", "qwen2-vl-7b+sdxl-turbo@outline"
    config.write_text('weights = "tiny"\n[models.sdxl-turbo]\nguidance = 2.0\n')
    settings = ("models.sdxl-turbo.steps=2", "composition.max_images=2")
    model = served_model(name, config, settings=settings)
    assert model.weights == "tiny"
    assert model.artist is not None
    assert (model.artist.settings["steps"], model.artist.settings["guidance"]) == (2, 2.0)
    assert model.system is not None
    assert model.system.max_images == 2
    assert set(model.abilities) == {name, "sdxl-turbo"}


def test_a_port_in_use_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = plait("serve", "stages:Paragraphs", "--weights", "tiny", "--port", port)
    assert ended.returncode == 2
    assert f"cannot listen at 127.0.0.1 port {port}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_key_that_is_not_set_is_said() -> None:
    ended = plait(
        "serve", "stages:Paragraphs", "--weights", "tiny", "--api-key-env", "NO_SUCH_KEY"
    )
    assert ended.returncode == 2
    assert "NO_SUCH_KEY, which is not set or empty" in ended.stderr


def test_missing_packages_are_named_with_their_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "PACKAGES", ("no_such_package", "uvicorn"))
    with pytest.raises(UsageError, match=r"needs no_such_package: pip install"):
        cli._require_packages()


def test_the_help_of_serve_imports_no_web_framework() -> None:
    code = (
        "import sys; sys.path.insert(0, '.'); import plait; "
        "print({'fastapi', 'uvicorn', 'torch'} & set(sys.modules))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True
    )
    assert out.stdout.strip() == "set()", out.stderr
