"""What is served: the chain that answers chats, and the stage that draws from prompts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from generators.base import Kind, StageSpec, WeightsName
from generators.custom import custom_spec, custom_system
from generators.errors import UsageError
from generators.keys import digest
from generators.registry import is_custom
from generators.system import System
from pipelines.composition import text_alone
from pipelines.systems import (
    Models,
    artist_spec,
    is_artist,
    is_writer,
    parts_of,
    resolve,
    writer_spec,
)


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A system or model behind HTTP."""

    name: str
    weights: WeightsName
    system: System | None = None
    """Answers chats; None for a text-to-image model."""
    artist: StageSpec | None = None
    """Draws from prompts; None where pictures are not made from prompts."""
    artist_name: str = ""
    may_leave_pictures_out: bool = True
    """Whether a client can ask for text alone: a native model cannot be told."""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages in chain order."""
        if self.system is not None:
            return self.system.stages
        return () if self.artist is None else (self.artist,)

    @property
    def draws_in_chats(self) -> bool:
        """Whether the answers to chats may hold pictures."""
        return self.system is not None and self.system.max_images > 0

    @property
    def abilities(self) -> dict[str, tuple[str, ...]]:
        """What each name can do that a request may give as its model."""
        chat = ("chat",) if self.system else ()
        own = (*chat, "images") if self.artist else chat
        names = {self.name: own}
        if self.artist and self.artist_name != self.name:
            names[self.artist_name] = ("images",)
        return names

    @property
    def fingerprint(self) -> str:
        """Changes with anything that can change an answer."""
        return f"plait-{digest([s.digest for s in self.stages])[:12]}"


def served(name: str, models: Models) -> ServedModel:
    """What `plait serve NAME` serves; UsageError says what would have been valid."""
    if is_custom(name):
        return _custom(name, models)
    if is_artist(name):
        return _artist(name, artist_spec(name, models), models)
    if is_writer(name):
        system = text_alone(name, writer_spec(name, models), name)
        return ServedModel(name=name, weights=models.weights, system=system)
    system = resolve(name, models)
    if system.draft is None:
        raise UsageError(f"system {name!r} has its answers from a task set: not served")
    artist = parts_of(name).artist
    return ServedModel(
        name=name,
        weights=models.weights,
        system=system,
        artist=system.render if artist else None,
        artist_name=artist or "",
        may_leave_pictures_out=system.writer is not None or system.tells_modality,
    )


def _custom(name: str, models: Models) -> ServedModel:
    """A user's class: one that drafts, and may draw, or one that renders."""
    kinds = [Kind.DRAFT, Kind.RENDER]
    spec, _ = custom_spec(name, models.weights, models.of(name), kinds)
    if spec.kind is Kind.RENDER:
        return _artist(name, spec, models)
    system = custom_system(name, models.weights, models.of(name))
    return ServedModel(
        name=name, weights=models.weights, system=system, may_leave_pictures_out=False
    )


def _artist(name: str, spec: StageSpec, models: Models) -> ServedModel:
    return ServedModel(name=name, weights=models.weights, artist=spec, artist_name=name)
