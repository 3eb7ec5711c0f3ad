"""Keeps API keys out of whatever is stored or printed.

Servers repeat keys in their errors, some in their replies, and so do exceptions of a
user's own code. What this process knows as a key is replaced wherever it stands.
"""

from __future__ import annotations

import html
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from plait.generators.base import Failure, Outcome
from plait.generators.document import replace_parts
from plait.generators.visible import visible

MASK = "***"
_KEY_VARIABLE = re.compile(r"(^|_)(API_?KEY|TOKEN)$", re.IGNORECASE)
_SHORTEST = 8
_SHORTEST_WORD = 20
_KEY_LIKE = re.compile(
    # With stars for its middle or its end, as servers show keys.
    r"(?:(?<![\w-])[\w-]+)?\*{3,}[\w-]*"
    r"|\b(?:sk|pk|rk|hf|gsk|xai)[-_][\w-]*(?:\.{3}|…)[\w-]*"
    r"|\b(?:sk|pk|rk|hf|gsk|xai)[-_](?=[\w-]*\d)[\w-]{8,}"
    r"|\bAIza[\w-]{10,}"
)
_NOT_SENDABLE = re.compile(r"[^\x20-\x7e]")
_variables: set[str] = set()


def know(variables: Iterable[str]) -> None:
    """Take the values of these environment variables for keys.

    Those whose names end in API_KEY or TOKEN are taken for keys anyway.
    """
    _variables.update(variables)


def key_trouble(variable: str) -> str | None:
    """Return why the key in an environment variable cannot be sent; never the key itself.

    Headers take printable ASCII (RFC 9110, section 5.5). None for a key that can be sent,
    and where there is none.
    """
    value = os.environ.get(variable, "").strip()
    wrong = _NOT_SENDABLE.search(value)
    if wrong is None:
        return None
    known = {"\n": "a line break", "\r": "a line break", "\t": "a tab"}
    what = known.get(wrong[0], f"U+{ord(wrong[0]):04X}, which is not printable ASCII")
    return (
        f"the environment variable {variable} holds no usable key: character "
        f"{wrong.start() + 1} of {len(value)} is {what}"
    )


def without_known_keys(text: str) -> str:
    """Return `text` without the keys that this process knows."""
    return _replace_keys(text, _keys_longest_first())


def key_mask() -> Callable[[str], str]:
    """Return `without_known_keys` for many texts, with the keys that are known now."""
    keys = _keys_longest_first()
    return lambda text: _replace_keys(text, keys)


def without_keys(text: str) -> str:
    """Return an error's text without keys, also without those that only look like keys."""
    return _KEY_LIKE.sub(MASK, without_known_keys(text))


def without_keys_in(outcomes: Sequence[Outcome[Any]]) -> list[Outcome[Any]]:
    """Return the outcomes of a stage as they may be stored and printed."""
    keys = _keys_longest_first()
    kept: list[Outcome[Any]] = []
    for outcome in outcomes:
        plain = replace_parts(outcome, str, lambda text: _replace_keys(text, keys))
        if isinstance(plain, Failure):
            # Servers show keys in their errors, with stars for a part of them.
            plain = replace(plain, reason=without_keys(plain.reason))
        kept.append(plain)
    return kept


def print_error(error: BaseException) -> None:
    """Print an error with its traceback, as Python does, without keys and visibly."""
    text = without_keys("".join(traceback.format_exception(error)))
    print(visible(text), file=sys.stderr, end="")


class MaskedStream:
    """A text stream that no key reaches which this process knows; else as `stream`."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write `text` without keys."""
        self.stream.write(without_known_keys(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _keys_longest_first() -> list[str]:
    """Return the forms of all keys; the longest first, as one may begin like another."""
    forms = set[str]()
    for name, value in os.environ.items():
        if name in _variables or _KEY_VARIABLE.search(name):
            key = value.strip()
            # Not words such as `none`, which local servers are given for a key.
            shortest = _SHORTEST_WORD if key.isalpha() else _SHORTEST
            if len(key) >= shortest:
                forms.update(_forms_of(key))
    return sorted(forms, key=len, reverse=True)


def _forms_of(key: str) -> Iterator[str]:
    """Yield a key as messages quote it: as Python, JSON, URLs and pages do, and its lines.

    Errors of HTTP clients show a header's value by its repr.
    """
    yield key
    yield repr(key)[1:-1]
    yield ascii(key)[1:-1]
    yield repr(key.encode())[2:-1]
    yield json.dumps(key)[1:-1]
    yield json.dumps(key, ensure_ascii=False)[1:-1]
    yield html.escape(key)
    yield quote(key)
    yield quote(key, safe="")
    yield " ".join(key.split())
    for line in key.splitlines():
        if len(line) >= _SHORTEST:
            yield line.strip()


def _replace_keys(text: str, keys: Sequence[str]) -> str:
    for key in keys:
        text = text.replace(key, MASK)
    return text
