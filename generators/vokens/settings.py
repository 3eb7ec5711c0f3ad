"""Settings of a renderer that draws from voken states. Imports no model code."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, model_validator

from plait.generators.architectures import read_config
from plait.generators.checkpoints import with_revision
from plait.generators.diffusion.designs import Architecture
from plait.generators.diffusion.settings import DiffusionSettings
from plait.generators.settings import Dtype, unkeyed

_VOKENS = 8


def states_bytes(name: str) -> int:
    """Return the size of the states of one image, in float32."""
    return 4 * _VOKENS * int(read_config(name)["language"]["hidden_size"])


class VokenRenderSettings(DiffusionSettings):
    """A mapper, always in float32, and a diffusion pipeline from another repository.

    Steps, guidance and size are the defaults of diffusers' `StableDiffusionPipeline` at
    the time, to which both upstream programs leave them.
    """

    companions: ClassVar[tuple[str, ...]] = ("diffusion",)

    model: str = unkeyed(...)
    """Hub id or folder of the native model, which holds the mapper."""
    diffusion: str = unkeyed(...)
    """Folder, Hub id or `ID@REVISION` of the diffusion pipeline."""
    architecture: Architecture | None = "sd15"
    dtype: Dtype = "float16"
    """Precision of the pipeline."""
    steps: int | None = Field(default=50, ge=1)
    guidance: float | None = Field(default=7.5, ge=0)
    height: int | None = Field(default=512, ge=16, multiple_of=16)
    width: int | None = Field(default=512, ge=16, multiple_of=16)

    @model_validator(mode="after")
    def _without_prompts(self) -> VokenRenderSettings:
        if self.prompt_prefix or self.max_sequence_length is not None:
            raise ValueError(
                "prompt_prefix and max_sequence_length have no effect: images are drawn "
                "from hidden states, not from prompts"
            )
        return self

    def drawing(self) -> DiffusionSettings:
        """Return the settings of the pipeline alone, for `plait.generators.diffusion`."""
        model, revision = with_revision(self.diffusion)
        names = DiffusionSettings.model_fields
        fields: dict[str, Any] = {name: getattr(self, name) for name in names}
        return DiffusionSettings(**fields | {"model": model, "revision": revision})
