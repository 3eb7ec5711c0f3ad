"""The published text-to-image models: one table of `designs.toml` each.

Plain data, so that a plan can be made without torch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from plait.generators.architectures import Config, config_of
from plait.generators.errors import UsageError

TokenizerKind = Literal[
    "clip", "t5", "byt5", "qwen", "gemma", "glm-image", "qwen-vl", "pixtral"
]


class PipelineDesign(BaseModel):
    """A published text-to-image model: its settings, its pipeline class and components."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    checkpoints: tuple[str, ...]
    """Hub ids; the first one is the preset's."""
    preset: str | None = None
    """Name by which users know the model; None where they name it otherwise."""
    settings: Mapping[str, Any] = {}
    """Those of the preset, whose class is `settings_class`."""
    settings_class: str = ""
    """`module:Class`, where it is not that of `diffusers:ORG/NAME`."""
    licence: str | None = None
    """Of the weights, by the model card; None where it was not read."""
    template: Literal["chat", "own", "instruction"] | None = None
    """What the class puts around a prompt, whose beginning counts towards the tokens that
    are read: the tokenizer's chat template, one of its own, or an instruction."""
    pipeline: str
    """Class name in diffusers."""
    arguments: Config = {}
    """Arguments of the class besides its components."""
    modules: Mapping[str, tuple[str, str]]
    """Component -> its class name in diffusers or transformers, and its configuration."""
    tokenizers: Mapping[str, TokenizerKind] = {}
    prior: tuple[str, ...] = ()
    """Components that a stage of their own runs before all others."""
    unsized: tuple[str, ...] = ()
    """Modules whose published sizes are not known here: there are no `dummy` weights."""
    scheduler: Config
    """Settings, and the class name as `_class_name`."""
    caches: Mapping[str, Mapping[str, Any]] = {}
    """Kind of cache -> the parameters that were published for this model."""

    def config(self, module: str, tiny: bool) -> Config:
        """Return the arguments of a module, or of its configuration, at either size."""
        return config_of(self.modules[module][1], tiny=tiny)


def _read_designs() -> dict[str, PipelineDesign]:
    file = Path(__file__).with_name("designs.toml")
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    return {name: PipelineDesign.model_validate(table) for name, table in tables.items()}


DESIGNS: Mapping[str, PipelineDesign] = _read_designs()
"""By architecture, which is what `dummy` and `tiny` weights build."""


def _architecture_of_checkpoints() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, design in DESIGNS.items():
        found |= dict.fromkeys(design.checkpoints, name)
    return found


PUBLISHED: Mapping[str, str] = _architecture_of_checkpoints()
"""Published checkpoint -> its architecture."""


def _check_known(architecture: str) -> str:
    if architecture not in DESIGNS:
        valid = ", ".join(map(repr, DESIGNS))
        raise UsageError(f"{architecture!r} is not an architecture; valid are {valid}")
    return architecture


Architecture = Annotated[str, AfterValidator(_check_known)]
"""A name of `DESIGNS`."""
