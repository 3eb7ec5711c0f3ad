"""Images servers on loopback that refuse what the real ones refuse, one per dialect.

Fields, ranges and defaults as read in openai 3.54, sglang 0.5.23 and vllm-omni 0.30.0.
"""

import base64
import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

from endpoint_helpers import Answer, Server, _Handler, error, running
from picture_helpers import saved
from PIL import Image as Pillow
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from generators.base import Outcome
from generators.document import ImageRequest
from pipelines.endpoints.images import ImagesEndpoint

MODEL = "painter"
SIZE = r"^\d+x\d+$"


class OpenAIRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    prompt: str = Field(max_length=32_000)
    model: Literal["painter", "gpt-image-2"]
    n: int = Field(default=1, ge=1, le=10)
    size: str = Field(default="64x48", pattern=SIZE)
    quality: Literal["low", "medium", "high", "auto"] = "auto"
    output_format: Literal["png", "jpeg", "webp"] = "png"
    background: str = "auto"
    moderation: Literal["low", "auto"] = "auto"
    response_format: Literal["b64_json", "url"] | None = None


class SGLangRequest(BaseModel):
    model_config = ConfigDict(extra="allow")
    prompt: str
    model: str | None = None
    n: int | None = 1
    response_format: str | None = "url"
    size: str | None = Field(default="64x48", pattern=SIZE)
    output_format: str | None = None
    num_inference_steps: int | None = Field(default=None, ge=1)
    guidance_scale: float | None = None
    true_cfg_scale: float | None = None
    seed: int | None = Field(default=None, ge=0)
    generator_device: str | None = "cuda"
    negative_prompt: str | None = None
    max_sequence_length: int | None = None


class VllmOmniRequest(BaseModel):
    prompt: str
    model: str | None = None
    n: int = Field(default=1, ge=1, le=10)
    size: str | None = None
    response_format: Literal["b64_json", "file"] = "b64_json"
    output_format: str | None = None
    num_inference_steps: int | None = Field(default=None, ge=1, le=200)
    guidance_scale: float | None = Field(default=None, ge=0, le=20)
    true_cfg_scale: float | None = Field(default=None, ge=0, le=20)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)
    generator_device: str | None = None
    negative_prompt: str | None = None
    extra_params: dict[str, Any] | None = None


REQUESTS: dict[str, type[BaseModel]] = {
    "openai": OpenAIRequest,
    "sglang": SGLangRequest,
    "vllm-omni": VllmOmniRequest,
}
SERVED = {"data": [{"id": MODEL, "object": "model"}], "object": "list"}


def encoded(picture: Pillow.Image, encoding: str = "PNG", **options: Any) -> bytes:
    return saved(picture, encoding, **options)


def noise(text: str, size: tuple[int, int] = (64, 48)) -> Pillow.Image:
    """The same picture for the same text."""
    tile = hashlib.sha256(text.encode()).digest() * 6
    return Pillow.frombytes("RGB", (8, 8), tile).resize(size)


def reply(*pictures: bytes, **more: Any) -> dict[str, Any]:
    """An answer with these pictures."""
    data = [{"b64_json": base64.b64encode(p).decode()} for p in pictures]
    return {"created": 1, "data": data, **more}


def rejection(message: str, param: str | None, code: str = "invalid_value") -> Answer:
    """As OpenAI answers a request that it does not accept."""
    about = {"message": message, "type": "invalid_request_error", "param": param}
    return Answer({"error": about | {"code": code}}, 400)


class ImagesServer(Server):
    """Draws by what it reads of a request, or answers by `script`."""

    def __init__(self, dialect: str = "openai") -> None:
        super().__init__()
        self.RequestHandlerClass = ImagesHandler
        self.dialect = dialect
        self.script: Callable[[dict[str, Any]], Answer] = self.draw
        self.pages: dict[str, Answer] = {"/v1/models": Answer(SERVED)}
        """Answers to GET, by path."""
        self.wanted_key: str | None = None
        self.asked: list[str] = []
        """Paths of all requests."""

    def in_turn(self, *answers: Answer) -> None:
        rest = iter(answers)
        self.script = lambda body: next(rest, None) or self.draw(body)

    def draw(self, body: dict[str, Any]) -> Answer:
        """As a server of its dialect answers."""
        try:
            request: Any = REQUESTS[self.dialect].model_validate(body)
        except ValidationError as wrong:
            return self._rejected(wrong)
        if refusal := self._refusal(request):
            return refusal
        read = request.model_dump(exclude={"model", "n", "response_format", "background"})
        width, height = map(int, (request.size or "64x48").split("x"))
        picture = noise(repr(sorted(read.items(), key=str)), (width, height))
        return Answer(self._reply(picture, request))

    def _rejected(self, wrong: ValidationError) -> Answer:
        first = wrong.errors()[0]
        place, text = str(first["loc"][-1]), first["msg"]
        if self.dialect == "openai":
            return rejection(f"Invalid value for '{place}': {text}", place)
        detail = {"loc": ["body", place], "msg": text, "type": first["type"]}
        return Answer({"detail": [detail]}, 422)

    def _refusal(self, request: Any) -> Answer | None:
        format_is_set = request.response_format is not None
        if self.dialect == "openai" and "gpt-image" in request.model and format_is_set:
            return rejection("Unknown parameter: 'response_format'.", "response_format")
        if self.dialect == "sglang" and request.response_format != "b64_json":
            return Answer({"detail": "response_format='url' requires cloud storage"}, 400)
        if self.dialect == "vllm-omni" and request.model not in (None, MODEL):
            return Answer({"detail": f"Model mismatch: {request.model}"}, 400)
        return None

    def _reply(self, picture: Pillow.Image, request: Any) -> dict[str, Any]:
        kind = (request.output_format or "png").upper()
        if self.dialect == "sglang":
            data = (
                encoded(picture, "JPEG", quality=75)
                if request.output_format is None
                else encoded(picture, kind)
            )
            body = reply(data, id="r1", peak_memory_mb=812.5, inference_time_s=0.25)
            body["data"][0]["revised_prompt"] = request.prompt
            return body
        if self.dialect == "vllm-omni":
            durations = {"Pipeline.forward": 0.5, "Pipeline.vae.decode": 0.1}
            metrics = {"stage_durations": durations, "peak_memory_mb": 640.0}
            return reply(encoded(picture, kind), output_format="png", metrics=metrics)
        usage = {"input_tokens": 12, "output_tokens": 272, "total_tokens": 284}
        usage |= {"input_tokens_details": {"image_tokens": 0, "text_tokens": 12}}
        return reply(encoded(picture, kind), usage=usage, quality="low")


class ImagesHandler(_Handler):
    server: ImagesServer

    def do_GET(self) -> None:
        self.server.asked.append(f"GET {self.path}")
        missing = Answer({"detail": "Not Found"}, 404)
        self._give(self._stranger() or self.server.pages.get(self.path, missing))

    def _chosen(self, body: dict[str, Any]) -> Answer:
        server = self.server
        with server.guard:
            server.asked.append(f"POST {self.path}")
            server.keys.append(self.headers.get("authorization"))
            server.bodies.append(body)
            return self._stranger() or server.script(body)

    def _stranger(self) -> Answer | None:
        wanted = self.server.wanted_key
        if wanted is None or self.headers.get("authorization") == f"Bearer {wanted}":
            return None
        sent = self.headers.get("authorization")
        return Answer(error(f"Incorrect API key provided: {sent}", "invalid_api_key"), 401)


@contextlib.contextmanager
def serving_images(dialect: str = "openai") -> Iterator[ImagesServer]:
    """A server that ends with the context."""
    with running(ImagesServer(dialect)) as server:
        yield server


@contextlib.contextmanager
def drawing(server: ImagesServer, **settings: Any) -> Iterator[ImagesEndpoint]:
    """A stage that asks `server`, quick to lose patience."""
    quick = {"timeout_s": 5.0, "give_up_s": 30.0, "backoff_s": 0.01, "max_attempts": 3}
    options = {"model": MODEL, "base_url": server.url, "dialect": server.dialect}
    options |= {**quick, **settings}
    stage = ImagesEndpoint(**options)
    try:
        yield stage
    finally:
        stage.close()


def wish(prompt: str = "a red cat", seed: int = 7) -> ImageRequest:
    return ImageRequest(prompt=prompt, seed=seed)


def only(outcomes: list[Outcome[Any]]) -> Any:
    (outcome,) = outcomes
    return outcome
