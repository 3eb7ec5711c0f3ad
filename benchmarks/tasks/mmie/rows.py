"""One row of an MMIE file, checked against its schema; no file but the JSON is read.

The published layout, as lmms-eval (`tasks/mmie/utils.py`) and the authors' own runner
(`runable-gill`) read it:

    {"id": "PBL-...", "catagory": "...", "field": "...", "conversations": [
        {"from": "human", "content": [{"text": "..." or null, "image": path or null}]},
        {"from": "gpt",   "content": [...]}]}

`content` is ordered; within an item the text comes before the picture. A row may have a
text `criteria` besides.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.tasks.mmie.categories import category_of, field_of
from benchmarks.tasks.reading.rules import RowError, Rule, shown
from generators.document import Content, Role, Text
from scorers.judging.released import first_truth

SPEAKERS: Mapping[str, Role] = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
}
CATEGORY_KEYS = ("category", "catagory")
"""The published rows misspell it."""
CRITERIA = "criteria"
"""What a judge should look for, as text; the published rows are not known to have it."""
_KNOWN = {"id", "field", "conversations", *CATEGORY_KEYS}
_KINDS: Mapping[type, str] = {str: "a string", list: "a list", dict: "an object"}


@dataclass(frozen=True, slots=True)
class PictureSource:
    """A picture as a row names it: by a path relative to the data, or with its bytes."""

    path: str = ""
    data: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Overlong:
    """Replaces a whole number with more digits than Python reads."""

    digits: int

    def __repr__(self) -> str:
        return f"a number of {self.digits:,} digits"


Parts = tuple[Text | PictureSource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MmieRow:
    """A row of valid shape, whose pictures have not been checked."""

    id: str
    category: str
    field: str
    turns: tuple[tuple[Role, Parts], ...]
    """The conversation up to its last human turn."""
    reference: Parts
    """The answer that follows it; empty where there is none."""
    metadata: Mapping[str, str]
    criteria: str | None

    @property
    def pictures(self) -> tuple[PictureSource, ...]:
        """All pictures of the row."""
        parts = [p for _, content in self.turns for p in content] + list(self.reference)
        return tuple(p for p in parts if isinstance(p, PictureSource))


def parse(value: Any) -> MmieRow:
    """The row that `value` (plain JSON data) holds; RowError names the rule it breaks."""
    row = of_type(value, dict, "the row")
    id = id_of(row)
    category = category_of(id, stated_categories(row))
    turns = [_turn(t, i) for i, t in enumerate(get(row, "conversations", list))]
    asked, answered = _split(turns)
    return MmieRow(
        id=id,
        category=category,
        field=field_of(get(row, "field", str)),
        turns=asked,
        reference=answered,
        metadata=_metadata(row) | _first_truth(row["conversations"][len(asked) :]),
        criteria=_criteria(row),
    )


def _metadata(row: Mapping[str, Any]) -> dict[str, str]:
    known = _KNOWN if _criteria(row) is None else {*_KNOWN, CRITERIA}
    return {k: _as_text(v) for k, v in row.items() if k not in known}


def _criteria(row: Mapping[str, Any]) -> str | None:
    """The criteria where they are text; other values of that name are metadata."""
    text = row.get(CRITERIA)
    return text if isinstance(text, str) and text and not _trouble(text) else None


def id_of(row: Mapping[str, Any]) -> str:
    """The id of a row; RowError where it is missing, empty, or cannot be printed."""
    id: str = get(row, "id", str)
    if not id.strip() or not id.isprintable():
        raise RowError(Rule.ID, f"an id is printable and not empty, unlike {shown(id)}")
    return id


def stated_categories(row: Mapping[str, Any]) -> list[str]:
    """The category that a row states, under either spelling of the key."""
    stated = (row.get(key) for key in CATEGORY_KEYS)
    return [of_type(s, str, "the category") for s in stated if s is not None]


def get(row: Mapping[str, Any], key: str, kind: type, where: str = "the row") -> Any:
    """`row[key]`, which must be of `kind`."""
    if key not in row:
        raise RowError(Rule.MISSING_KEY, f"{where} has no {key!r}")
    inside = "" if where == "the row" else f"{where}."
    return of_type(row[key], kind, f"{inside}{key}")


def of_type(value: Any, kind: type, what: str) -> Any:
    """`value`, which must be of `kind`, and valid Unicode where it is a string."""
    if not isinstance(value, kind):
        raise RowError(
            Rule.WRONG_TYPE, f"{what} must be {_KINDS[kind]}, not {shown(value)}"
        )
    if isinstance(value, str) and (trouble := _trouble(value)):
        raise RowError(Rule.NOT_UNICODE, f"{what} has {trouble}")
    return value


def _as_text(value: Any) -> str:
    if isinstance(value, str) and not _trouble(value):
        return value
    return json.dumps(value, default=_refuse)


def _refuse(value: Any) -> Any:
    raise RowError(Rule.WRONG_TYPE, f"the row holds {shown(value)}")


def _trouble(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"a lone surrogate at character {error.start}"
    return ""


def _turn(value: Any, index: int) -> tuple[Role, Parts]:
    where = f"conversations[{index}]"
    turn = of_type(value, dict, where)
    speaker = get(turn, "from", str, where)
    if speaker not in SPEAKERS:
        valid = ", ".join(SPEAKERS)
        raise RowError(Rule.SPEAKER, f"{where}.from is {shown(speaker)}; valid are {valid}")
    parts = content(get(turn, "content", list, where), f"{where}.content")
    return SPEAKERS[speaker], parts


def _first_truth(answered: list[Any]) -> dict[str, str]:
    """What the official scorer uses as the correct answer, where content lacks it."""
    return first_truth(answered[0]["content"]) if answered else {}


def _split(
    turns: list[tuple[Role, Parts]],
) -> tuple[tuple[tuple[Role, Parts], ...], Parts]:
    """The conversation to be answered, and the answer that follows it."""
    human = [i for i, (role, _) in enumerate(turns) if role == "user"]
    if not human or human[0] != 0:
        raise RowError(Rule.NO_QUESTION, "the conversation must begin with a human turn")
    for i in human:
        if not any(isinstance(p, PictureSource) or p.text.strip() for p in turns[i][1]):
            raise RowError(Rule.EMPTY, f"conversations[{i}] has neither text nor picture")
    end = human[-1] + 1
    return tuple(turns[:end]), tuple(p for _, parts in turns[end:] for p in parts)


def content(items: list[Any], where: str) -> Parts:
    """The texts and pictures of a list of `{"text": ..., "image": ...}`, in order.

    An empty text stays: the official scorer writes a blank line for it.
    """
    parts: list[Text | PictureSource] = []
    for i, value in enumerate(items):
        item = of_type(value, dict, f"{where}[{i}]")
        if "text" not in item and "image" not in item:
            detail = f"{where}[{i}] has neither 'text' nor 'image'"
            raise RowError(Rule.MISSING_KEY, detail)
        if (text := item.get("text")) is not None:
            parts.append(Text(of_type(text, str, f"{where}[{i}].text")))
        if (image := item.get("image")) is not None and image != "":
            parts.append(_picture(image, f"{where}[{i}].image"))
    return tuple(parts)


def says_nothing(content: Content | Parts) -> bool:
    """Whether `content` holds no picture and only empty texts."""
    return not any(not isinstance(part, Text) or part.text for part in content)


def _picture(value: Any, where: str) -> PictureSource:
    """A path, or `{"path": ..., "bytes": ...}` as data set libraries hold a picture."""
    if not isinstance(value, dict):
        return PictureSource(of_type(value, str, where))
    data = value.get("bytes")
    if data is None:
        return PictureSource(get(value, "path", str, where))
    return PictureSource(
        data=data if isinstance(data, bytes) else _from_base64(data, where)
    )


def _from_base64(data: Any, where: str) -> bytes:
    try:
        return base64.b64decode(of_type(data, str, f"{where}.bytes"), validate=True)
    except binascii.Error:
        raise RowError(Rule.UNDECODABLE, f"{where}.bytes is not base64") from None
