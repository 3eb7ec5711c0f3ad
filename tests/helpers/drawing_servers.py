"""Stand-ins for servers that answer with text and pictures, on loopback.

`serving_pictures` gives one server that speaks all their APIs: by default each answers
with a text, a picture and another text, in its own form.
"""

import base64
import contextlib
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

from endpoint_helpers import MODEL, Answer, Server, _Handler, completion, running, says
from images_helpers import only
from PIL import Image as Pillow

from generators.base import Result
from generators.document import Image, Request, Text
from pipelines.endpoints.chat import ChatImagesEndpoint
from pipelines.endpoints.gemini import GeminiEndpoint
from pipelines.endpoints.responses import ResponsesEndpoint

QUICK = {"timeout_s": 5.0, "give_up_s": 30.0, "backoff_s": 0.01, "max_attempts": 3}


def picture(
    colour: str = "red", size: tuple[int, int] = (12, 8), kind: str = "PNG"
) -> Image:
    file = io.BytesIO()
    Pillow.new("RGB", size, colour).save(file, kind)
    return Image.of(file.getvalue())


RED, BLUE = picture("red"), picture("blue")


def base64_of(image: Image | bytes) -> str:
    data = image if isinstance(image, bytes) else image.read()
    return base64.b64encode(data).decode()


def url_of(image: Image | bytes, mime: str = "image/png") -> str:
    return f"data:{mime};base64,{base64_of(image)}"


def url_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def segment(number: int, kind: str, data: Any) -> dict[str, Any]:
    about = {"type": "segment", "execution_id": "e", "segment_index": number}
    return about | {"kind": kind, "data": data}


def gemini(
    *parts: dict[str, Any], finish: str | None = "STOP", **about: Any
) -> dict[str, Any]:
    """A reply of generateContent."""
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    usage = {
        "promptTokenCount": 9,
        "candidatesTokenCount": 1300,
        "totalTokenCount": 1319,
        "thoughtsTokenCount": 10,
        "candidatesTokensDetails": [
            {"modality": "TEXT", "tokenCount": 10},
            {"modality": "IMAGE", "tokenCount": 1290},
        ],
    }
    reply = {"candidates": [candidate], "usageMetadata": usage}
    return reply | {"modelVersion": MODEL + "-001"} | about


def inline(image: Image | bytes, mime: str = "image/png") -> dict[str, Any]:
    return {"inlineData": {"mimeType": mime, "data": base64_of(image)}}


def response(
    *items: dict[str, Any], status: str = "completed", **about: Any
) -> dict[str, Any]:
    """A reply of the Responses API."""
    usage = {
        "input_tokens": 20,
        "output_tokens": 30,
        "total_tokens": 50,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 8},
    }
    tool = {"image_gen": {"input_tokens": 5, "output_tokens": 1000, "total_tokens": 1005}}
    reply = {"id": "r", "object": "response", "model": MODEL + "-1", "created_at": 1}
    reply |= {"status": status, "output": list(items)}
    return reply | {"usage": usage, "tool_usage": tool} | about


def said(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "id": "m", "content": content}


def drawn(image: Image | bytes, **about: Any) -> dict[str, Any]:
    item = {"type": "image_generation_call", "id": "i", "status": "completed"}
    return item | {"result": base64_of(image)} | about


def default_reply(path: str) -> dict[str, Any]:
    """Text, a red picture, text: in the form of the API at `path`."""
    if "generateContent" in path:
        return gemini({"text": "first"}, inline(RED), {"text": "then"})
    if path.endswith("/responses"):
        return response(said("first"), drawn(RED), said("then"))
    content = [{"type": "text", "text": "first"}, url_part(url_of(RED))]
    return completion([*content, {"type": "text", "text": "then"}])  # type: ignore[arg-type]


class DrawingServer(Server):
    """Answers POST by `script`, which is given body and `path`, and GET by `get`."""

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = DrawingHandler  # type: ignore[assignment]
        self.script: Callable[[dict[str, Any]], Answer]
        self.script = lambda body: Answer(default_reply(body["path"]))
        self.get: Callable[[str], Answer] = models
        self.paths: list[str] = []
        self.all_headers: list[dict[str, str]] = []

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    def answering(self, reply: Any, **about: Any) -> None:
        """Give every request this reply."""
        self.script = lambda body: Answer(reply, **about)


def models(path: str) -> Answer:
    """The lists of models of OpenAI and of Gemini."""
    if path.endswith("/models"):
        return Answer({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
    return Answer({"name": f"models/{MODEL}", "displayName": "Parrot"})


class DrawingHandler(_Handler):
    server: DrawingServer

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self._give(self.server.get(self.path))

    def _chosen(self, body: dict[str, Any]) -> Answer:
        server = self.server
        with server.guard:
            server.all_headers.append({k.lower(): v for k, v in self.headers.items()})
            server.bodies.append(body)
            return server.script(body | {"path": self.path})


@contextlib.contextmanager
def serving_pictures() -> Iterator[DrawingServer]:
    with running(DrawingServer()) as server:
        yield server


def as_json(value: Any) -> str:
    """All that is stored of an outcome besides its value."""
    return json.dumps(
        [getattr(value, name, None) for name in ("reason", "notes", "usage")], default=str
    )


APIS = {
    "chat-images": ChatImagesEndpoint,
    "gemini": GeminiEndpoint,
    "responses": ResponsesEndpoint,
}


@contextlib.contextmanager
def asking_for_pictures(server: DrawingServer, api: str, **settings: Any) -> Iterator[Any]:
    url = server.root if api == "gemini" else server.url
    stage = APIS[api](**({"model": MODEL, "base_url": url} | QUICK | settings))
    try:
        yield stage
    finally:
        stage.close()


def ask_once(
    server: DrawingServer, api: str, request: Request | None = None, **settings: Any
) -> Any:
    with asking_for_pictures(server, api, **settings) as ask:
        return only(ask([request or says("draw")]))


def shown(result: Any) -> list[str]:
    """Texts, and pictures by their colour."""
    assert isinstance(result, Result), result
    names = {RED.digest: "RED", BLUE.digest: "BLUE"}
    return [
        s.text if isinstance(s, Text) else names[s.digest] for s in result.value.segments
    ]
