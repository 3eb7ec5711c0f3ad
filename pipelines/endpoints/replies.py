"""What servers answer: the parts of a reply, and its usage."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import Any, TypeVar

from plait.generators.base import Failure, Fault
from plait.generators.document import Text
from plait.generators.thoughts import Reply, begins_thought, fences, separate
from plait.pipelines.chat.endings import (
    CUT,
    CUT_NOTE,
    THOUGHT,
    THOUGHT_CHARACTERS,
    Ending,
    ending,
)
from plait.pipelines.endpoints.errors import (
    MalformedReply,
    Meaning,
    SaidError,
    describe,
    meaning,
    start_of,
)
from plait.pipelines.endpoints.media import Media

ORDER_UNKNOWN = "unknown: the server gives images apart from the text"

_TEXTS = ("text", "output_text", "input_text")
_THOUGHTS = (
    *("thinking", "redacted_thinking", "reasoning", "reasoning_text", "summary_text"),
    *("reasoning_content", "thought"),
)
_THOUGHT_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking")
"""Of a message, by a server that has a parser for thoughts."""
_THOUGHT_WORDS = (
    "text",
    "thinking",
    "reasoning",
    "reasoning_content",
    "content",
    "summary",
)
_IMAGES = ("image_url", "image", "output_image", "input_image")
_SOURCES = ("image_url", "url", "b64_json", "image", "data", "source", "result")
_TYPES = ("mime_type", "media_type", "mimeType")
_NAMES: Mapping[type, str] = {Mapping: "an object", list: "a list", str: "text"}
_SHOWN_OF_BODY = 200
_SHOWN_OF_COUNT = 40
T = TypeVar("T")


def count_usage(
    usage: Any, paths: Mapping[str, str], positive: Sequence[str] = ()
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return a server's counts by plait's names, and what a record says of refused ones.

    `paths` say where each stands, as `details.cached_tokens`, or `b` where there is no `a`
    in "a | b"; "a + b" is known where both are. What is no count of anything counts as not
    given, and so does 0 of `positive`.
    """
    known: dict[str, float] = {}
    # By path, since several sums may have a term in common.
    refused: dict[str, str] = {}
    counts: dict[str, float] = {}
    for name, path in paths.items():
        terms = path.split(" + ")
        for term in terms:
            value = at(usage, term)
            if is_count(value):
                known[term] = value
            elif value is not None:
                field_name = term.partition(" | ")[0].rpartition(".")[2]
                refused[term] = f"{field_name}: {value}"[:_SHOWN_OF_COUNT]
        if known.keys() >= {*terms}:
            count = sum(known[term] for term in terms)
            if count or name not in positive:
                counts[name] = count
    return counts, {"usage_refused": list(refused.values())} if refused else {}


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


def list_at(body: Mapping[str, Any], name: str) -> list[Any]:
    """Return a body's list, which is empty where an error takes its place.

    MalformedReply for anything else.
    """
    found = body.get(name)
    has_failed = found is None and bool(body.get("error"))
    return [] if has_failed else list(of_type(found, list, name))


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
    lost: str | None = None
    """Why a thought stands in the place of an answer."""
    thought_field: str | None = None
    """Where the server gave the thought, apart from the text."""
    error: SaidError | None = None
    """An error that the reply holds, and whose code says what follows from it."""

    @property
    def whole_text(self) -> str:
        """All text as it came."""
        return "".join(part.text for part in self.segments if isinstance(part, Text))

    @property
    def text(self) -> str:
        """All text, without white space around it."""
        return self.whole_text.strip()

    @property
    def images(self) -> list[Media]:
        """The images, in order."""
        return [part for part in self.segments if isinstance(part, Media)]

    def failure(self, reason: str, fault: Fault) -> Failure:
        """Return a failure, with the text that came nevertheless."""
        notes = {**self.notes, "text": self.text} if self.text else self.notes
        return Failure(reason, fault, self.usage, notes)

    def problem(self) -> Failure | None:
        """Return the failure that a refused, broken or empty reply is."""
        if self.unreadable and not self.blocked:
            parts = ", ".join(dict.fromkeys(self.unreadable))
            reason = f"the reply holds what is neither text nor an image: {parts}"
            return self.failure(reason, Fault.ERROR)
        if failure := self.stop():
            return failure
        if self.lost or not (self.text or self.images):
            return self.failure(self._empty(), Fault.ERROR)
        return None

    def stop(self) -> Failure | None:
        """Return the failure of a reply that was refused, or broken off by the server."""
        if self.blocked:
            return self.failure("; ".join(self.blocked), Fault.REFUSED)
        if not self.stopped:
            return None
        is_final = self.error is not None and meaning(self.error) is Meaning.RECORD
        fault = Fault.BAD_INPUT if is_final else Fault.ENDPOINT
        return self.failure("; ".join(dict.fromkeys(self.stopped)), fault)

    def _empty(self) -> str:
        """Say why there is no answer, and what helps."""
        what = self.lost or "the reply is empty"
        what += f" (finish reason {self.finish})"
        is_cut = ending(self.finish) is Ending.CUT
        if self.lost:
            return f"{what}; raise max_tokens, or give the server a reasoning parser"
        if name := self.thought_field:
            parser = "start the server without its reasoning parser, or with another one"
            advice = "raise max_tokens" if is_cut else parser
            return f"{what}: the text is in {name}; {advice}"
        if is_cut:
            return f"{what}: all tokens went into reasoning; raise max_tokens"
        return what

    def complete(
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
        if ending(finish) is Ending.CUT:
            notes[CUT] = CUT_NOTE
            usage = {**usage, CUT: 1}
        return replace(self, usage={**usage, **drawn}, notes=notes, finish=finish)

    def add_finish(self, finish: str | None, said: str | None = None) -> None:
        """Add why an answer ended, and what the server says of it."""
        kind = ending(finish)
        why = f"the answer was stopped ({finish}) {said or ''}".strip()
        if kind is Ending.BROKEN:
            self.stopped.append(why)
        elif kind is Ending.REFUSED and not self.blocked:
            self.blocked.append(why)

    def add_error(self, said: Any, usage: Mapping[str, float]) -> None:
        """Add the error that a reply holds beside an answer or in its place, if any.

        Where its code says nothing and something was paid for, as the reply's `usage` says,
        it is not tried again at once.
        """
        if not said:
            return
        error = SaidError(said)
        if meaning(error) is Meaning.REFUSED:
            self.blocked.append(describe(error))
            return
        self.stopped.append(describe(error))
        if error.coded or not (self.text or self.images or usage.get("output_tokens")):
            self.error = self.error or error

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
        if self.text:
            self.notes["order"] = ORDER_UNKNOWN
        self.add_image(media, what)

    def add_thought(self, words: str = "") -> None:
        """Count and note a thought of the model, which is no part of its answer.

        `words` is empty where the server does not give them.
        """
        self.notes["thoughts"] = self.notes.get("thoughts", 0) + 1
        known = self.notes.get(THOUGHT, "")
        # Some servers give it both in the text and apart.
        if (words := _DATA.sub(r"\1...", words).strip()) and words != known:
            self.notes[THOUGHT] = f"{known}\n\n{words}".strip()

    def add_part(self, part: Any) -> None:
        """Add a part of a list `content`."""
        if isinstance(part, str):
            self.add_text(part)
            return
        kind = of_type(part, Mapping, "a part").get("type")
        if kind in _THOUGHTS or part.get("thought") is True:
            # Gateways to Gemini mark a part of a thought so.
            self.add_thought(words_of(part))
        elif kind in _TEXTS:
            self.add_text(part.get("text"))
        elif kind in _IMAGES:
            self.add_image(media_of(part), f"a part of type {kind!r}")
        elif kind == "refusal":
            self.blocked.append(f"refused: {part.get('refusal')}")
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
        for name in _THOUGHT_FIELDS:
            words = words_of(message.get(name))
            # Some servers give one thought in two fields.
            if words.strip() and self.thought_field is None:
                self.thought_field = name
                self.add_thought(words)
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
    types = [part[name] for name in _TYPES if isinstance(part.get(name), str)]
    for name in _SOURCES:
        value = part.get(name)
        if isinstance(value, str) and value:
            return Media(value, types[0] if types else None, text_at(part, "sha256"))
        if isinstance(value, Mapping) and (inner := media_of(value)):
            return inner
    return None


def of_type(value: Any, kind: Any, what: str) -> Any:
    """Return `value`; MalformedReply where it is of another type."""
    if not isinstance(value, kind):
        raise MalformedReply(f"{what} is a {type(value).__name__}, not {_NAMES[kind]}")
    return value


def words_of(thought: Any) -> str:
    """Return the words of a thought, in whatever shape a server gives them."""
    if isinstance(thought, str):
        return thought
    if isinstance(thought, list):
        return "\n\n".join(filter(None, map(words_of, thought)))
    if isinstance(thought, Mapping):
        for name in _THOUGHT_WORDS:
            if words := words_of(thought.get(name)):
                return words
    return ""


_MARK = "<image>"


def place_images(reply: EndpointReply) -> EndpointReply:
    """Return a reply with its images where the text has a mark for each.

    So SenseNova-U1's server answers (LightLLM): `<image>` in the text, the images apart.
    Where marks and images are not as many, the order is unknown.
    """
    pieces = reply.whole_text.split(_MARK)
    if "order" not in reply.notes or len(pieces) != len(reply.images) + 1:
        return reply
    notes = {name: note for name, note in reply.notes.items() if name != "order"}
    segments: list[Text | Media] = [Text(pieces[0])]
    for image, piece in zip(reply.images, pieces[1:], strict=True):
        segments += [image, Text(piece)]
    return replace(reply, segments=segments, notes=notes)


def answer_of(reply: EndpointReply, *, opened: bool = False) -> EndpointReply:
    """Return a reply without its thoughts, and with the images that its text holds.

    With `opened`, the prompt has ended inside a thought. An image of a thought stays.
    """
    is_open = opened and reply.thought_field is None
    whole = with_images(without_thoughts(reply, opened=is_open))
    usage = dict(whole.usage)
    if whole.images:
        usage["images"] = float(len(whole.images))
    if thought := whole.notes.get(THOUGHT):
        usage[THOUGHT_CHARACTERS] = len(thought)
    return replace(whole, usage=usage)


def without_thoughts(reply: EndpointReply, *, opened: bool = False) -> EndpointReply:
    """Return a reply without a thought at its beginning, or after one of its images."""
    mark = _unused_character(reply.whole_text)
    if mark is None:
        return reply
    # A thought may begin in one text and end behind an image, which the mark stands for.
    rest = "".join(part.text if isinstance(part, Text) else mark for part in reply.segments)
    images = iter(reply.images)
    bare = replace(reply, segments=[], notes=dict(reply.notes))
    said = separate(rest, opened=opened)
    losses = list[str]()
    while True:
        if said.unfinished or said.text != rest:
            bare.add_thought(said.thought.replace(mark, ""))
            if said.loss:
                losses.append(said.loss)
        # An image of a thought stays.
        bare.segments += islice(images, said.thought.count(mark))
        text, found, rest = said.text.partition(mark)
        bare.segments += [Text(text), *islice(images, len(found))]
        if said.unfinished or not found:
            break
        said = separate(rest) if begins_thought(rest) else Reply(rest)
    bare.segments += images
    if said.unfinished or not (bare.text or bare.images):
        bare.lost = next(iter(losses), None)
    return reply if bare.notes == reply.notes else bare


def _unused_character(text: str) -> str | None:
    """Return a character of Unicode's private use area that a text does not hold."""
    for code in range(0xE000, 0xF900):
        if chr(code) not in text:
            return chr(code)
    return None


_ADDRESS = r"""(?P<{0}>data:[^\s()"'<>,]*;base64,[\w+/=\-\s]*+
    |(?:data:|https?://)(?:[^\s()"'<>]++|\([^\s()"'<>]*+\))++)"""
_IMAGE_IN_TEXT = re.compile(
    rf"""!\[(?:\\.|[^\]\\]){{0,300}}+\]\(\s*<?{_ADDRESS.format("markdown")}>?
        (?:\s*(?:"[^"]*+"|'[^']*+'))?\s*\)
    |<img\b[^>]{{0,300}}?\bsrc\s*=\s*["']?{_ADDRESS.format("html")}["']?[^>]*+>
    |(?P<bare>data:image/[\w.+-]++;base64,[A-Za-z0-9+/=_-]{{100,}}+)""",
    re.IGNORECASE | re.VERBOSE,
)
_DATA = re.compile(r"(data:[\w/.+-]*+;base64,)[A-Za-z0-9+/=_-]+")


def with_images(reply: EndpointReply) -> EndpointReply:
    """Return a reply with the images that its text shows, each in its place.

    A text shows an image by its data or its address, in Markdown or HTML. A link that only
    leads to one, a file's name and what stands in code are text.
    """
    segments: list[Text | Media] = []
    in_text: list[Media] = []
    # Texts that follow each other are one: a server may cut one anywhere.
    for is_text, run in groupby(reply.segments, lambda part: isinstance(part, Text)):
        if not is_text:
            segments += run
            continue
        parts = _find_media("".join(part.text for part in run if isinstance(part, Text)))
        segments += parts
        for part in parts:
            if isinstance(part, Media):
                in_text.append(part)
    if not in_text:
        return reply
    # Some servers give it apart from the text as well.
    again = [image for image in reply.images if image in in_text]
    # By identity: the image in the text, which is equal, is to stay.
    ids_again = set(map(id, again))
    kept = [part for part in segments if id(part) not in ids_again]
    notes = dict(reply.notes)
    if len(again) == len(reply.images):
        notes.pop("order", None)
    return replace(reply, segments=kept, notes=notes)


def _find_media(text: str) -> list[Text | Media]:
    """Return the images that a text shows, and the texts around them."""
    parts: list[Text | Media] = []
    end = 0
    before = 0
    in_block = False
    for found in _IMAGE_IN_TEXT.finditer(text):
        # Each fence since the last image opens a block of code, or closes it.
        in_block ^= fences(text, before, found.start()) % 2 == 1
        before = found.start()
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        in_code = line.count("`") % 2 == 1
        if in_code or in_block:
            continue
        address = next(filter(None, found.groups()))
        parts += [Text(text[end : found.start()]), Media(address.strip())]
        end = found.end()
    return [*parts, Text(text[end:])]


_CHAT_USAGE = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "cached_tokens": "prompt_tokens_details.cached_tokens",
    "reasoning_tokens": "completion_tokens_details.reasoning_tokens",
    "image_output_tokens": "completion_tokens_details.image_tokens",
}


def chat_completion(body: Mapping[str, Any]) -> EndpointReply:
    """Return what a chat completion says; MalformedReply where it has another shape."""
    reply = EndpointReply()
    finish = None
    # An old form of vLLM's errors.
    body = {"error": body, **body} if body.get("object") == "error" else body
    choices = list_at(body, "choices")
    # SGLang-Omni's, where they do not stand in the message.
    segments = body.get("segments")
    if not (choices or segments or body.get("error")):
        reply.stopped.append("the reply has no choices")
    errors = [body.get("error")]
    # One answer is asked for: vLLM-Omni gives what each of its stages adds as a choice.
    for choice in choices or [{}]:
        said = of_type(choice, Mapping, "a choice").get("message")
        message = of_type(said or {}, Mapping, "a message")
        reply.add_message(message, segments)
        own = finish_at(choice, "finish_reason")
        reply.add_finish(own)
        errors.append(choice.get("error"))
        finish = finish or own
    counts = count_usage(body.get("usage"), _CHAT_USAGE)
    for one in errors:
        reply.add_error(one, counts[0])
    return reply.complete(counts, finish, text_at(body, "model"))


def read_reply(
    read: Callable[[Mapping[str, Any]], EndpointReply],
    body: bytes,
    *,
    opened: bool = False,
) -> EndpointReply:
    """Return the answer that a body holds, as `answer_of` does.

    MalformedReply as for `read_body`; SaidError where it holds an error that another
    attempt may mend, or that all requests will meet.
    """
    return without_error(answer_of(read_body(read, body), opened=opened))


def without_error(reply: EndpointReply) -> EndpointReply:
    """Return a reply; raise the SaidError of one that may be mended by another attempt."""
    error = None if reply.blocked else reply.error
    if error is None or meaning(error) is Meaning.RECORD:
        return reply
    error.usage = reply.usage
    error.text = reply.text
    raise error


def read_body(read: Callable[[Mapping[str, Any]], T], body: bytes) -> T:
    """Return `read` of a body's JSON object; MalformedReply shows how another begins."""
    try:
        return read(of_type(json.loads(body), Mapping, "the reply"))
    except (ValueError, RecursionError) as error:
        start = body[: 10 * _SHOWN_OF_BODY].decode(errors="replace")
        shown = start_of(start, _SHOWN_OF_BODY)
        what = "" if isinstance(error, MalformedReply) else "not JSON: "
        raise MalformedReply(f"{what}{error}: {shown!r}") from None
