"""What the prefix of a name means: one list for systems, models, scorers and data.

A name is a plain one (`anole`), `PREFIX:REST` with a prefix of this list (`hf:ORG/NAME`),
or `dotted.module:Class`, a user's own class. A prefix of the list, reserved ones included,
never names a module. The packages above map each prefix to what it makes; this module
lists the prefixes, and imports none of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from generators.errors import UsageError
from generators.names import unknown


class Named(StrEnum):
    """Kinds of things that have names."""

    LVLM = "LVLM"
    ARTIST = "text-to-image model"
    SYSTEM = "system"
    SCORER = "scorer"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix, as help shows it."""

    form: str
    """The whole name with placeholders: `hf:ORG/NAME`."""
    help: str
    """One line: what such a name means."""


def _by_prefix(*prefixes: Prefix) -> Mapping[str, Prefix]:
    return {p.form.partition(":")[0]: p for p in prefixes}


PREFIXES: Mapping[Named, Mapping[str, Prefix]] = {
    Named.LVLM: _by_prefix(
        Prefix("hf:ORG/NAME", "any AutoModelForImageTextToText, run on your own machines"),
        Prefix("openai:MODEL", "any OpenAI-compatible endpoint, at OPENAI_BASE_URL"),
    ),
    Named.ARTIST: _by_prefix(
        Prefix(
            "diffusers:ORG/NAME",
            "any text-to-image pipeline of diffusers, by its own settings",
        ),
        Prefix("images:MODEL", "any /v1/images/generations endpoint, at OPENAI_BASE_URL"),
    ),
    Named.SYSTEM: _by_prefix(
        Prefix("gemini:MODEL", "answers with pictures by Gemini's own API"),
        Prefix("responses:MODEL", "by OpenAI's Responses API with its image tool"),
        Prefix("omni:MODEL", "by SGLang-Omni: ordered segments"),
        Prefix("chat-images:MODEL", "by a chat endpoint that draws, such as OpenRouter"),
        Prefix("gt:CONTROL", "a control made from the ground truth, to validate a judge"),
        Prefix("published:WRITER", "answers that a benchmark publishes with its questions"),
    ),
    Named.SCORER: _by_prefix(
        Prefix("judge:NAME", "any chat model as a judge with a rubric"),
        Prefix("truth:PART", "known truth of the miniature world"),
    ),
    Named.DATA: _by_prefix(
        Prefix("hf:ORG/NAME@REVISION", "a data set of the Hub in MMIE's format"),
        Prefix("creation:PLACE", "Creation-MMBench: its TSV file or hf:ORG/NAME"),
        Prefix("creation-text:PLACE", "Creation-MMBench without its pictures"),
        Prefix("mllm-bench:PLACE", "MLLM-Bench: a checkout of its repository"),
        Prefix("probench:PLACE", "ProBench: hf:ORG/NAME@REVISION or a local copy"),
        Prefix(
            "miniature:N", "N queries about coloured shapes, whose truth is known exactly"
        ),
        Prefix("official:FOLDER", "answers in the official MMIE scorer's format"),
    ),
}
"""Kind -> prefix -> its help."""

RESERVED: Mapping[str, str] = {
    "mini": "small models trained for the quickstart",
}
"""Prefixes for later versions, and their meaning; `mini-*` is reserved too."""

CUSTOM = "module:Class"
"""The form of a user's own class."""

_IDENTIFIER = r"[^\W\d]\w*"
_CUSTOM = re.compile(rf"{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER}")
_ANY_PREFIX = re.compile(r"([^\W\d][\w.-]*):")


def forms(*kinds: Named) -> list[str]:
    """The forms of all prefixes of these kinds, for help and errors."""
    return [prefix.form for kind in kinds for prefix in PREFIXES[kind].values()]


def known_prefixes() -> list[str]:
    """All prefixes of all kinds."""
    return sorted({prefix for prefixes in PREFIXES.values() for prefix in prefixes})


def has_prefix(name: str, kind: Named) -> bool:
    """Whether `name` begins with a prefix of this kind."""
    return name.partition(":")[0] in PREFIXES[kind] and ":" in name


def is_custom(name: str) -> bool:
    """Whether `name` has the form of a user's class, and no prefix with another meaning."""
    prefix = name.partition(":")[0]
    known = any(prefix in prefixes for prefixes in PREFIXES.values())
    return not known and not is_reserved(name) and bool(_CUSTOM.fullmatch(name))


def is_reserved(name: str) -> bool:
    """Whether `name` begins with a prefix that is reserved for later."""
    prefix, colon, _ = name.partition(":")
    return bool(colon) and (prefix in RESERVED or prefix.startswith("mini-"))


def prefix_of(name: str, what: str, *kinds: Named) -> str | None:
    """The prefix of `name`; None for a plain name and for a user's class.

    `what` is the thing that is named, for the error. UsageError where the prefix is
    unknown, names something of another kind, or is not available yet.
    """
    match = _ANY_PREFIX.match(name)
    if match is None or is_custom(name):
        return None
    prefix = match[1]
    if any(prefix in PREFIXES[kind] for kind in kinds):
        return prefix
    valid = ", ".join([*forms(*kinds), *([] if Named.DATA in kinds else [CUSTOM])])
    if is_reserved(name):
        later = RESERVED.get(prefix, RESERVED["mini"])
        raise UsageError(
            f"{what} {name!r}: the prefix {prefix!r} is reserved for {later} and is not "
            f"available yet. Valid: {valid}"
        )
    if others := [kind for kind in Named if prefix in PREFIXES[kind]]:
        raise UsageError(
            f"{what} {name!r}: the prefix {prefix!r} names another kind of thing "
            f"({', '.join(others)}). Valid: {valid}"
        )
    known = {form.partition(":")[0] for form in forms(*kinds)}
    raise unknown(f"prefix of {what} {name!r}:", prefix, known)
