"""`plait serve` in a process of its own, and what it refuses before it starts."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from paths import CHECKOUT, PYTHON_PATH
from serving_helpers import trial_model
from trial import system_of_stages, writer

import plait
import plait.cli
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.serving.gate import ServingLimits
from plait.benchmarks.serving.served import ServedModel
from plait.benchmarks.serving.server import ServingError, _listen, resolve_model, serve
from plait.generators.errors import UsageError
from plait.scorers.judging.judge import ChatJudge


@contextlib.contextmanager
def serving(log: Path, *words: str) -> Iterator[str]:
    """The URL of `plait serve` with these words, which then ends by SIGTERM with 0."""
    command = [sys.executable, "-m", "plait", "serve", *words, "--port", "0"]
    environment = dict(os.environ, PYTHONPATH=PYTHON_PATH, PYTHONUNBUFFERED="1")
    with log.open("w") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    try:
        until = time.monotonic() + 120
        while "serving" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until
            time.sleep(0.1)
        yield log.read_text().split(" at ")[1].split()[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.processes
def test_it_serves_until_it_is_stopped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serving(log, "stages:Paragraphs", "--weights", "tiny") as url:
        body = json.dumps({"messages": [{"role": "user", "content": "hello"}]}).encode()
        kind = {"content-type": "application/json"}
        asked = urllib.request.Request(f"{url}/chat/completions", body, kind)
        with urllib.request.urlopen(asked, timeout=60) as reply:
            message = json.load(reply)["choices"][0]["message"]
        assert message["content"] == "I was shown 0 pictures."
    words = [line.partition(" ")[0] for line in log.read_text().splitlines()]
    assert words == ["loading", "serving", "stopped"]


@pytest.mark.processes
def test_it_serves_scorers_alone(tmp_path: Path) -> None:
    words = ["--scorer", "stages:Constant", "--scorer", "bleu", "--weights", "tiny"]
    with serving(tmp_path / "log", *words) as url:
        assert url.endswith("/score")
        body = {"scorer": "bleu", "query": "a", "answer": "b c", "reference": "b c"}
        kind = {"content-type": "application/json"}
        asked = urllib.request.Request(url, json.dumps(body).encode(), kind)
        with urllib.request.urlopen(asked, timeout=60) as reply:
            assert json.load(reply)["value"] == pytest.approx(100)
    log = (tmp_path / "log").read_text()
    assert log.startswith("loading stages:Constant, bleu ...")


def served_here(model=None, port: int = 0, key: str | None = None) -> int:
    console, listen = PlainConsole(file=io.StringIO()), ("127.0.0.1", port)
    return serve(model or trial_model(), ServingLimits(), console, listen, key)


def test_a_model_that_cannot_be_loaded_ends_the_server() -> None:
    broken = replace(writer(), target="stages:Unloadable")
    system = system_of_stages(name="broken", draft=broken, max_images=0)
    with pytest.raises(ServingError, match="weights"):
        served_here(ServedModel(name="broken", weights="tiny", system=system))


def test_a_reply_is_not_held_back_until_its_head_has_arrived() -> None:
    """Else every reply on a kept connection takes 40 ms longer."""
    with (
        _listen("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


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


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bloe", "did you mean 'bleu'"),
        ("fid", "one figure for all answers of a system"),
        ("diversity", "one figure for all answers of a system"),
        ("creation:gpt-6.1-sol", "beside that of another system"),
        ("judge:no-such-model", "unknown judge"),
        ("stages:Paragraphs", "must be 'score'"),
    ],
)
def test_scorers_that_cannot_be_served_are_refused(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        resolve_model(None, flags={"weights": "tiny"}, scorers=("bleu", name))
    with pytest.raises(UsageError, match="name what is to be served"):
        resolve_model(None)


def test_scorers_have_the_settings_and_the_seed_of_a_config(tmp_path: Path) -> None:
    config, judge = tmp_path / "config.toml", "judge:users_own:Poet"
    lines = ['systems = ["gt"]', f'scorers = ["{judge}"]', "seed = 4"]
    lines += [f'[models."{judge}"]', "retries = 3"]
    config.write_text("\n".join(lines))
    model = resolve_model(None, config, scorers=(judge, "bleu", judge))
    assert model.name == model.title == f"{judge}, bleu"
    assert [*model.scorers] == [judge, "bleu"]
    asked = model.scorers[judge]
    assert isinstance(asked, ChatJudge)
    assert (asked.seed, asked.retries) == (4, 3)
    assert model.weights == "pretrained", "as where a run names what is to be done"
    assert model.abilities == {}
    both = resolve_model("stages:Paragraphs", config, scorers=("bleu",))
    assert both.title == "stages:Paragraphs with bleu"
    assert both.every_stage == (*both.stages, both.scorers["bleu"].stage)
    assert resolve_model("stages:Paragraphs", config).scorers == {}


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
