"""Ways of running a model: a label, and what differs from the model's own settings.

    --way "batch 16: batch_size=16"
    --way "bf16: dtype=bfloat16"
    --way "served: system=openai:NAME base_url=http://127.0.0.1:8000/v1"

`system` and `weights` name what is run; every other word is a setting of the model. Of a
composite `LVLM+T2I` a setting begins with `writer.` or `artist.`; of a native system it may
begin with the name of a stage (`render.dtype`).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from benchmarks.local import available
from benchmarks.runs.config import merged, with_settings
from generators.base import Job, Kind, Outcome, Result, StageSpec, Walk, Weights
from generators.custom import custom_spec
from generators.document import Document, ImageRequest, Sample, Text
from generators.errors import UsageError
from generators.names import unknown
from generators.natives import NATIVE
from generators.registry import is_custom
from generators.system import Repetition, System, answer
from pipelines.presets import LVLMS, T2IS
from pipelines.systems import (
    Models,
    artist_spec,
    is_artist,
    is_writer,
    parts_of,
    resolve,
)

WRITER, ARTIST = "writer", "artist"
EXAMPLE = 'such as --way "batch 1: batch_size=1" --way "batch 16: batch_size=16"'
TEXT_ALONE = "@text"


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way of running a model, as the user describes it."""

    label: str
    system: str | None = None
    """None for the system that is measured."""
    weights: Weights | None = None
    """None for those of the command."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parsed(cls, text: str) -> Way:
        """`LABEL: key=value key="two words"`; UsageError says what is wrong with it."""
        head, colon, tail = text.partition(": ")
        if colon and "=" not in head:
            label, words = head, tail
        elif "=" not in text:
            label, words = text.rstrip().removesuffix(":"), ""
        else:
            label, words = text, text
        return cls.of({"name": label.strip(), **_settings(words, text)})

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Way:
        """A table `[[ways]]` of a config: `name`, `system`, `weights`, and settings."""
        settings = dict(table)
        label, system, weights = (
            settings.pop(key, None) for key in ("name", "system", "weights")
        )
        if not isinstance(label, str) or not label.strip():
            raise UsageError(f"a way needs a name that labels it, {EXAMPLE}; got {label!r}")
        if system is not None and not isinstance(system, str):
            raise UsageError(f"way {label!r}: system must be a name, not {system!r}")
        if weights not in (None, *get_args(Weights)):
            raise unknown(f"weights of way {label!r}", str(weights), get_args(Weights))
        return cls(label=label, system=system, weights=weights, settings=settings)


def _settings(words: str, way: str) -> dict[str, Any]:
    try:
        parts = shlex.split(words)
    except ValueError as error:
        raise UsageError(f"way {way!r}: {error}") from None
    for word in parts:
        key, equals, _ = word.partition("=")
        if not equals or not key:
            raise UsageError(f"way {way!r}: {word!r} is not of the form key=value")
    return with_settings({}, parts)


@dataclass(frozen=True, kw_only=True)
class ResolvedWay:
    """A way whose model is known; nothing is loaded yet."""

    label: str
    name: str
    """The system's name."""
    weights: Weights
    system: System | None
    artist: StageSpec | None
    """A text-to-image model that is given the questions as prompts; else a system."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Those of the way itself, to be shown."""

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The stages in chain order."""
        if self.system is not None:
            return self.system.stages
        assert self.artist is not None
        return (self.artist,)

    def walk(self, sample: Sample, repetition: Repetition) -> Walk[Document]:
        """Walk to the document that answers one sample."""
        if self.system is not None:
            return answer(self.system, sample, repetition)
        assert self.artist is not None
        return drawn(self.artist, sample, repetition)

    def scored(self, sample: Sample, document: Document) -> Document:
        """What a scorer reads: before a picture alone, the words it was drawn from."""
        if self.artist is None:
            return document
        return Document((Text(words_of(sample)), *document.segments))

    @property
    def asked(self) -> tuple[str, str | None]:
        """How questions are worded: only ways of one wording can agree."""
        if self.system is None:
            return "prompt of one picture", None
        return self.system.variant, self.system.instruction

    @property
    def token_limit(self) -> int | None:
        """Most tokens of a written answer, where the model's settings say so."""
        settings = self.stages[0].settings if self.stages else {}
        limits = (settings.get(key) for key in ("max_new_tokens", "max_tokens"))
        return next((limit for limit in limits if isinstance(limit, int)), None)

    @property
    def ineffective(self) -> list[str]:
        """Settings of the way that run at another value, as `dtype=float32`.

        Tiny weights, for one, are float32 and draw small pictures whatever is set.
        """
        changed: dict[str, Any] = {}
        for name, value in flat(self.settings).items():
            key = name.rpartition(".")[2]
            taken = [s.settings[key] for s in self.stages if key in s.settings]
            if taken and value not in taken:
                changed[name] = taken[0]
        return [f"{name}={value}" for name, value in changed.items()]

    def as_json(self) -> dict[str, Any]:
        """What is run, with every setting and option; no secret is among them."""
        stages = [
            {
                "name": spec.name,
                "stage": spec.stage or spec.target,
                "version": spec.version,
                "digest": spec.digest,
                "identity": spec.identity,
                "weights": spec.weights,
                "settings": dict(spec.settings),
                "options": dict(spec.options),
                "batch_size": spec.placement.batch_size,
                "concurrency": spec.placement.concurrency,
            }
            for spec in self.stages
        ]
        return {"way": self.label, "system": self.name, "stages": stages}


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted keys."""
    result: dict[str, Any] = {}
    for key, value in settings.items():
        inner = isinstance(value, Mapping)
        result |= flat(value, f"{prefix}{key}.") if inner else {prefix + key: value}
    return result


def drawn(spec: StageSpec, sample: Sample, repetition: Repetition) -> Walk[Document]:
    """Walk to a document of one picture: the question's words, drawn."""
    seed = repetition.seed_at(sample, 0) if spec.seeded else None
    request = ImageRequest(prompt=words_of(sample), seed=seed)
    outcome = (yield [Job(spec, request, sample.id)])[0]
    return _as_document(spec, outcome)


def words_of(sample: Sample) -> str:
    """The question without its pictures, as a prompt."""
    return " ".join(s.text for s in sample.question if isinstance(s, Text))


def _as_document(spec: StageSpec, outcome: Outcome[Any]) -> Outcome[Document]:
    if not isinstance(outcome, Result):
        return outcome
    notes = {spec.name: [dict(outcome.notes)]} if outcome.notes else {}
    return Result(Document((outcome.value,)), outcome.usage, notes)


def resolve_ways(
    ways: Sequence[Way],
    name: str,
    weights: Weights,
    common: Mapping[str, Any],
    models: Mapping[str, Mapping[str, Any]],
) -> list[ResolvedWay]:
    """Every way with its stages, the reference first; nothing is loaded.

    `common` are settings of all ways that run `name`, which a way's own override;
    `models` are those of `[models.NAME]`. UsageError for unknown names and settings,
    missing weights and API keys, and labels that are used twice.
    """
    labels = [way.label for way in ways]
    if not ways:
        raise UsageError(f"name at least one way of running {name}, {EXAMPLE}")
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise UsageError(f"the label {twice[0]!r} names two ways")
    resolved: list[ResolvedWay] = []
    for way in ways:
        own = common if way.system in (None, name) else {}
        settings = merged(own, way.settings)
        text = bool(resolved) and _text_only(resolved[0])
        system = _system_name(way.system or name, text)
        resolved.append(_resolved(way, system, settings, way.weights or weights, models))
    return resolved


def _text_only(way: ResolvedWay) -> bool:
    return way.system is not None and way.system.variant == "text" and not way.system.render


def _system_name(name: str, text: bool) -> str:
    """LVLMs answer in text alone, and so does a user's class beside one."""
    if is_writer(name):
        return name + TEXT_ALONE
    return name + TEXT_ALONE if text and is_custom(name) else name


def _resolved(
    way: Way,
    name: str,
    settings: Mapping[str, Any],
    weights: Weights,
    models: Mapping[str, Mapping[str, Any]],
) -> ResolvedWay:
    overrides = merged(models, _overrides(way.label, name, settings))
    asked = Models(weights=weights, overrides=overrides)
    made = available(lambda: _made(name, asked), _stages)
    system, artist = (made, None) if isinstance(made, System) else (None, made)
    shown = name.removesuffix(TEXT_ALONE)
    return ResolvedWay(
        label=way.label,
        name=shown,
        weights=weights,
        system=system,
        artist=artist,
        settings=way.settings,
    )


def _overrides(
    label: str, name: str, settings: Mapping[str, Any]
) -> dict[str, Mapping[str, Any]]:
    """The settings by the model that they are meant for."""
    parts = parts_of(name)
    models = {WRITER: parts.writer}
    if parts.artist is not None:
        models[ARTIST] = parts.artist
    named = {key: value for key, value in settings.items() if key in models}
    plain = {key: value for key, value in settings.items() if key not in models}
    if plain and parts.artist is not None:
        raise UsageError(
            f"way {label!r}: {name} has two models; begin {next(iter(plain))!r} with "
            f"'{WRITER}.' or '{ARTIST}.'"
        )
    if wrong := [key for key, value in named.items() if not isinstance(value, Mapping)]:
        raise UsageError(
            f"way {label!r}: {wrong[0]} must hold settings, as {wrong[0]}.dtype"
        )
    overrides = {models[key]: value for key, value in named.items()}
    if plain:
        overrides[parts.writer] = merged(overrides.get(parts.writer, {}), plain)
    return overrides


def _made(name: str, models: Models) -> System | StageSpec:
    plain = not set(name) & set(":+@")
    if plain and name not in {*NATIVE, *T2IS, "gt"}:
        raise unknown("model or system", name, [*NATIVE, *LVLMS, *T2IS])
    if is_artist(name):
        return artist_spec(name, models)
    if is_custom(name):
        both = [Kind.DRAFT, Kind.RENDER]
        spec, _ = custom_spec(name, models.weights, models.of(name), both)
        if spec.kind is Kind.RENDER:
            return spec
    return resolve(name, models)


def _stages(made: System | StageSpec) -> tuple[StageSpec, ...]:
    return made.stages if isinstance(made, System) else (made,)
