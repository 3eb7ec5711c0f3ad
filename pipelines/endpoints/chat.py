"""Chat models behind an OpenAI-compatible endpoint: with text, or with text and images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from plait.generators.base import Failure, Fault, Outcome, Result, Skip, Weights
from plait.generators.document import Draft, Request, Text, Turn
from plait.generators.thoughts import is_mark
from plait.pipelines.chat.settings import EndpointSettings, EngineChatSettings
from plait.pipelines.chat.turns import ControlTokens
from plait.pipelines.endpoints.batch_apis import BatchApi, OpenAiBatches
from plait.pipelines.endpoints.calls import PreparedCall
from plait.pipelines.endpoints.errors import StatusError
from plait.pipelines.endpoints.media import Media
from plait.pipelines.endpoints.replies import (
    EndpointReply,
    chat_completion,
    place_images,
    read_reply,
)
from plait.pipelines.endpoints.settings import ChatImagesSettings, KitSettings
from plait.pipelines.endpoints.stage import (
    ConversationEndpoint,
    Message,
    SentImage,
    without_none,
)
from plait.pipelines.endpoints.streams import completion_body

_PATH = "/chat/completions"
_FIRST = [{"role": "user", "content": "Reply with the word: ready"}]
_FIRST_TOKENS = 16
"""Longest first reply: enough to show that key, model and settings are accepted."""


class CompletionEndpoint(ConversationEndpoint):
    """Asks for chat completions."""

    settings: EndpointSettings | ChatImagesSettings
    _opened = False
    """Whether the model's chat template ends its prompts inside a thought."""

    def body(self, messages: Sequence[Message], request: Request) -> dict[str, Any]:
        """Return what `/chat/completions` is sent, without what is left to the server.

        The reply has at most the request's tokens, where the settings allow more.
        """
        settings = self.settings
        limits = [n for n in (settings.max_tokens, request.max_tokens) if n is not None]
        body = without_none(
            model=settings.model,
            messages=list(messages),
            stream=False,
            temperature=settings.temperature,
            top_p=settings.top_p,
            seed=self.seed(request),
            **{settings.max_tokens_field: min(limits, default=None)},
        )
        return body | settings.extra_body

    def part(self, image: SentImage) -> dict[str, Any]:
        """Return an image by its data URL."""
        detail = self.settings.image_detail
        about = {} if detail == "auto" else {"detail": detail}
        return {"type": "image_url", "image_url": {"url": image.url, **about}}

    async def send(self, body: Mapping[str, Any]) -> EndpointReply:
        """Return the server's reply."""
        return self.parse(await self._client.exchange(_PATH, body))

    def parse(self, content: bytes) -> EndpointReply:
        """Return what the answer to a body says; MalformedReply, SaidError."""
        return read_reply(self.read, completion_body(content), opened=self._opened)

    def read(self, body: Mapping[str, Any]) -> EndpointReply:
        """Return what a chat completion says."""
        return chat_completion(body)


class ChatEndpoint(CompletionEndpoint):
    """Request -> Draft of one text without white space around it, by a server."""

    settings_class: ClassVar[type[EndpointSettings]] = EndpointSettings
    settings: EndpointSettings
    takes_max_tokens: ClassVar[bool] = True

    async def probe(self) -> EndpointReply:
        """Send one small request: server, key, model and settings are accepted."""
        request = Request((), seed=0, max_tokens=_FIRST_TOKENS)
        return await self.send(self.body(_FIRST, request))

    def batch_api(self) -> BatchApi:
        """Return OpenAI's, which other providers have as well."""
        return OpenAiBatches(self._client, _PATH)

    def remarks(self, request: Request) -> dict[str, Any]:
        """Note nothing else."""
        return {}

    async def outcome(self, reply: EndpointReply) -> Outcome[Draft]:
        """Return the one text; a reply with images is a failure, never its text."""
        reply = replace(reply, notes={**reply.usage, **reply.notes})
        if failure := reply.problem():
            return failure
        if not reply.images:
            return Result(Draft((Text(reply.text),)), reply.usage, reply.notes)
        reason = (
            f"the reply holds {len(reply.images)} image(s) (the first is "
            f"{reply.images[0].shown}), which an LVLM's answer cannot keep; as a system of "
            "its own, chat-images:MODEL, the model keeps them"
        )
        return reply.failure(reason, Fault.ERROR)


class EngineChat(ChatEndpoint):
    """As every chat endpoint, by an engine that plait starts.

    The tokens of the checkpoint's chat template are broken in users' text, as plait's own
    stage does.
    """

    settings_class: ClassVar[type[EngineChatSettings]] = EngineChatSettings
    settings: EngineChatSettings

    def __init__(self, weights: Weights | None = None, **settings: Any) -> None:
        """As for every endpoint."""
        from plait.generators.loading.strict import load_processor
        from plait.pipelines.vlm.prompts import (
            control_tokens,
            ends_in_thought,
            special_tokens,
        )

        own = self.settings_class.model_validate(settings)
        processor = load_processor(own.checkpoint, own.revision)
        self._control = ControlTokens(control_tokens(processor))
        special = special_tokens(processor.tokenizer).values()
        self._has_marks = not own.parses_thoughts and any(map(is_mark, special))
        self._dropped = [token for token in special if not is_mark(token)]
        self._opened = not own.parses_thoughts and ends_in_thought(processor)
        super().__init__(weights, **settings)

    def body(self, messages: Sequence[Message], request: Request) -> dict[str, Any]:
        """As for every chat endpoint.

        An engine drops special tokens from its replies. Where they mark a thought, it must
        be told from the reply before they are dropped, here.
        """
        marks = {"skip_special_tokens": False} if self._has_marks else {}
        return marks | super().body(messages, request)

    def read(self, body: Mapping[str, Any]) -> EndpointReply:
        """Return what a chat completion says, without the special tokens of its text."""
        reply = super().read(body)
        if self._has_marks:
            reply.segments = [self._without_special(s) for s in reply.segments]
        return reply

    def _without_special(self, segment: Text | Media) -> Text | Media:
        if isinstance(segment, Media):
            return segment
        text = segment.text
        for token in self._dropped:
            text = text.replace(token, "")
        return Text(text)


class ChatImagesEndpoint(CompletionEndpoint):
    """Text and images by the chat API: OpenRouter, LiteLLM, vLLM-Omni, SGLang-Omni."""

    settings_class: ClassVar[type[ChatImagesSettings]] = ChatImagesSettings
    settings: ChatImagesSettings
    _takes_text_alone = True
    """Until the server has rejected to be asked for text alone."""

    def body(self, messages: Sequence[Message], request: Request) -> dict[str, Any]:
        """As for a chat endpoint, with the modalities of the answer."""
        body = super().body(messages, request)
        if own := list(self.settings.modalities):
            body["modalities"] = [request.modality] if request.modality else own
        return body

    async def send(self, body: Mapping[str, Any]) -> EndpointReply:
        """Return the server's reply.

        Some models cannot be told to write text alone (Anole behind `plait serve`); these
        are asked as for any other query, and the record says so.
        """
        alone = body.get("modalities") == ["text"]
        if self._takes_text_alone or not alone:
            try:
                return await super().send(body)
            except StatusError as error:
                if error.status != 400 or not alone or "modalities" not in str(error):
                    raise
        self._takes_text_alone = False
        whole = {**body, "modalities": list(self.settings.modalities)}
        reply = await super().send(whole)
        about = {"modality": "text alone is not taken by the server"}
        return replace(reply, notes={**reply.notes, **about})


class KitEndpoint(ChatImagesEndpoint):
    """As every chat endpoint that draws, in the form of a model's published kit."""

    settings_class: ClassVar[type[KitSettings]] = KitSettings
    settings: KitSettings

    def prepare(self, request: Request) -> PreparedCall | Skip | Failure:
        """As for every conversation, if the kit has a form for what is asked."""
        if self._form(request) is None:
            return Skip("the model's kit asks for images, and the query for text alone")
        return super().prepare(request)

    def _form(self, request: Request) -> str | None:
        settings = self.settings
        return settings.text_form if request.modality == "text" else settings.image_form

    def messages(self, turns: Sequence[Turn], request: Request) -> list[Message]:
        """Return the messages, users' turns in the kit's form."""
        messages = super().messages(turns, request)
        form = self._form(request)
        if form is None or form == "{text}":
            return messages
        written: list[Message] = []
        for message in messages:
            if message["role"] == "user":
                message = self._put_into_form(message, form)
            written.append(message)
        return written

    def _put_into_form(self, message: Message, form: str) -> Message:
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        texts = "\n".join(part["text"] for part in content if part["type"] == "text")
        images = [part for part in content if part["type"] == "image"]
        marks = self.settings.image_mark * len(images)
        text = form.replace("{images}", marks).replace("{text}", texts)
        return message | {"content": [{"type": "text", "text": text}, *images]}

    def body(self, messages: Sequence[Message], request: Request) -> dict[str, Any]:
        """As for a chat endpoint that draws, with the seed where the kit has it."""
        body = super().body(messages, request)
        seed = body.pop("seed", None)
        for path in self.settings.seed_fields if seed is not None else ():
            body = _with(body, path, seed)
        return body

    def read(self, body: Mapping[str, Any]) -> EndpointReply:
        """Return what a chat completion says, with images where the text has a mark."""
        return place_images(super().read(body))


def _with(body: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    name, _, rest = path.partition(".")
    inner = _with(body.get(name) or {}, rest, value) if rest else value
    return {**body, name: inner}
