"""Digests that name results, and seeds that follow from them. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from json.encoder import encode_basestring_ascii as _string_text
from typing import Any

from plait.generators.document import (
    Blob,
    Candidate,
    Content,
    Document,
    Image,
    ImageRequest,
    LogprobsRequest,
    Payload,
    Request,
    Text,
    TransformRequest,
    Turn,
    WindowedText,
)

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_PLAIN = (str, int, float, bool, type(None))
_EMPTY = ("null", "[]", "{}")
"""Texts of members that an object goes without."""
_MOST_KEPT = 64
"""Documents whose text is remembered, since scorers are given the same ones in turn."""

_NAMES: dict[type, str] = {
    Blob: "Blob",
    Candidate: "Candidate",
    Document: "Document",
    Image: "Image",
    ImageRequest: "ImageRequest",
    Payload: "Payload",
    Request: "Request",
    Text: "Text",
    Turn: "Turn",
}
"""Names in keys of the values that enter them. They never change, even if a class is
renamed: with another name every record of every run would be made again."""


def canonical_text(value: Any) -> str:
    """Return the JSON of `value`, in which equal content has only one form.

    Input values become objects without their empty fields, so that a field added later
    with an empty default changes no existing digest; blobs are named by their digest, but
    payloads by their origin where they have one: the last digits of hidden states differ
    from batch to batch. TypeError for a value of any other class.
    """
    return _WRITERS[type(value)](value)


def _other_text(value: Any) -> str:
    """Return the canonical text of a value whose class is not among `_WRITERS`."""
    if isinstance(value, _PLAIN):
        return _encode(value)
    if isinstance(value, tuple | list):
        return _list_text(value)
    if isinstance(value, Mapping):
        return _mapping_text(value)
    raise TypeError(f"{type(value).__name__} has no canonical form: {value!r}")


def _mapping_text(values: Mapping[Any, Any]) -> str:
    content = {}
    for name, value in values.items():
        content[str(name)] = _WRITERS[type(value)](value)
    names = sorted(content)
    return _object_text([f"{_string_text(name)}:{content[name]}" for name in names])


def _list_text(values: Iterable[Any]) -> str:
    return f"[{','.join([_WRITERS[type(value)](value) for value in values])}]"


def _object_text(members: Iterable[str]) -> str:
    return f"{{{','.join(members)}}}"


def _writer_of(kind: type[Any], name: str) -> Callable[[Any], str]:
    """Return the function that writes the values of a class of input."""
    if issubclass(kind, Blob):
        return lambda blob: f'{{"{name}":{_string_text(_name_of(blob))}}}'
    members = []
    for field in sorted(fields(kind), key=lambda field: field.name):
        # Of other defaults, such as an empty dictionary, the text is compared instead.
        empty = field.default if field.default in (None, ()) else None
        members.append((f'"{field.name}":', field.name, empty))

    def write(value: Any) -> str:
        written = []
        for begin, name_of_field, empty in members:
            part = getattr(value, name_of_field)
            if part is None or part is empty:  # as most parts are
                continue
            if (text := _WRITERS[type(part)](part)) not in _EMPTY:
                written.append(begin + text)
        return f'{{"{name}":{_object_text(written)}}}'

    return write


def _name_of(blob: Blob) -> str:
    origin = blob.origin if isinstance(blob, Payload) else None
    return origin or blob.digest


def _text_of_bool(value: bool) -> str:
    return "true" if value else "false"


def _text_of_text(value: Text) -> str:
    return f'{{"Text":{{"text":{_string_text(value.text)}}}}}'


# Inputs of today that were worded in other classes by earlier versions of plait enter keys
# in that wording, so that records are found by the names that they have had ever since.


def input_text(value: Any) -> str:
    """Return the text that names a stage's input in keys: mostly `canonical_text`.

    An image or a text that is the whole input is named as a document of itself.
    """
    if isinstance(value, Image | Text):
        return _text_as_candidate((value,))
    return canonical_text(value)


def _text_as_candidate(
    document: Content, question: Content = (), answers: tuple[str, ...] = ()
) -> str:
    members = [f'"answers":{_list_text(answers)}'] if answers else []
    segments = [f'"segments":{_list_text(document)}'] if document else []
    members.append(f'"document":{{"Document":{_object_text(segments)}}}')
    if question:
        members.append(f'"question":{_list_text(question)}')
    return f'{{"Candidate":{_object_text(members)}}}'


def _text_of_logprobs_request(value: LogprobsRequest) -> str:
    return _text_as_candidate(value.shown, value.question, value.answers)


def _text_of_windowed_text(value: WindowedText) -> str:
    return _text_as_candidate((Text(value.text),), (Text(value.prefix),))


def _text_of_transform(value: TransformRequest) -> str:
    return f'{{"ImageRequest":{{"context":{_list_text(value.images)}}}}}'


def _memoise(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return `write` with a memory of the last few objects, by identity."""
    kept: dict[int, tuple[Any, str]] = {}

    def text_of(value: Any) -> str:
        # What is kept stays alive, so that no other object can have its id.
        if (found := kept.get(id(value))) is not None:
            return found[1]
        text = write(value)
        if len(kept) >= _MOST_KEPT:
            kept.clear()
        kept[id(value)] = (value, text)
        return text

    return text_of


class _Writers(dict[type, Callable[[Any], str]]):
    def __missing__(self, kind: type) -> Callable[[Any], str]:
        return _other_text


# A plan of a large task set asks for a million keys: their text is put together without
# objects in between, by the function of each class. Scorers are given the same documents
# in turn.
_WRITERS = _Writers(
    {
        str: _string_text,
        int: int.__repr__,
        bool: _text_of_bool,
        tuple: _list_text,
        list: _list_text,
        dict: _mapping_text,
        **{kind: _writer_of(kind, name) for kind, name in _NAMES.items()},
        Text: _text_of_text,
        TransformRequest: _text_of_transform,
        LogprobsRequest: _text_of_logprobs_request,
        WindowedText: _text_of_windowed_text,
        Document: _memoise(_writer_of(Document, "Document")),
    }
)


def digest(*values: Any) -> str:
    """Return the hex digest (32 characters) of the canonical form of `values`."""
    return digest_of_texts(*map(canonical_text, values))


def digest_of_texts(*texts: str) -> str:
    """Return the digest of the values that have these canonical texts."""
    return hashlib.sha256(f"[{','.join(texts)}]".encode()).hexdigest()[:32]


def digest_of_items(items: Iterable[tuple[str, str]]) -> str:
    """Return the `digest` of a mapping of texts, given its items in the order of names."""
    state = hashlib.sha256(b"[{")
    before = ""
    for name, value in items:
        state.update(f"{before}{_string_text(name)}:{_string_text(value)}".encode())
        before = ","
    state.update(b"}]")
    return state.hexdigest()[:32]


def derived_seed(run_seed: int, query_id: str, repeat: int, position: int) -> int:
    """Return the seed of one drawing of one record, in [0, 2**63).

    It depends on no model and no setting, so all text-to-image models of a row start
    from the same noise, and a subset of a task set gives the same documents.
    """
    text = f"{run_seed}\n{query_id}\n{repeat}\n{position}"
    # 63 bits: seeds are stored as signed whole numbers of 64.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
