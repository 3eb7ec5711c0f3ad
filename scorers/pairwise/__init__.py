"""Pairwise judging as published benchmarks do it, for any systems."""

from __future__ import annotations

from typing import Any

from plait.generators.base import import_target
from plait.generators.buckets import AnyPath
from plait.generators.catalogue import Named, by_name, valid_names
from plait.generators.errors import UsageError
from plait.generators.names import unknown
from plait.scorers.judging.sources import Mode
from plait.scorers.pairwise.protocol import Pairwise


def resolve_protocol(
    name: str, mode: Mode = "corrected", official: AnyPath | None = None, **options: Any
) -> Pairwise:
    """The protocol a user named: a built-in one, or their own class as `module:Class`.

    `official` is a checkout of the benchmark's repository, or the file with its prompts,
    whose wording is then used; by default it is this project's. `options` are the fields
    of the protocol's class. Raises UsageError for unknown names and for texts that are
    not the published ones.
    """
    entry = by_name(Named.PAIRWISE).get(name)
    if entry is None and ":" not in name:
        raise unknown("protocol", name, valid_names(Named.PAIRWISE))
    try:
        protocol: Any = import_target(name) if entry is None else entry.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"protocol {name!r} cannot be imported: {error}") from None
    if official is not None and not hasattr(protocol, "published"):
        raise UsageError(f"protocol {name!r} has no released wording; leave --rubric out")
    if official is not None:
        options["wording"] = protocol.published(official)
    return protocol(mode=mode, **options)  # type: ignore[no-any-return]
