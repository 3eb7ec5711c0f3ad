"""Shards: disjoint parts of a run's queries, each answered by a driver of its own."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace

from plait.generators.base import StageSpec
from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError

FOLDER = "shards"
SHARD_FILE = "shard.json"
"""Of a run directory: what each shard notes of itself, and its manifest there."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard `number` of `count`, from 1."""

    number: int
    count: int

    @classmethod
    def of(cls, text: str | None) -> Shard | None:
        """Return the shard named `K/N`, None for None; UsageError for any other text."""
        if text is None:
            return None
        named = re.fullmatch(r"([1-9][0-9]*)/([1-9][0-9]*)", text)
        if named is None or int(named[1]) > int(named[2]):
            raise UsageError(
                f"--shard {text!r} is not valid: give K/N with K from 1 to N, such as 3/16"
            )
        return cls(int(named[1]), int(named[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def name(self) -> str:
        """As part of a file's name."""
        return f"{self.number}-of-{self.count}"

    def folder(self, root: AnyPath) -> AnyPath:
        """Return where it keeps its log, its trace and what it notes of itself."""
        return root / FOLDER / self.name

    def holds(self, query: str) -> bool:
        """Return whether the query with this id is one of its own; each is of one shard."""
        digest = hashlib.sha256(query.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number - 1

    def share(self, ceiling: float | None) -> float | None:
        """Return its part of what all shards together may use."""
        return None if ceiling is None else ceiling / self.count

    def with_share(self, spec: StageSpec) -> StageSpec:
        """`spec` with its part of the ceilings of a model; they change no result."""
        parts = dict(spec.options)
        if (tokens := parts.get("max_total_tokens")) is not None:
            parts["max_total_tokens"] = max(1, tokens // self.count)  # none is not valid
        if (cost := parts.get("max_cost")) is not None:
            parts["max_cost"] = self.share(cost)
        return spec if parts == spec.options else replace(spec, options=parts)
