"""What every name means: one catalogue, of which each room declares its part.

A name is a plain one (`anole`), `PREFIX:REST` (`hf:ORG/NAME`), or `dotted.module:Class`, a
user's own class; a prefix of the catalogue never names a module. What a room declares
stands in its `catalogue.toml`, a table `[KIND."FORM"]` for each entry; named text-to-image
models stand in `generators/diffusion/designs.toml`. What an entry makes is imported when it
is made, so that help and completion cost nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from plait.generators.base import import_target
from plait.generators.errors import UsageError
from plait.generators.facts import NO_FACTS, ModelFacts
from plait.generators.names import unknown

ROOMS = ("generators", "pipelines", "scorers", "benchmarks/tasks")
"""Folders of the package that have a `catalogue.toml`."""
CUSTOM = "module:Class"
"""The form of a user's own class."""
_IDENTIFIER = r"[^\W\d]\w*"
_CUSTOM = re.compile(rf"{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER}")
_ANY_PREFIX = re.compile(r"([^\W\d][\w.-]*):")
_PLACEHOLDER = re.compile(r"[A-Z]")


class Named(StrEnum):
    """Kinds of things that have names."""

    NATIVE = "native model"
    SERVED = "interleaved model behind a server"
    LVLM = "LVLM"
    T2I = "text-to-image model"
    SYSTEM = "system"
    COMPOSITION = "composition"
    SCORER = "scorer"
    JUDGE = "judge with a model of its own"
    DATA = "data"
    PAIRWISE = "pairwise protocol"


SYSTEMS = (Named.NATIVE, Named.SERVED, Named.SYSTEM)
"""Kinds of things that answer queries by themselves."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a name, or every name of a form, means."""

    kind: Named
    form: str
    """The name itself, or with placeholders: `hf:ORG/NAME`."""
    help: str
    """One line: what it is."""
    target: str = ""
    """`module:name` of what makes it; empty where its room needs no more than the name."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `target`."""
    facts: ModelFacts = NO_FACTS
    asks: Literal["", "replies", "probabilities"] = ""
    """What a scorer `PREFIX:MODEL` asks its chat model for, where it asks one."""

    @classmethod
    def of(
        cls,
        kind: Named,
        form: str,
        *,
        help: str,
        make: str = "",
        settings: Mapping[str, Any] = {},
        none: tuple[str, ...] = (),
        asks: Literal["", "replies", "probabilities"] = "",
        **facts: Any,
    ) -> Entry:
        """Return the entry of a table; `none` are settings without a value."""
        values = {**settings, **dict.fromkeys(none)}
        return cls(
            kind=kind,
            form=form,
            help=help,
            target=make,
            settings=values,
            facts=ModelFacts(**facts),
            asks=asks,
        )

    @property
    def prefix(self) -> str | None:
        """What stands before the colon of a form with placeholders."""
        prefix, colon, rest = self.form.partition(":")
        return prefix if colon and _PLACEHOLDER.search(rest) else None

    def load(self) -> Any:
        """Return what `target` names."""
        return import_target(self.target)

    def make(self, **more: Any) -> Any:
        """Return what `target` makes of the settings, with some more."""
        return self.load()(**{**self.settings, **more})


class Match(NamedTuple):
    """The entry that a name is of."""

    entry: Entry
    rest: str = ""
    """What the name has after the prefix; empty where it is an entry's own name."""


class _Entries(NamedTuple):
    """Those of one kind."""

    by_name: dict[str, Entry]
    by_prefix: dict[str, Entry]

    def add(self, entry: Entry) -> None:
        """Add an entry by its prefix, else by the name that it is."""
        if entry.prefix is None:
            self.by_name[entry.form] = entry
        else:
            self.by_prefix[entry.prefix] = entry


@cache
def _declarations() -> Mapping[Named, _Entries]:
    """Return what the rooms' files declare, in their order."""
    found = {kind: _Entries({}, {}) for kind in Named}
    for room in ROOMS:
        file = files("plait") / room / "catalogue.toml"
        for kind_name, tables in tomllib.loads(file.read_text(encoding="utf-8")).items():
            kind = Named[kind_name.upper()]
            for form, table in tables.items():
                found[kind].add(Entry.of(kind, form, **table))
    return found


@cache
def _drawing() -> Mapping[str, Entry]:
    """Return the named text-to-image models, by the tables of their designs."""
    from plait.generators.diffusion.designs import DESIGNS

    usual = _declarations()[Named.T2I].by_prefix["diffusers"].target
    found = {}
    for design in DESIGNS.values():
        if design.preset is not None:
            found[design.preset] = Entry.of(
                Named.T2I,
                design.preset,
                help=f"{design.pipeline} of diffusers",
                make=design.settings_class or usual,
                settings={"model": design.checkpoints[0], **design.settings},
                licence=design.licence,
                interleaves=False,
                images="1, or as marked",
                compared="diffusers (tests/pipelines/test_text_to_image.py)",
            )
    return found


def by_name(kind: Named) -> Mapping[str, Entry]:
    """Return the entries of a kind that are names themselves."""
    return _drawing() if kind is Named.T2I else _declarations()[kind].by_name


def by_prefix(kind: Named) -> Mapping[str, Entry]:
    """Return the entries of a kind by their prefix."""
    return _declarations()[kind].by_prefix


def entries(*kinds: Named) -> list[Entry]:
    """Return all entries of these kinds, names before prefixes."""
    found: list[Entry] = []
    # Two loops: lists and help show all names first, of whatever kind.
    for kind in kinds:
        found += by_name(kind).values()
    for kind in kinds:
        found += by_prefix(kind).values()
    return found


_DRAWN = "+T2I"
"""End of the form of a planner, which any text-to-image model draws for."""


def planners() -> dict[str, Entry]:
    """Return the planners, `NAME+T2I` among the compositions, by their names."""
    found = {}
    for form, entry in by_name(Named.COMPOSITION).items():
        if entry.target:
            found[form.removesuffix(_DRAWN)] = entry
    return found


def find(name: str, *kinds: Named) -> Match | None:
    """Return the entry of these kinds that a name is of; None where there is none."""
    prefix, colon, rest = name.partition(":")
    for kind in kinds:
        if (entry := by_name(kind).get(name)) is not None:
            return Match(entry)
        if colon and (entry := by_prefix(kind).get(prefix)) is not None:
            return Match(entry, rest)
    return None


def forms(*kinds: Named) -> list[str]:
    """Return the forms of all prefixes of these kinds, for help and errors."""
    found: list[str] = []
    for kind in kinds:
        for entry in by_prefix(kind).values():
            found.append(entry.form)
    return found


def valid_names(*kinds: Named) -> list[str]:
    """Return all names and forms of these kinds, and that of a user's class."""
    return [*(entry.form for entry in entries(*kinds)), CUSTOM]


def known_prefixes() -> list[str]:
    """Return all prefixes of all kinds."""
    return sorted(set[str]().union(*map(by_prefix, Named)))


def has_prefix(name: str, *kinds: Named) -> bool:
    """Return whether `name` begins with a prefix of one of these kinds."""
    prefix, colon, _ = name.partition(":")
    return bool(colon) and any(prefix in by_prefix(kind) for kind in kinds)


def is_custom(name: str) -> bool:
    """Return whether `name` has the form of a user's class, and no known prefix."""
    return not has_prefix(name, *Named) and bool(_CUSTOM.fullmatch(name))


def prefix_of(name: str, what: str, *kinds: Named) -> str | None:
    """Return the prefix of `name`; None for a plain name and for a user's class.

    `what` is the thing that is named, for the error. UsageError where the prefix is
    unknown or names something of another kind.
    """
    match = _ANY_PREFIX.match(name)
    if match is None or is_custom(name):
        return None
    prefix = match[1]
    if any(prefix in by_prefix(kind) for kind in kinds):
        return prefix
    if others := [kind for kind in Named if prefix in by_prefix(kind)]:
        valid = forms(*kinds)
        # A user's own data come from a function, of another form.
        if Named.DATA not in kinds:
            valid.append(CUSTOM)
        raise UsageError(
            f"{what} {name!r}: the prefix {prefix!r} names another kind of thing "
            f"({', '.join(others)}). Valid: {', '.join(valid)}"
        )
    known = {form.partition(":")[0] for form in forms(*kinds)}
    raise unknown(f"prefix of {what} {name!r}:", prefix, known)
