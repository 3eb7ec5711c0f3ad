"""A chat request as a sample: its turns with their pictures read, and what it asks for."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from benchmarks.serving.refusals import RequestRefused, fixed, invalid, unsupported
from benchmarks.serving.schemas import (
    ChatMessage,
    ChatRequest,
    PictureData,
    PicturePart,
    TextPart,
)
from benchmarks.serving.served import ServedModel
from generators.base import Job, Kind, Outcome, StageSpec
from generators.document import Content, Image, Request, Role, Sample, Text, Turn
from pipelines.endpoints.media import Media, MediaError, embedded
from pipelines.endpoints.media import picture_of as read_picture

QUERY = "query"
"""Id of every sample: with it `seed` gives the answer that `LocalSystem` gives in Python
to `question(...)` with the same seed."""
_SAMPLED = ("temperature", "top_p")
_LIMITS = ("max_new_tokens", "max_tokens", "max_text_tokens")
"""What stages call the longest answer that they write."""

R = TypeVar("R")


def sample_of(request: ChatRequest, model: ServedModel) -> Sample:
    """The conversation; RequestRefused where `model` cannot honour the request.

    Decodes all pictures once: call it outside the event loop.
    """
    wants_images = _wants_images(request, model)
    turns = tuple(_turn(m, i) for i, m in enumerate(request.messages))
    if turns[-1].role != "user":
        raise invalid(
            f"the last message must be the user's, not the {turns[-1].role}'s", "messages"
        )
    return Sample(
        id=QUERY, category=QUERY, field=QUERY, turns=turns, wants_images=wants_images
    )


def _wants_images(request: ChatRequest, model: ServedModel) -> bool:
    asked = request.modalities
    if asked is None:
        return True
    if "text" not in asked:
        raise unsupported(
            f"{model.name} answers with text; for pictures alone use "
            "/v1/images/generations where the model has it",
            "modalities",
        )
    if "image" in asked and not model.draws_in_chats:
        raise unsupported(f"{model.name} writes text only", "modalities")
    if "image" not in asked and not model.may_leave_pictures_out:
        raise unsupported(
            f"{model.name} decides itself where it draws and cannot be told to write text "
            "only; leave modalities out",
            "modalities",
        )
    return "image" in asked


def _turn(message: ChatMessage, number: int) -> Turn:
    role: Role = "system" if message.role == "developer" else message.role
    where = f"messages[{number}]"
    content = _content(message, where)
    if role == "system" and any(isinstance(s, Image) for s in content):
        raise invalid(f"{where}: pictures belong to a user's or an assistant's turn", where)
    return Turn(role, content)


def _content(message: ChatMessage, where: str) -> Content:
    """Segments know the order of text and pictures; `images` come after the text."""
    if message.segments is not None:
        return tuple(_segment(s.data, f"{where}.segments") for s in message.segments)
    content = message.content
    if isinstance(content, str):
        parts: list[Text | Image] = [Text(content)]
    else:
        parts = [_part(part, f"{where}.content") for part in content or ()]
    images = message.images or ()
    return (*parts, *(picture_of(part.url, f"{where}.images") for part in images))


def _part(part: TextPart | PicturePart, where: str) -> Text | Image:
    return Text(part.text) if isinstance(part, TextPart) else picture_of(part.url, where)


def _segment(data: str | PictureData, where: str) -> Text | Image:
    return Text(data) if isinstance(data, str) else picture_of(data.url, where)


def picture_of(url: str, where: str) -> Image:
    """The picture in a data URL; RequestRefused where there is none that can be read."""
    media = Media(url)
    reason = "only data URLs are read (data:image/png;base64,...); nothing is fetched"
    try:
        if not media.is_remote:
            return read_picture(embedded(media))
    except MediaError as error:
        reason = str(error)
    raise RequestRefused(400, "invalid_image", f"{where}: {reason}", param=where)


def refuse_other_sampling(request: ChatRequest, stage: StageSpec) -> None:
    """RequestRefused where the request samples otherwise than the drafting stage does."""
    for name in _SAMPLED:
        value, own = getattr(request, name), stage.settings.get(name)
        if value is not None and value != own:
            raise fixed(stage, name, name, value, own)


def token_limit(
    request: ChatRequest, settings: Mapping[str, Any], takes_limit: bool
) -> int | None:
    """The limit that the stage must be told; RequestRefused where it takes none.

    A limit that is no lower than the stage's own holds anyway.
    """
    most = request.most_tokens
    own = next((settings[k] for k in _LIMITS if settings.get(k) is not None), None)
    if most is None or (own is not None and most >= own):
        return None
    if takes_limit:
        return most
    known = "not known to the server" if own is None else f"{own} tokens"
    raise unsupported(
        f"the longest answer is fixed while the server runs ({known}); {most} cannot be "
        "honoured: leave max_tokens out",
        "max_tokens",
    )


def limited(
    walk: Generator[list[Job], list[Outcome[Any]], R], max_tokens: int | None
) -> Generator[list[Job], list[Outcome[Any]], R]:
    """The same walk, whose drafts have at most `max_tokens` tokens."""
    try:
        jobs = next(walk)
        while True:
            jobs = walk.send((yield _with_limit(jobs, max_tokens)))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def _with_limit(jobs: Sequence[Job], max_tokens: int | None) -> list[Job]:
    return [
        replace(job, input=replace(job.input, max_tokens=max_tokens))
        if job.spec.kind is Kind.DRAFT and isinstance(job.input, Request)
        else job
        for job in jobs
    ]
