"""The APIs behind which models may answer, as one contract sees them."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from drawing_servers import (
    QUICK,
    DrawingServer,
    drawn,
    gemini,
    inline,
    response,
    said,
    url_of,
    url_part,
)
from endpoint_helpers import MODEL, Answer, Server, completion, says
from images_helpers import ImagesServer, encoded, noise, reply, wish

from generators.base import Outcome
from pipelines.endpoints.chat import ChatEndpoint, ChatImagesEndpoint
from pipelines.endpoints.gemini import GeminiEndpoint
from pipelines.endpoints.images import ImagesEndpoint
from pipelines.endpoints.responses import ResponsesEndpoint


@dataclass(frozen=True)
class Api:
    """One API: its stage, a server that speaks it, and replies in its form."""

    name: str
    stage: type
    server: Callable[[], Any]
    ask: Callable[[str], Any]
    """A request about a text."""
    empty: dict[str, Any]
    """A reply that holds nothing."""
    counted: Callable[[int], tuple[dict[str, Any], str]]
    """A reply that says how many tokens were written, and its name for them."""
    broken: Callable[[bytes], dict[str, Any]]
    """A reply whose image has these bytes."""
    model: str = MODEL
    key: str = "OPENAI_API_KEY"

    def introduce(self, server: Any, answer: Answer) -> None:
        """Give `answer` to what a stage asks before it is loaded."""
        if self.name == "chat":
            server.preflight = lambda body: answer
        elif self.name == "images":
            server.pages["/v1/models"] = answer
        else:
            server.get = lambda path: answer

    @contextlib.contextmanager
    def asking(self, server: Any, **settings: Any) -> Iterator[Any]:
        """A stage that asks `server`, quick to lose patience."""
        url = server.url.removesuffix("/v1") if self.name == "gemini" else server.url
        stage = self.stage(**({"model": self.model, "base_url": url} | QUICK | settings))
        try:
            yield stage
        finally:
            stage.close()

    def once(self, server: Any, text: str = "a", **settings: Any) -> Outcome[Any]:
        """The outcome of one request."""
        with self.asking(server, **settings) as stage:
            return self.one(stage, text)

    def one(self, stage: Any, text: str = "a") -> Any:
        """The outcome of one request to a stage."""
        (outcome,) = stage([self.ask(text)])
        return outcome


def _counted(body: dict[str, Any], usage: str, name: str) -> Callable[[int], Any]:
    def reply_of(tokens: int) -> tuple[dict[str, Any], str]:
        return {**body, usage: {**body[usage], name: tokens}}, name

    return reply_of


CHAT = Api(
    name="chat",
    stage=ChatEndpoint,
    server=Server,
    ask=says,
    empty=completion(None),
    counted=_counted(completion("a"), "usage", "completion_tokens"),
    broken=lambda data: completion("a", images=[url_part(url_of(data))]),
)
CHAT_IMAGES = Api(
    name="chat-images",
    stage=ChatImagesEndpoint,
    server=DrawingServer,
    ask=says,
    empty=completion(None),
    counted=_counted(completion("a"), "usage", "completion_tokens"),
    broken=lambda data: completion("a", images=[url_part(url_of(data))]),
)
GEMINI = Api(
    name="gemini",
    stage=GeminiEndpoint,
    server=DrawingServer,
    ask=says,
    empty=gemini(),
    counted=_counted(gemini({"text": "a"}), "usageMetadata", "candidatesTokenCount"),
    broken=lambda data: gemini({"text": "a"}, inline(data)),
    key="GEMINI_API_KEY",
)
RESPONSES = Api(
    name="responses",
    stage=ResponsesEndpoint,
    server=DrawingServer,
    ask=says,
    empty=response(),
    counted=_counted(response(said("a")), "usage", "output_tokens"),
    broken=lambda data: response(said("a"), drawn(data)),
)
IMAGES = Api(
    name="images",
    stage=ImagesEndpoint,
    server=ImagesServer,
    ask=wish,
    empty=reply(),
    counted=_counted(
        reply(encoded(noise("a")), usage={"input_tokens": 12}), "usage", "output_tokens"
    ),
    broken=reply,
    model="painter",
)
INTERLEAVED = (CHAT_IMAGES, GEMINI, RESPONSES)
APIS = (CHAT, *INTERLEAVED, IMAGES)
