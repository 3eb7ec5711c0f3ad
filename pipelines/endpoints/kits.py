"""Models behind chat endpoints that are asked as their published kits ask them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from generators.base import Failure, Skip
from generators.document import Request, Turn
from pipelines.endpoints.chat import ChatImagesEndpoint
from pipelines.endpoints.replies import EndpointReply, placed
from pipelines.endpoints.settings import KitSettings
from pipelines.endpoints.stage import Message, PreparedCall


class KitEndpoint(ChatImagesEndpoint):
    """Text and images by the chat API, in the form of a model's own kit."""

    settings_class: ClassVar[type[KitSettings]] = KitSettings
    settings: KitSettings

    def prepared(self, request: Request) -> PreparedCall | Skip | Failure:
        """As for every conversation, if the kit has a form for what is asked."""
        if self._form(request) is None:
            return Skip("the model's kit asks for images, and the query for text alone")
        return super().prepared(request)

    def _form(self, request: Request) -> str | None:
        s = self.settings
        return s.text_form if request.modality == "text" else s.image_form

    def messages(self, turns: Sequence[Turn], request: Request) -> list[Message]:
        """Return the messages, users' turns in the kit's form."""
        messages, form = super().messages(turns, request), self._form(request)
        if form is None or form == "{text}":
            return messages
        return [m if m["role"] != "user" else self._formed(m, form) for m in messages]

    def _formed(self, message: Message, form: str) -> Message:
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

    async def sent(self, body: Mapping[str, Any]) -> EndpointReply:
        """Return the server's reply."""
        return placed(await super().sent(body))


def _with(body: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return `body` with a field set, or one inside it."""
    name, _, rest = path.partition(".")
    inner = _with(body.get(name) or {}, rest, value) if rest else value
    return {**body, name: inner}
