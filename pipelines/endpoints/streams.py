"""Replies of servers that stream although they were not asked to (server-sent events)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from plait.pipelines.endpoints.errors import MalformedReply

_FIELDS = ("data:", "event:", "id:", "retry:", ":")
"""How lines of an event stream begin (WHATWG HTML, section 9.2.6)."""
_END = "[DONE]"
_LOOKED_AT = 64
_RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")


def completion_body(body: bytes) -> bytes:
    """Return the JSON of one chat completion, which may have come in pieces.

    MalformedReply for a stream that breaks off. A body of another kind comes back as it is.
    """
    events = _events(body)
    if events is None:
        return body
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        parts = event.get("choices")
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, Mapping):
                _add(choices.setdefault(_index(part), {"message": {}}), part)
        whole |= {k: v for k, v in event.items() if k != "choices" and v is not None}
    ended = any(choice.get("finish_reason") for choice in choices.values())
    if not (ended or whole.get("error") or _has_end(body)):
        raise MalformedReply("the server streams, and its stream breaks off")
    ordered = [choices[index] for index in sorted(choices)]
    return json.dumps({**whole, "choices": ordered}).encode()


def response_body(body: bytes) -> bytes:
    """Return the JSON of one response, as `completion_body` does of a chat completion."""
    events = _events(body)
    if events is None:
        return body
    for event in events:
        if event.get("type") in _RESPONSE_ENDS or event.get("object") == "response":
            return json.dumps(event.get("response") or event).encode()
        if event.get("type") == "error":
            about = event.get("error") or {n: event.get(n) for n in ("code", "message")}
            return json.dumps({"output": [], "error": about}).encode()
    raise MalformedReply("the server streams, and its stream breaks off")


def _events(body: bytes) -> list[Mapping[str, Any]] | None:
    """Return the JSON objects of a stream's events; None for a body that is no stream.

    Some servers end a plain JSON body with the mark of a stream's end.
    """
    start = body[:_LOOKED_AT].decode("utf-8-sig", errors="replace").lstrip()
    ends_alike = start.startswith("{") and _has_end(body)
    if not (ends_alike or start.startswith(_FIELDS)):
        return None
    text = body.decode("utf-8-sig", errors="replace").strip()
    return list(_objects(f"data: {text}" if ends_alike else text))


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    data: list[str] = []
    name = ""
    for line in [*text.split("\n"), ""]:
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif line.startswith("event:"):
            name = line.removeprefix("event:").strip()
        elif not line.startswith(_FIELDS) and line.strip():
            data.append(line)
        elif not line.strip() and data:
            joined = "\n".join(data)
            data.clear()
            if joined.strip() != _END:
                found = _object(joined)
                is_error = name == "error" and "error" not in found
                # Of Responses, an event that says itself that it is an error.
                yield {"error": found} if is_error and "type" not in found else found
            name = ""


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedReply("the server streams events that are not JSON") from None
    return found if isinstance(found, Mapping) else {}


def _has_end(body: bytes) -> bool:
    return body.rstrip().endswith(_END.encode())


def _index(part: Mapping[str, Any]) -> int:
    index = part.get("index")
    return index if isinstance(index, int) else 0


def _add(choice: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add a piece of a choice: texts and lists go on, other values take their place.

    A whole message takes the place of the pieces before it.
    """
    piece = part.get("delta") or part.get("message")
    if not part.get("delta") and isinstance(piece, Mapping):
        choice["message"] = {}
    message = choice["message"]
    for name, value in piece.items() if isinstance(piece, Mapping) else ():
        before = message.get(name)
        joins = type(before) is type(value) and isinstance(value, str | list)
        message[name] = before + value if joins and name != "role" else value or before
    rest = {k: v for k, v in part.items() if k not in ("delta", "message")}
    choice |= {k: v for k, v in rest.items() if v is not None}
