"""Pairwise judging as published benchmarks do it, for any systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.generators.base import import_target
from plait.generators.buckets import AnyPath
from plait.generators.catalogue import Named, by_name, valid_names
from plait.generators.errors import UsageError
from plait.generators.names import unknown, with_overrides
from plait.scorers.judging.sources import Mode
from plait.scorers.pairwise.protocol import Pairwise, ProtocolSettings


def official_options(name: str, mode: Mode) -> dict[str, Any]:
    """Return what official mode takes from packages that plait does not need.

    UsageError where such a package is not installed.
    """
    entry = by_name(Named.PAIRWISE).get(name)
    if mode != "official" or entry is None:
        return {}
    needs = entry.load().OFFICIAL_NEEDS
    return {option: make() for option, make in needs.items()}


def resolve_protocol(
    name: str,
    mode: Mode = "corrected",
    official: AnyPath | None = None,
    settings: Mapping[str, Any] = {},
    **options: Any,
) -> Pairwise:
    """Return the protocol a user named: a built-in one, or a class of theirs.

    `official` is a checkout of the benchmark's repository, or the file with its prompts,
    whose wording is then used; by default it is this project's. `settings` say how it
    counts, where it leaves a choice; `options` are other fields of the protocol's class.
    Raises UsageError for unknown names and settings, and for texts that are not the
    published ones.
    """
    entry = by_name(Named.PAIRWISE).get(name)
    if entry is None and ":" not in name:
        raise unknown("protocol", name, valid_names(Named.PAIRWISE))
    try:
        protocol: Any = import_target(name) if entry is None else entry.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"protocol {name!r} cannot be imported: {error}") from None
    if official is not None and not hasattr(protocol, "wording_in"):
        raise UsageError(f"protocol {name!r} has no released wording; leave --rubric out")
    if official is not None:
        options["wording"] = protocol.wording_in(official)
    if settings:
        kind = getattr(protocol, "settings_of", ProtocolSettings)
        options["settings"] = with_overrides(kind(), settings, f"protocol.{name}")
    return protocol(mode=mode, **options)  # type: ignore[no-any-return]
