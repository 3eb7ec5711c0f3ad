"""A chat endpoint against a real server: `transformers serve` with a tiny checkpoint."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from endpoint_helpers import says
from vlm_helpers import BLUE, GREEN, RED, save_tiny

from generators.base import Fault
from pipelines.endpoints.chat import ChatEndpoint
from pipelines.endpoints.errors import EndpointError
from pipelines.vlm.stage import VisionLanguageModel

pytestmark = pytest.mark.models

REQUESTS = [
    says("what is in ", RED, " and in ", GREEN, " here?"),
    says("plain water"),
    says(BLUE, "tell me a story of the sea"),
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serve(folder, log):
    port = free_port()
    program = Path(sys.executable).parent / "transformers"
    command = [program, "serve", folder, "--device", "cpu", "--dtype", "float32"]
    env = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with log.open("w") as file:
        server = subprocess.Popen(
            [*command, "--port", str(port)], stdout=file, stderr=file, env=env
        )
        try:
            wait_for(f"http://127.0.0.1:{port}/health", server, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait(20)


def wait_for(url, server, log):
    for _ in range(600):
        assert server.poll() is None, log.read_text()
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=5).close()
            return
        time.sleep(0.2)
    pytest.fail(f"the server did not start: {log.read_text()}")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    base = tmp_path_factory.mktemp("served")
    folder = save_tiny(base / "checkpoint")
    with serve(folder, base / "log") as url:
        yield folder, url


def test_the_server_answers_as_the_model_in_this_process(served):
    """Text and pictures in order: greedy in float32, so token for token."""
    folder, url = served
    remote = ChatEndpoint(model=str(folder), base_url=url, max_tokens=16, timeout_s=60)
    local = VisionLanguageModel(model=str(folder), dtype="float32", max_new_tokens=16)
    for far, near in zip(remote(REQUESTS), local(REQUESTS), strict=True):
        assert far.value == near.value
        assert far.usage == near.usage
        assert far.notes["finish"] == near.notes["finish"] == "length"
    remote.close()


def test_a_placeholder_in_the_text_harms_only_where_it_is_not_broken(served):
    folder, url = served
    request = says("say <|image_pad|> ", RED)
    options = {"model": str(folder), "base_url": url, "max_tokens": 8, "max_attempts": 1}
    open_to_it, safe = (
        ChatEndpoint(**options, timeout_s=60, control_tokens=tokens)
        for tokens in ((), ("<|image_pad|>",))
    )
    assert open_to_it([request])[0].fault is Fault.ENDPOINT
    assert safe([request])[0].notes["neutralised"] == ["<|image_pad|>"]
    open_to_it.close()
    safe.close()


def test_the_preflight_finds_a_model_the_server_does_not_have(served):
    _, url = served
    with pytest.raises(EndpointError, match=r"'other'.*HTTP 400"):
        ChatEndpoint(model="other", base_url=url, timeout_s=60)
