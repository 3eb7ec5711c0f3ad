"""Work on requests: join texts, fill a template, follow up a reply, check, answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Formatter
from typing import TypeVar

from plait.generators.base import Failure, Fault, Outcome, Skip
from plait.generators.document import (
    Content,
    Image,
    ImageRequest,
    Query,
    Request,
    Text,
    Turn,
    content_of_turns,
)

T = TypeVar("T")
V = TypeVar("V")

EMPTY_REPLY = "(empty reply)"
"""Replaces a reply without text: chat templates refuse an empty turn."""


def join_texts(segments: Iterable[Text | Image]) -> Content:
    """Return `segments` with neighbouring texts joined, and without empty texts."""
    parts: list[Text | Image] = []
    for segment in segments:
        last = parts[-1] if parts else None
        if isinstance(segment, Text) and isinstance(last, Text):
            parts[-1] = Text(last.text + segment.text)
        elif isinstance(segment, Image) or segment.text:
            parts.append(segment)
    return tuple(parts)


def space_out(content: Content) -> Content:
    """`content` with every segment on a line of its own."""
    lines: list[Text | Image] = []
    for i, segment in enumerate(content):
        if i > 0:
            lines.append(Text("\n"))
        lines.append(segment)
    return join_texts(lines)


def last_question(query: Query) -> int:
    """Return the place of the last user turn."""
    return max(i for i, turn in enumerate(query.turns) if turn.role == "user")


def history(query: Query) -> Content:
    """Return all turns before the last user turn, each under its speaker's name."""
    segments: list[Text | Image] = []
    for turn in query.turns[: last_question(query)]:
        who = {"user": "User", "assistant": "Assistant", "system": "System"}[turn.role]
        segments += (Text(f"{who}:\n"), *space_out(turn.content), Text("\n\n"))
    return join_texts(segments)


def text_with_marks(content: Content) -> str:
    """Return the text, one segment a line, with a mark in place of each image."""
    lines = []
    for segment in content:
        lines.append(segment.text if isinstance(segment, Text) else "<image>")
    return "\n".join(lines)


def fill(template: str, fields: Mapping[str, Content]) -> Content:
    """Return `template` with content in its `{fields}`, as `str.format` fills in text.

    Braces inside the content are left as they are. Raises KeyError for a field that is
    not given.
    """
    segments: list[Text | Image] = []
    for literal, name, _, _ in Formatter().parse(template):
        segments.append(Text(literal))
        if name is not None:
            segments += fields[name]
    return join_texts(segments)


def follow_up(turns: Sequence[Turn], reply: str, text: str) -> tuple[Turn, ...]:
    """Return the conversation, the model's reply to it, and `text` as the user's answer."""
    answer = Turn("assistant", (Text(reply or EMPTY_REPLY),))
    return (*turns, answer, Turn("user", (Text(text),)))


def unanswerable(request: Request, sampled: bool) -> Failure | None:
    """Return the failure of a request without content, or of one that cannot be sampled."""
    return failure_without_seed(request, sampled) or empty(content_of_turns(request.turns))


def failure_without_seed(request: Request, sampled: bool) -> Failure | None:
    """Return the failure of a request without a seed where tokens are `sampled`."""
    if not sampled or request.seed is not None:
        return None
    return Failure("the request has no seed, but tokens are sampled")


def empty(content: Iterable[Text | Image]) -> Failure | None:
    """Return the failure of content with neither images nor text but white space."""
    for segment in content:
        if isinstance(segment, Image) or segment.text.strip():
            return None
    return Failure("the request holds neither text nor images")


def answer_all(
    read: Sequence[T | Skip | Failure], answer: Callable[[list[T]], Iterable[Outcome[V]]]
) -> list[Outcome[V]]:
    """Return one outcome per input, in order.

    `read` holds each input as a model reads it, or why it cannot; `answer` is given those
    that can be answered, if there are any, as one batch.
    """
    ready = [one for one in read if not isinstance(one, Skip | Failure)]
    answers = iter(answer(ready) if ready else ())
    outcomes: list[Outcome[V]] = []
    for one in read:
        # The answers are in the order of the inputs that were ready.
        outcomes.append(one if isinstance(one, Skip | Failure) else next(answers))
    return outcomes


def prompt_and_seed(
    request: ImageRequest, prefix: str, *, images: bool = False
) -> tuple[str, int] | Failure:
    """Return what is drawn and the seed of its noise, or why nothing can be drawn.

    `images` says whether the model draws from images besides, the request's context.
    """
    prompt = request.prompt
    seed = request.seed
    shown = images and all(isinstance(part, Image) for part in request.context)
    if request.payload is not None or (request.context and not shown):
        reason = "a text-to-image model reads prompts; the request holds more than a prompt"
    elif prompt is None or not prompt.strip():
        reason = f"the request's prompt is empty: {prompt!r}"
    elif seed is None:
        reason = "the request has no seed"
    else:
        return prefix + prompt, seed
    return Failure(reason, Fault.BAD_INPUT)


def display_text(parts: Iterable[str | Image], mark: str = "<image>") -> str:
    """Return the prompt for readers of the result, with a `mark` for each image."""
    return "".join(mark if isinstance(part, Image) else part for part in parts)
