"""`plait serve` in a process of its own, and what it refuses before it starts."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from paths import CHECKOUT, PYTHON_PATH
from serving_helpers import trial_model
from trial import writer

import plait
import plait.cli
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.serving.gate import ServingLimits
from plait.benchmarks.serving.served import ServedModel
from plait.benchmarks.serving.server import ServingError, resolve_model, serve
from plait.generators.errors import UsageError
from plait.generators.system import System


@pytest.mark.processes
def test_it_serves_until_it_is_stopped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "plait", "serve", "stages:Paragraphs"]
    environment = dict(os.environ, PYTHONPATH=PYTHON_PATH, PYTHONUNBUFFERED="1")
    with log.open("w") as file:
        process = subprocess.Popen(
            [*command, "--weights", "tiny", "--port", "0"],
            env=environment,
            stdout=file,
            stderr=file,
        )
    try:
        until = time.monotonic() + 120
        while "serving" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until
            time.sleep(0.1)
        url = log.read_text().split(" at ")[1].split()[0]
        body = json.dumps({"messages": [{"role": "user", "content": "hello"}]}).encode()
        kind = {"content-type": "application/json"}
        asked = urllib.request.Request(f"{url}/chat/completions", body, kind)
        with urllib.request.urlopen(asked, timeout=60) as reply:
            message = json.load(reply)["choices"][0]["message"]
        assert message["content"] == "I was shown 0 pictures."
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    words = [line.partition(" ")[0] for line in log.read_text().splitlines()]
    assert words == ["loading", "serving", "stopped"]


def served_here(model=None, port: int = 0, key: str | None = None) -> int:
    console, listen = PlainConsole(file=io.StringIO()), ("127.0.0.1", port)
    return serve(model or trial_model(), ServingLimits(), console, listen, key)


def test_a_model_that_cannot_be_loaded_ends_the_server() -> None:
    broken = replace(writer(), target="stages:Unloadable")
    system = System(name="broken", draft=broken, max_images=0)
    with pytest.raises(ServingError, match="weights"):
        served_here(ServedModel(name="broken", weights="tiny", system=system))


def test_a_port_in_use_and_a_key_that_is_not_set_are_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"127.0.0.1 port {port}"):
            served_here(port=port)
    with pytest.raises(UsageError, match="NO_SUCH_KEY"):
        served_here(key="NO_SUCH_KEY")


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
        resolve_model(name, flags={"weights": "tiny"})
    assert any(r in str(caught.value) for r in reason.split("|"))


@pytest.mark.models
def test_settings_and_configs_apply(tmp_path: Path) -> None:
    config, name = tmp_path / "config.toml", "qwen2-vl-7b+sdxl-turbo@outline"
    config.write_text('weights = "tiny"\n[models.sdxl-turbo]\nguidance = 2.0\n')
    settings = ("models.sdxl-turbo.steps=2", "composition.max_images=2")
    model = resolve_model(name, config, settings=settings)
    assert model.weights == "tiny"
    assert model.t2i is not None
    assert (model.t2i.settings["steps"], model.t2i.settings["guidance"]) == (2, 2.0)
    assert model.system is not None
    assert model.system.max_images == 2
    assert set(model.abilities) == {name, "sdxl-turbo"}
    two_stages = resolve_model("qwen2-vl-7b+glm-image", flags={"weights": "tiny"})
    assert two_stages.system is not None
    assert two_stages.t2i is None, "it draws for the system alone"
    assert resolve_model("glm-image@t2i", flags={"weights": "tiny"}).system is not None
    with pytest.raises(UsageError, match="did you mean 'sdxl-turbo'"):
        resolve_model(name, config, settings=("models.sdxl-tubo.steps=2",))


def test_missing_packages_are_named_with_their_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(UsageError, match=r"fastapi: pip install 'plait\[serve\]'"):
        plait.cli.serve("anole")


@pytest.mark.processes
def test_the_help_of_serve_imports_no_web_framework() -> None:
    code = "import sys, plait; print({'fastapi', 'uvicorn', 'torch'} & set(sys.modules))"
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert out.stdout.strip() == "set()", out.stderr
