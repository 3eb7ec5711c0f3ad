"""The APIs behind which models may answer: their stages, and replies in their form.

Images servers refuse what the real ones refuse, as read in openai 3.54, sglang 0.5.23 and
vllm-omni 0.30.0.
"""

import base64
import contextlib
import hashlib
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from endpoint_helpers import (
    MODEL,
    Answer,
    Asked,
    Server,
    asking,
    completion,
    echo,
    error,
    says,
    serving,
)
from openai.types.image_edit_params import ImageEditParamsNonStreaming
from openai.types.image_generate_params import ImageGenerateParamsNonStreaming
from picture_helpers import saved
from PIL import Image as Pillow

from plait.generators.base import Result
from plait.generators.catalogue import Named
from plait.generators.document import Image, ImageRequest, Text
from plait.pipelines.endpoints.chat import ChatEndpoint, ChatImagesEndpoint, KitEndpoint
from plait.pipelines.endpoints.gemini import GeminiEndpoint
from plait.pipelines.endpoints.images import ImagesEndpoint
from plait.pipelines.endpoints.responses import ResponsesEndpoint
from plait.pipelines.endpoints.settings import omni_settings
from plait.pipelines.presets import preset


def picture(colour: str, size: tuple[int, int] = (12, 8), kind: str = "PNG") -> Image:
    return Image.of(saved(Pillow.new("RGB", size, colour), kind))


RED, BLUE = picture("red"), picture("blue")


def base64_of(image: Image | bytes) -> str:
    data = image if isinstance(image, bytes) else image.read()
    return base64.b64encode(data).decode()


def url_of(image: Image | bytes, mime: str = "image/png") -> str:
    return f"data:{mime};base64,{base64_of(image)}"


def part(url: str | Image | bytes, **about: Any) -> dict[str, Any]:
    """An image in a list `content`."""
    url = url if isinstance(url, str) else url_of(url)
    return {"type": "image_url", "image_url": {"url": url, **about}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def segment(number: int, kind: str, data: Any) -> dict[str, Any]:
    """Of SGLang-Omni."""
    about = {"type": "segment", "execution_id": "e", "segment_index": number}
    return about | {"kind": kind, "data": data}


def gemini(*parts: Any, finish: str | None = "STOP", **about: Any) -> dict[str, Any]:
    """A reply of generateContent."""
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    candidate |= {} if finish is None else {"finishReason": finish}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 1300, "thoughtsTokenCount": 10}
    details = [{"modality": "TEXT", "tokenCount": 10}]
    details += [{"modality": "IMAGE", "tokenCount": 1290}]
    usage |= {"totalTokenCount": 1319, "candidatesTokensDetails": details}
    reply = {"candidates": [candidate], "usageMetadata": usage}
    return reply | {"modelVersion": MODEL + "-001"} | about


def inline(image: Image | bytes, mime: str = "image/png") -> dict[str, Any]:
    return {"inlineData": {"mimeType": mime, "data": base64_of(image)}}


def response(*items: Any, status: str = "completed", **about: Any) -> dict[str, Any]:
    """A reply of the Responses API."""
    usage = {"input_tokens": 20, "output_tokens": 30, "total_tokens": 50}
    usage |= {"input_tokens_details": {"cached_tokens": 4}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 8}}
    tool = {"image_gen": {"input_tokens": 5, "output_tokens": 1000, "total_tokens": 1005}}
    reply = {"id": "r", "object": "response", "model": MODEL + "-1", "created_at": 1}
    reply |= {"status": status, "output": list(items)}
    return reply | {"usage": usage, "tool_usage": tool} | about


def said(words: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    return {"type": "message", "role": "assistant", "id": "m", "content": content}


def drawn(image: Image | bytes, **about: Any) -> dict[str, Any]:
    item = {"type": "image_generation_call", "id": "i", "status": "completed"}
    return item | {"result": base64_of(image)} | about


def images(*pictures: bytes, **more: Any) -> dict[str, Any]:
    """A reply of an images server."""
    data = [{"b64_json": base64_of(p)} for p in pictures]
    return {"created": 1, "data": data, **more}


def omni(words: str, *more: Any) -> dict[str, Any]:
    segments = [segment(0, "text", words), *more]
    return completion(words, segments=segments)


OPENAI_FIELDS = frozenset(typing.get_type_hints(ImageGenerateParamsNonStreaming))
EDIT_FIELDS = frozenset(typing.get_type_hints(ImageEditParamsNonStreaming)) | {"image[]"}
DIALECTS = ("openai", "sglang", "vllm-omni")


def noise(words: str, size: tuple[int, int] = (64, 48)) -> Pillow.Image:
    """The same image for the same words."""
    tile = hashlib.sha256(words.encode()).digest() * 6
    return Pillow.frombytes("RGB", (8, 8), tile).resize(size)


def draw(dialect: str, body: Asked) -> Answer:
    """As an images server of this dialect answers, and refuses."""
    form = body.get("response_format")
    edits = body.path.endswith("/edits")
    if edits and not body.get("image[]"):
        return Answer({"detail": "Field 'image' or 'url' is required"}, 422)
    fields = EDIT_FIELDS if edits else OPENAI_FIELDS
    if dialect == "openai" and (unknown := set(body) - fields):
        return Answer(error("unknown parameter", "unknown_parameter", min(unknown)), 400)
    if "gpt-image" in body["model"] and form is not None:
        return Answer(error("no", "unknown_parameter", "response_format"), 400)
    if dialect == "sglang" and form != "b64_json":
        return Answer({"detail": "response_format='url' requires cloud storage"}, 400)
    if int(body.get("num_inference_steps", 1)) > 200:
        place = ["body", "num_inference_steps"]
        return Answer({"detail": [{"loc": place, "msg": "too many"}]}, 422)
    width, height = map(int, body.get("size", "64x48").split("x"))
    sources = [hashlib.sha256(data).hexdigest() for data in body.get("image[]", ())]
    words = " ".join([body["prompt"], str(body.get("seed")), *sources])
    pixels = noise(words, (width, height))
    # SGLang's default loses quality.
    usual = "jpeg" if dialect == "sglang" else "png"
    data = saved(pixels, body.get("output_format", usual))
    if dialect == "sglang":
        reply = images(data, id="r1", peak_memory_mb=812.5, inference_time_s=0.25)
        reply["data"][0]["revised_prompt"] = body["prompt"]
        return Answer(reply)
    if dialect == "vllm-omni":
        durations = {"Pipeline.forward": 0.5, "Pipeline.vae.decode": 0.1}
        metrics = {"stage_durations": durations, "peak_memory_mb": 640.0}
        return Answer(images(data, output_format="png", metrics=metrics))
    details = {"input_tokens_details": {"image_tokens": 0, "text_tokens": 12}}
    usage = {"input_tokens": 12, "output_tokens": 272, "total_tokens": 284} | details
    return Answer(images(data, usage=usage, quality="low"))


def wish(prompt: str = "a red cat", seed: int = 7, *context: Image) -> ImageRequest:
    return ImageRequest(prompt=prompt, seed=seed, context=context)


@dataclass(frozen=True)
class Api:
    """One API: its stage, a server that speaks it, and replies in its form."""

    name: str
    stage: Any
    reply: Callable[[Any], Answer]
    """The server's usual answer; of those that draw: text, a red image, text."""
    holding: Callable[[Any], dict[str, Any]]
    """A reply with an image: bytes, or the URL of one."""
    ask: Callable[[str], Any] = says
    """A request about a text."""
    settings: dict[str, Any] = field(default_factory=dict)
    key: str = "OPENAI_API_KEY"

    def introduce(self, server: Server, answer: Callable[[Any], Answer] | Answer) -> None:
        """Give `answer` to what a stage asks before it is loaded."""
        give = answer if callable(answer) else lambda _: answer
        if self.stage is ChatEndpoint:
            server.preflight = give
        else:
            server.get = give

    @contextlib.contextmanager
    def asking(self, server: Server, **settings: Any) -> Iterator[Any]:
        """A stage that asks `server`."""
        url = server.root if self.name == "gemini" else server.url
        own = {"base_url": url} | self.settings | settings
        with asking(server, self.stage, **own) as stage:
            yield stage

    def serving(self) -> contextlib.AbstractContextManager[Server]:
        return serving(self.reply)

    def once(self, server: Server, request: Any = "a", **settings: Any) -> Any:
        """The outcome of one request."""
        with self.asking(server, **settings) as stage:
            return self.one(stage, request)

    def one(self, stage: Any, request: Any = "a") -> Any:
        """The outcome of one request to a stage."""
        asked = self.ask(request) if isinstance(request, str) else request
        (outcome,) = stage([asked])
        return outcome


def any_of(body: Asked) -> Answer:
    """The usual answer of the API that is asked."""
    by_path = {"chat/completions": CHAT_IMAGES if "modalities" in body else CHAT}
    by_path |= {":generateContent": GEMINI, "responses": RESPONSES}
    return next(a for end, a in by_path.items() if body.path.endswith(end)).reply(body)


def _url_or(holding: Callable[[Any], Any], by_url: Callable[[str], Any]) -> Any:
    return lambda data: by_url(data) if isinstance(data, str) else holding(data)


def _in_content(body: Asked) -> Answer:
    return Answer(completion([text("first"), part(RED), text("then")]))


def _segments(body: Asked) -> Answer:
    image = segment(1, "image", {"kind": "image", "url": url_of(RED)})
    return Answer(omni("first", image, segment(2, "text", "then")))


CHAT = Api(
    name="chat",
    stage=ChatEndpoint,
    reply=echo,
    holding=lambda data: completion("a", images=[part(data)]),
)
CHAT_IMAGES = Api(
    name="chat-images",
    stage=ChatImagesEndpoint,
    reply=_in_content,
    holding=lambda data: completion("a", images=[part(data)]),
)
OMNI = Api(
    name="omni",
    stage=ChatImagesEndpoint,
    reply=_segments,
    holding=lambda data: omni("a", segment(1, "image", part(data)["image_url"])),
    settings=omni_settings(MODEL).model_dump(include={"modalities", "send_seed"}),
)
GEMINI = Api(
    name="gemini",
    stage=GeminiEndpoint,
    reply=lambda _: Answer(gemini(text("first"), inline(RED), text("then"))),
    holding=_url_or(
        lambda data: gemini(text("a"), inline(data)),
        lambda url: gemini(text("a"), {"fileData": {"fileUri": url}}),
    ),
    key="GEMINI_API_KEY",
)
RESPONSES = Api(
    name="responses",
    stage=ResponsesEndpoint,
    reply=lambda _: Answer(response(said("first"), drawn(RED), said("then"))),
    holding=_url_or(
        lambda data: response(said("a"), drawn(data)),
        lambda url: response(said("a"), drawn(b"") | {"result": url}),
    ),
)
IMAGES = {
    dialect: Api(
        name=f"images, {dialect}",
        stage=ImagesEndpoint,
        reply=partial(draw, dialect),
        holding=_url_or(images, lambda url: {"data": [{"url": url}]}),
        ask=wish,
        settings={"dialect": dialect},
    )
    for dialect in DIALECTS
}


EDITS = {
    dialect: replace(api, name=f"edits, {dialect}", ask=lambda words: wish(words, 7, RED))
    for dialect, api in IMAGES.items()
}


def _marked(body: Asked) -> Answer:
    """As LightLLM answers for SenseNova-U1: a mark in the text, the image apart."""
    return Answer(completion("<think>so</think>first<image>then", images=[part(RED)]))


def _by_stage(body: Asked) -> Answer:
    """As vLLM-Omni answers: text and image of two stages, each in a choice of its own."""
    image = completion([part(RED) | {"stage_durations": {"dit": 0.5}}])["choices"]
    said = [completion(words)["choices"][0] for words in ("first", "then")]
    return Answer(completion(None) | {"choices": [said[0], *image, said[1]]})


def _kit(name: str, reply: Callable[[Any], Answer]) -> Api:
    kit = preset(Named.SERVED, name)
    own = kit.model_dump(include=kit.model_fields_set - {"model"})
    settings = {"temperature": None, "max_tokens": None, "system": None, "max_images": None}
    return replace(
        CHAT_IMAGES, name=name, stage=KitEndpoint, reply=reply, settings=own | settings
    )


SENSENOVA = _kit("sensenova-u1", _marked)
BAGEL = _kit("bagel", _by_stage)
HUNYUAN = _kit("hunyuan-image-3", _by_stage)
INTERLEAVED = (CHAT_IMAGES, OMNI, SENSENOVA, BAGEL, HUNYUAN, GEMINI, RESPONSES)
DRAWING = (CHAT_IMAGES, SENSENOVA, GEMINI, RESPONSES, IMAGES["openai"], EDITS["openai"])
APIS = (CHAT, *DRAWING)
"""One of each class of stages."""


def shown(result: Any) -> list[str]:
    """Texts, and images by their colour."""
    assert isinstance(result, Result), result
    names = {RED.digest: "RED", BLUE.digest: "BLUE"}
    return [
        s.text if isinstance(s, Text) else names[s.digest] for s in result.value.segments
    ]
