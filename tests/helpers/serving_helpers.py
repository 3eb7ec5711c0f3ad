"""A server of a model of `trial`, or any other, on a free port of this process."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import openai
import pytest
from trial import LIGHT, painter, system_of_stages, writer

from plait.benchmarks.serving.engine import ServingEngine
from plait.benchmarks.serving.gate import ServingLimits
from plait.benchmarks.serving.served import ServedModel
from plait.benchmarks.serving.server import StoppableServer, resolve_model
from plait.cluster.local import LocalEngine
from plait.generators.base import Placement
from plait.generators.document import Image

KEY = "sk-served-0123456789"


def trial_model(
    pictures: int = 2, placement: Placement = LIGHT, **draft: Any
) -> ServedModel:
    """A system without models; its artist draws from prompts as well."""
    t2i = painter(placement=placement)
    system = system_of_stages(
        name="trial",
        draft=writer(placement, pictures=pictures, **draft),
        render=t2i,
        max_images=pictures,
        lvlm="writer",
        t2i="painter",
    )
    return ServedModel(
        name="trial", weights="tiny", system=system, t2i=t2i, t2i_name="painter"
    )


@dataclass(frozen=True)
class Served:
    """A running server."""

    engine: ServingEngine
    root: str

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def client(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, api_key=key, max_retries=0, timeout=300)

    def get(self, path: str) -> tuple[int, str]:
        status, _, body = self.request("GET", path)
        return status, body.decode()

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
        status, _, data = self.request("POST", path, body, **headers)
        return status, json.loads(data)

    def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        data = body if isinstance(body, bytes | Iterator | None) else json.dumps(body)
        sent = {b"content-type": b"application/json"}
        sent |= {k.encode(): v.encode("latin-1") for k, v in headers.items()}
        reply = httpx2.request(
            method, self.root + path, content=data, headers=sent, timeout=300
        )
        return reply.status_code, dict(reply.headers), reply.content

    def wait(self, status: str = "ready") -> None:
        until(lambda: self.engine.status == status)

    def metric(self, line: str) -> float:
        """The value of one line of `/metrics`, 0 where it is not there yet."""
        lines = self.get("/metrics")[1].splitlines()
        values = [v.rpartition(" ")[2] for v in lines if v.startswith(line + " ")]
        return float(values[0]) if values else 0.0


def until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it never happened")


@contextlib.contextmanager
def served_model(
    model: ServedModel, key: str | None = None, *, ready: bool = True, **limits: Any
) -> Iterator[Served]:
    """The server of `model`, stopped with the context."""
    engine = ServingEngine(model, replace(ServingLimits(grace_s=2.0), **limits))
    server = StoppableServer(engine, key)
    server.config.timeout_graceful_shutdown = 60  # for sending replies, beyond the grace
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    served = Served(engine, f"http://127.0.0.1:{port}")
    try:
        if ready:
            served.wait()
        yield served
    finally:
        server.stop()
        thread.join(90)
        listening.close()
        assert not thread.is_alive(), "the server does not stop"


@contextlib.contextmanager
def meeting(requests: int) -> Iterator[None]:
    """Nothing is computed until so many requests wait."""
    add, turn = LocalEngine.add, LocalEngine.turn
    came, all_here = itertools.count(1), threading.Event()

    def counted(engine: LocalEngine, *walk: Any) -> Any:
        live = add(engine, *walk)
        if next(came) == requests:
            all_here.set()
        return live

    def held_up(engine: LocalEngine) -> None:
        assert all_here.wait(60)
        turn(engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalEngine, "add", counted)
        patch.setattr(LocalEngine, "turn", held_up)
        yield


def data_url(image: Image, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(image.read()).decode()}"


def picture_in(url: str) -> Image:
    """The image of a data URL."""
    return Image.of(base64.b64decode(url.partition(",")[2]))


def user(*content: Any) -> dict[str, Any]:
    """A message of text and images."""
    parts = [
        {"type": "text", "text": c}
        if isinstance(c, str)
        else {"type": "image_url", "image_url": {"url": data_url(c)}}
        for c in content
    ]
    return {"role": "user", "content": parts}


def scorers_model(*names: str, **flags: Any) -> ServedModel:
    """Scorers alone, by the names that `plait serve --scorer` has for them."""
    return resolve_model(None, flags={"weights": "tiny", **flags}, scorers=names)


def content_parts(*content: Any) -> list[dict[str, Any]]:
    """Texts and images as parts of a request."""
    parts: list[dict[str, Any]] = user(*content)["content"]
    return parts
