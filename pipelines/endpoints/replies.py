"""What servers answer: the parts of a reply, and its usage."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from generators.base import Failure, Fault
from generators.document import Text
from pipelines.endpoints.errors import MalformedReply, start_of
from pipelines.endpoints.media import Media

ORDER_UNKNOWN = "unknown: the server gives images apart from the text"

_TEXTS = ("text", "output_text", "input_text")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_text", "summary_text")
_IMAGES = ("image_url", "image", "output_image", "input_image")
_SOURCES = ("image_url", "url", "b64_json", "image", "data", "source", "result")
_TYPES = ("mime_type", "media_type", "mimeType")
_NAMES: Mapping[type, str] = {Mapping: "an object", list: "a list", str: "text"}
_SHOWN_OF_BODY = 200
_SHOWN_OF_COUNT = 40
T = TypeVar("T")


def counted(
    usage: Any, paths: Mapping[str, str], positive: Sequence[str] = ()
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return a server's counts by plait's names, and what a record says of refused ones.

    `paths` say where each stands, as `details.cached_tokens`, or `b` where there is no `a`
    in "a | b"; "a + b" is known where both are. What is no count of anything counts as not
    given, and so does 0 of `positive`.
    """
    parts = {name: path.split(" + ") for name, path in paths.items()}
    given = {path: at(usage, path) for own in parts.values() for path in own}
    known = {path: value for path, value in given.items() if is_count(value)}
    refused = [
        f"{path.partition(' | ')[0].rpartition('.')[2]}: {value}"[:_SHOWN_OF_COUNT]
        for path, value in given.items()
        if value is not None and path not in known
    ]
    sums = {
        n: sum(known[p] for p in own) for n, own in parts.items() if known.keys() >= {*own}
    }
    counts = {n: count for n, count in sums.items() if count or n not in positive}
    return counts, {"usage_refused": refused} if refused else {}


def at(value: Any, path: str) -> Any:
    """Return what stands at `a.b`, or at the first of "a | b" that is there; else None."""
    for one in path.split(" | "):
        found = value
        for name in one.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is not None:
            return found
    return None


def text_at(value: Any, path: str) -> str | None:
    """Return the text there; None for anything else."""
    found = at(value, path)
    return found if isinstance(found, str) else None


def finish_at(value: Any, path: str) -> str | None:
    """Return the finish reason there; MalformedReply for one that is not text."""
    found: str | None = at(value, path)
    return found if found is None else str(of_type(found, str, path))


def is_count(value: Any) -> bool:
    """Return whether a server's number can count anything."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    # JSON has whole numbers that no float can hold.
    return 0 <= value <= sys.float_info.max


@dataclass(slots=True, kw_only=True)
class EndpointReply:
    """One answer of any API, and what is recorded with the outcome besides its value."""

    segments: list[Text | Media] = field(default_factory=list)
    usage: dict[str, float] = field(default_factory=dict)
    """The server's own counts, those that it gives, and the images."""
    notes: dict[str, Any] = field(default_factory=dict)
    finish: str | None = None
    """Why it ends: `stop`, `length`, `content_filter`, ..."""
    blocked: list[str] = field(default_factory=list)
    """Why the server refuses to answer: asking again is no use."""
    stopped: list[str] = field(default_factory=list)
    """Why the answer is not whole."""
    unreadable: list[str] = field(default_factory=list)
    """What is neither text nor an image, or an image without its bytes."""

    @property
    def text(self) -> str:
        """All text, without white space around it."""
        return "".join(s.text for s in self.segments if isinstance(s, Text)).strip()

    @property
    def images(self) -> list[Media]:
        """The images, in order."""
        return [s for s in self.segments if isinstance(s, Media)]

    def failure(self, reason: str, fault: Fault) -> Failure:
        """Return a failure, with the text that came nevertheless."""
        notes = {**self.notes, "text": self.text} if self.text else self.notes
        return Failure(reason, fault, self.usage, notes)

    def problem(self) -> Failure | None:
        """Return the failure that a refused, broken or empty reply is."""
        if self.blocked:
            return self.failure("; ".join(self.blocked), Fault.REFUSED)
        if self.unreadable:
            parts = ", ".join(dict.fromkeys(self.unreadable))
            reason = f"the reply holds what is neither text nor an image: {parts}"
            return self.failure(reason, Fault.ERROR)
        if self.stopped:
            return self.failure("; ".join(self.stopped), Fault.ERROR)
        if self.text or self.images:
            return None
        reason = f"the reply is empty (finish reason {self.finish})"
        if self.finish in ("length", "MAX_TOKENS", "max_output_tokens"):
            reason += ": all tokens went into reasoning; raise max_tokens"
        return self.failure(reason, Fault.ERROR)

    def ended(
        self,
        counts: tuple[Mapping[str, float], Mapping[str, Any]],
        finish: str | None,
        model: str | None,
    ) -> EndpointReply:
        """Return it whole; `model` is often a dated version of the one requested."""
        usage, refused = counts
        drawn = {"images": float(len(self.images))} if self.images else {}
        about = {"finish": finish, "model": model}
        notes = {**about, **self.notes, **refused}
        return replace(self, usage={**usage, **drawn}, notes=notes, finish=finish)

    def add_text(self, text: Any) -> None:
        """Add text; what is not a string cannot be read."""
        if isinstance(text, str):
            self.segments.append(Text(text))
        else:
            self.unreadable.append(f"a text that is a {type(text).__name__}")

    def add_image(self, media: Media | None, what: str) -> None:
        """Add an image; `what` names it where its bytes are missing."""
        if media is None:
            self.unreadable.append(f"{what} without image data")
        else:
            self.segments.append(media)

    def add_late(self, media: Media | None, what: str) -> None:
        """Add an image that stands apart from the text, unless it is there already."""
        if media is not None and media in self.segments:
            return
        if any(isinstance(s, Text) and s.text.strip() for s in self.segments):
            self.notes["order"] = ORDER_UNKNOWN
        self.add_image(media, what)

    def add_thought(self) -> None:
        """Count a thought of the model, which is no part of its answer."""
        self.notes["thoughts"] = self.notes.get("thoughts", 0) + 1

    def add_part(self, part: Any) -> None:
        """Add a part of a list `content`."""
        if isinstance(part, str):
            self.add_text(part)
            return
        kind = of_type(part, Mapping, "a part").get("type")
        if kind in _TEXTS:
            self.add_text(part.get("text"))
        elif kind in _IMAGES:
            self.add_image(media_of(part), f"a part of type {kind!r}")
        elif kind == "refusal":
            self.blocked.append(f"refused: {part.get('refusal')}")
        elif kind in _THOUGHTS:
            self.add_thought()
        else:
            self.unreadable.append(f"a part of type {kind!r}")

    def add_segment(self, segment: Any) -> None:
        """Add a segment of SGLang-Omni: `kind` and `data`."""
        data = of_type(segment, Mapping, "a segment").get("data")
        match segment.get("kind"):
            case "text":
                self.add_text(data.get("text") if isinstance(data, Mapping) else data)
            case "image":
                self.add_image(media_of(segment), "a segment of kind 'image'")
            case kind:
                self.unreadable.append(f"a segment of kind {kind!r}")

    def add_message(self, message: Mapping[str, Any], segments: Any = None) -> None:
        """Add a message of a chat completion; `segments` are those beside it, if any.

        Ordered segments come before a list `content`, that before `images`: what a later
        one repeats is left out, what only it holds is added. MalformedReply for other
        shapes.
        """
        ordered = of_type(message.get("segments") or segments or [], list, "segments")
        content = message.get("content")
        for segment in ordered:
            self.add_segment(segment)
        if ordered:
            for part in content if isinstance(content, list) else ():
                if isinstance(part, Mapping) and part.get("type") in _IMAGES:
                    self.add_late(media_of(part), "a part of the content")
        elif isinstance(content, list):
            for part in content:
                self.add_part(part)
        elif content is not None:
            self.add_text(of_type(content, str, "content"))
        for image in of_type(message.get("images") or [], list, "images"):
            self.add_late(media_of(image), "an item of images")
        if message.get("audio"):
            self.unreadable.append("audio")
        if message.get("refusal"):
            self.blocked.append(f"refused: {message['refusal']}")


def media_of(part: Any) -> Media | None:
    """Return the image in a JSON object of a reply, None where there is none."""
    if isinstance(part, str):
        return Media(part) if part else None
    if not isinstance(part, Mapping):
        return None
    mime = next((part[t] for t in _TYPES if isinstance(part.get(t), str)), None)
    for name in _SOURCES:
        value = part.get(name)
        if isinstance(value, str) and value:
            digest = part.get("sha256")
            return Media(value, mime, digest if isinstance(digest, str) else None)
        if isinstance(value, Mapping) and (inner := media_of(value)):
            return inner
    return None


def of_type(value: Any, kind: Any, what: str) -> Any:
    """Return `value`; MalformedReply where it is of another type."""
    if not isinstance(value, kind):
        raise MalformedReply(f"{what} is a {type(value).__name__}, not {_NAMES[kind]}")
    return value


_MARK = "<image>"
_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)


def placed(reply: EndpointReply) -> EndpointReply:
    """Return a reply without its thoughts, its images where the text has a mark for each.

    So SenseNova-U1's server answers (LightLLM): `<image>` in the text, the images apart. An
    image of a thought stays; where marks and images are not as many, the order is unknown.
    """
    texts = "".join(s.text for s in reply.segments if isinstance(s, Text))
    bare, thoughts = _THOUGHT.subn(lambda found: _MARK * found[1].count(_MARK), texts)
    notes = {**reply.notes, "thoughts": thoughts} if thoughts else dict(reply.notes)
    pieces = bare.split(_MARK)
    segments: list[Text | Media]
    if "order" not in notes:
        segments = [
            s if isinstance(s, Media) else Text(_THOUGHT.sub("", s.text))
            for s in reply.segments
        ]
    elif len(pieces) == len(reply.images) + 1:
        del notes["order"]
        segments = [Text(pieces[0])]
        for image, piece in zip(reply.images, pieces[1:], strict=True):
            segments += [image, Text(piece)]
    else:
        segments = [Text(bare), *reply.images]
    return replace(reply, segments=segments, notes=notes)


_CHAT_USAGE = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "cached_tokens": "prompt_tokens_details.cached_tokens",
    "reasoning_tokens": "completion_tokens_details.reasoning_tokens",
    "image_output_tokens": "completion_tokens_details.image_tokens",
}


def chat_completion(body: Mapping[str, Any]) -> EndpointReply:
    """Return what a chat completion says; MalformedReply where it has another shape."""
    reply, finish = EndpointReply(), None
    choices = of_type(body.get("choices"), list, "choices")
    # SGLang-Omni's, where they do not stand in the message.
    segments = body.get("segments")
    if not choices and not segments:
        reply.stopped.append("the reply has no choices")
    # One answer is asked for: vLLM-Omni gives what each of its stages adds as a choice.
    for choice in choices or [{}]:
        said = of_type(choice, Mapping, "a choice").get("message")
        message = of_type(said or {}, Mapping, "a message")
        reply.add_message(message, segments)
        finish = finish or finish_at(choice, "finish_reason")
    if (finish or "").startswith("content_filter") and not reply.blocked:
        reply.blocked.append(f"stopped by the content filter ({finish})")
    counts = counted(body.get("usage"), _CHAT_USAGE)
    return reply.ended(counts, finish, text_at(body, "model"))


def read_body(read: Callable[[Mapping[str, Any]], T], body: bytes) -> T:
    """Return `read` of a body's JSON object; MalformedReply shows how another begins."""
    try:
        return read(of_type(json.loads(body), Mapping, "the reply"))
    except (ValueError, RecursionError) as error:
        start = body[: 10 * _SHOWN_OF_BODY].decode(errors="replace")
        shown = start_of(start, _SHOWN_OF_BODY)
        what = "" if isinstance(error, MalformedReply) else "not JSON: "
        raise MalformedReply(f"{what}{error}: {shown!r}") from None
