"""What describes a pipeline and its modules, at full size and toy size.

Plain data, so that a plan can be made without torch. Sizes are those of the `config.json`
files of the published checkpoints; `tiny` names only what differs at toy size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Config = Mapping[str, Any]
TokenizerKind = Literal["clip", "t5", "qwen", "gemma"]

TINY_VOCABULARY = 640
"""Rows of a tiny embedding table; more than any small tokenizer has entries."""


@dataclass(frozen=True, slots=True)
class ModuleDesign:
    """One module of a pipeline."""

    name: str
    """Class name in diffusers, or in transformers."""
    config: Config
    """Arguments of the class, or of its configuration class in transformers."""
    tiny: Config
    """The entries of `config` that differ at toy size."""


@dataclass(frozen=True, slots=True)
class PipelineDesign:
    """A pipeline class and all its components."""

    pipeline: str
    modules: Mapping[str, ModuleDesign]
    scheduler: tuple[str, Config]
    tokenizers: Mapping[str, TokenizerKind]
    arguments: Config = field(default_factory=dict)
    """Further arguments of the pipeline class."""

    def config(self, module: str, tiny: bool) -> Config:
        """Arguments of one module at either size."""
        part = self.modules[module]
        return {**part.config, **part.tiny} if tiny else part.config
