"""Gemini's generateContent, by Google's own SDK: ordered parts of text and pictures."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from generators.document import Request
from pipelines.endpoints.client import NO_KEY
from pipelines.endpoints.errors import EndpointError, MalformedReply, StatusError
from pipelines.endpoints.media import Media
from pipelines.endpoints.replies import (
    Counts,
    EndpointReply,
    ReplyParts,
    read_body,
    total,
)
from pipelines.endpoints.settings import GeminiSettings
from pipelines.endpoints.stage import InterleavedEndpoint, Messages

_WHOLE = (None, "STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED")
"""Finish reasons of answers that are as whole as they get."""
_FINAL = frozenset(
    {
        "SAFETY",
        "PROHIBITED_CONTENT",
        "BLOCKLIST",
        "SPII",
        "RECITATION",
        "MODEL_ARMOR",
        "ESCALATION",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    }
)
"""Finish reasons by which the provider refuses: asking again is no use."""
_BESIDE = ("thought", "thoughtSignature", "videoMetadata", "mediaResolution")
"""Fields of a part that say something about its content."""
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")
_NO_ROUTE = (404, 405, 501)
_ROLES = {"user": "user", "assistant": "model"}


class GeminiEndpoint(InterleavedEndpoint):
    """Answers with text and pictures by `models/MODEL:generateContent`."""

    settings_class: ClassVar[type[GeminiSettings]] = GeminiSettings
    settings: GeminiSettings
    own_pictures: ClassVar[bool] = True

    async def begin(self) -> None:
        """Make the SDK's client, and ask for the model; EndpointError without the SDK."""
        try:
            from google.genai import Client, types
        except ImportError:
            raise EndpointError(
                "gemini: needs Google's SDK: pip install 'plait[gemini]' (google-genai)"
            ) from None
        s = self.settings
        self._genai = Client(
            api_key=self._client.key or NO_KEY,
            vertexai=False,
            http_options=types.HttpOptions(
                base_url=s.url,
                api_version=s.api_version,
                httpx_async_client=self._client.http,
                timeout=int(s.timeout_s * 1000),
                extra_body=dict(s.extra_body) or None,
            ),
        )
        await super().begin()

    async def probe(self) -> Any:
        """Ask for the model: shows whether server, key and model are usable."""
        try:
            with _own_errors():
                return await self._genai.aio.models.get(model=self.settings.model)
        except StatusError as error:
            if error.status_code in _NO_ROUTE and self.settings.model not in str(error):
                # A gateway that answers questions, but none about models.
                return None
            raise

    def body(self, messages: Messages, request: Request) -> dict[str, Any]:
        """Arguments of the SDK's `generate_content`, without those left open."""
        s = self.settings
        textual = request.modality == "text"
        image = {"aspect_ratio": s.aspect_ratio, "image_size": s.image_size}
        image = {name: value for name, value in image.items() if value is not None}
        system = [m["content"] for m in messages if m["role"] == "system"]
        config: dict[str, Any] = {
            "response_modalities": ["TEXT"] if textual else ["TEXT", "IMAGE"],
            "image_config": None if textual else image or None,
            "system_instruction": "\n\n".join(system) or None,
            "temperature": s.temperature,
            "top_p": s.top_p,
            "max_output_tokens": s.max_tokens,
            "seed": self.seed(request),
            "should_return_http_response": True,
        }
        return {
            "model": s.model,
            "contents": [_content(m) for m in messages if m["role"] in _ROLES],
            "config": {name: value for name, value in config.items() if value is not None},
        }

    async def sent(self, body: Mapping[str, Any]) -> EndpointReply:
        """The server's reply."""
        with _own_errors():
            answer = await self._genai.aio.models.generate_content(**body)
        response = answer.sdk_http_response
        said = ((response and response.body) or "").encode()
        return read_body(GeminiResponse, GeminiResponse.reply, said)


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raises the SDK's errors as those that all endpoints raise."""
    from google.genai import errors

    try:
        yield
    except errors.APIError as error:
        raise _status_error(error) from None
    except (errors.UnknownApiResponseError, json.JSONDecodeError) as error:
        raise MalformedReply(str(error)) from None


def _status_error(error: Any) -> StatusError:
    """The error with the status that other APIs give it, and its pause as a header."""
    headers = dict(getattr(error.response, "headers", None) or {})
    status, code = int(error.code or 0), error.status and str(error.status)
    for detail in _details(error.details):
        if detail.get("reason") == "API_KEY_INVALID":
            status = 401
        pause = _SECONDS.fullmatch(str(detail.get("retryDelay")))
        if pause and "retry-after" not in headers:
            headers["retry-after"] = pause[1]
    if code == "FAILED_PRECONDITION":
        # The account or its region may not use the API.
        status = 403
    return StatusError(status, str(error.message or code or ""), code, headers)


def _details(body: Any) -> list[Mapping[str, Any]]:
    error = body.get("error", body) if isinstance(body, Mapping) else {}
    details = error.get("details") if isinstance(error, Mapping) else None
    return [d for d in details or () if isinstance(d, Mapping)]


def _content(message: Mapping[str, Any]) -> dict[str, Any]:
    """A chat message as a content of Gemini's API."""
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return {"role": _ROLES[message["role"]], "parts": [_sent_part(p) for p in content]}


def _sent_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"text": part["text"]}
    head, _, data = part["image_url"]["url"].partition(",")
    mime = head.removeprefix("data:").partition(";")[0]
    return {"inline_data": {"mime_type": mime, "data": base64.b64decode(data)}}


class _Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class _Content(_Camel):
    parts: list[dict[str, Any]] = Field(default_factory=list)


class _Candidate(_Camel):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Modality(_Camel, Counts):
    modality: str | None = None
    token_count: int | None = 0


class _Usage(_Camel, Counts):
    """The API leaves out counts of 0."""

    prompt_token_count: int | None = 0
    candidates_token_count: int | None = 0
    thoughts_token_count: int | None = 0
    cached_content_token_count: int | None = None
    candidates_tokens_details: list[_Modality] = Field(default_factory=list)

    def counts(self) -> dict[str, float]:
        """As plait names them; thoughts are billed as output."""
        details = self.candidates_tokens_details
        drawn = total(*(d.token_count for d in details if d.modality == "IMAGE"))
        thoughts = self.thoughts_token_count
        counts = {
            "input_tokens": self.prompt_token_count,
            "output_tokens": total(self.candidates_token_count, thoughts),
            "cached_tokens": self.cached_content_token_count,
            "reasoning_tokens": thoughts or None,
            "image_output_tokens": drawn or None,
        }
        return {name: count for name, count in counts.items() if count is not None}


class _Feedback(_Camel):
    block_reason: str | None = None
    block_reason_message: str | None = None


class GeminiResponse(_Camel):
    """A reply of generateContent, read leniently."""

    candidates: list[_Candidate] = Field(default_factory=list)
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None
    model_version: str | None = None

    def reply(self) -> EndpointReply:
        """The reply; MalformedReply for one without candidates and without a reason."""
        usage = self.usage_metadata
        tokens = usage.counts() if usage else {}
        if not self.candidates:
            if self.prompt_feedback is None or self.prompt_feedback.block_reason is None:
                raise MalformedReply("neither candidates nor a block reason")
            reason = self.prompt_feedback.block_reason
            blocked = f"the prompt was blocked ({reason})"
            return EndpointReply(blocked=blocked, tokens=tokens, finish=reason)
        candidate, parts = self.candidates[0], ReplyParts()
        for part in candidate.content.parts if candidate.content else ():
            _add_part(parts, part)
        finish = candidate.finish_reason
        why = f"the answer was stopped ({finish}) {candidate.finish_message or ''}".strip()
        return EndpointReply(
            segments=tuple(parts.segments),
            finish=finish,
            model=self.model_version,
            tokens=tokens,
            blocked=why if finish in _FINAL else None,
            stopped=None if finish in (*_FINAL, *_WHOLE) else why,
            unreadable=parts.unreadable,
            notes=parts.notes | (usage.notes if usage else {}),
        )


def _add_part(parts: ReplyParts, part: Mapping[str, Any]) -> None:
    if part.get("thought"):
        parts.add_thought()
        return
    inline, file = part.get("inlineData"), part.get("fileData")
    if isinstance(part.get("text"), str):
        parts.add_text(part["text"])
    elif isinstance(inline, Mapping) and isinstance(inline.get("data"), str):
        # The API writes bytes in the alphabet for URLs as well.
        data = inline["data"].replace("-", "+").replace("_", "/")
        parts.segments.append(Media(data, inline.get("mimeType")))
    elif isinstance(file, Mapping) and isinstance(file.get("fileUri"), str):
        parts.segments.append(Media(file["fileUri"], file.get("mimeType")))
    elif names := [name for name in part if name not in _BESIDE]:
        parts.unreadable.append(f"a part of type {names[0]!r}")
