"""What is served: the chain that answers chats, and the stage that draws from prompts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial

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
    """Answers chats; None for a T2I model."""
    artist: StageSpec | None = None
    """Draws from prompts; None where images are not made from prompts."""
    artist_name: str = ""
    may_leave_images_out: bool = True
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
        """Whether the answers to chats may hold images."""
        return self.system is not None and self.system.max_images > 0

    @property
    def abilities(self) -> dict[str, tuple[str, ...]]:
        """What each name can do that a request may give as its model."""
        can = ("chat",) * bool(self.system) + ("images",) * bool(self.artist)
        drawing = {self.artist_name: ("images",)} if self.artist else {}
        return {self.name: can} | drawing | {self.name: can}

    @property
    def fingerprint(self) -> str:
        """Changes with anything that can change an answer."""
        return f"plait-{digest([s.digest for s in self.stages])[:12]}"


def served(name: str, models: Models) -> ServedModel:
    """Return what `plait serve NAME` serves; UsageError says what is valid."""
    own = partial(ServedModel, name=name, weights=models.weights)
    if is_custom(name):
        kinds = [Kind.DRAFT, Kind.RENDER]
        spec, _ = custom_spec(name, models.weights, models.of(name), kinds)
        if spec.kind is Kind.RENDER:
            return own(artist=spec, artist_name=name)
        system = custom_system(name, models.weights, models.of(name))
        return own(system=system, may_leave_images_out=False)
    if is_artist(name):
        return own(artist=artist_spec(name, models), artist_name=name)
    if is_writer(name):
        return own(system=text_alone(name, writer_spec(name, models), name))
    system = resolve(name, models)
    if system.draft is None:
        raise UsageError(f"system {name!r} has its answers from a task set: not served")
    artist = parts_of(name).artist
    return own(
        system=system,
        artist=system.render if artist else None,
        artist_name=artist or "",
        may_leave_images_out=system.writer is not None or system.tells_modality,
    )
