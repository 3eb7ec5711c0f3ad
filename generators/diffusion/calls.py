"""What a pipeline is called with: the settings, under the names that its class gives them.

Most pipelines of diffusers read `guidance_scale`, and guide above 1; which others do
follows from their arguments, read in the sources of diffusers 0.42.1. A setting that would
change only the key of an image, and not the image, is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from diffusers.utils import is_bs4_available, is_ftfy_available

from plait.generators.diffusion.designs import DESIGNS
from plait.generators.diffusion.inputs import SEEING
from plait.generators.diffusion.settings import PLAIT_SETS, DiffusionSettings
from plait.generators.errors import UsageError
from plait.generators.names import unknown

_TRUE_CFG = "true_cfg_scale"
_GUIDING = ("guidance_scale", _TRUE_CFG, "distilled_guidance_scale")
_EMBEDDED = {"FluxPipeline", "Flux2Pipeline", "HunyuanImagePipeline"}
"""Classes of which guidance is an input of the transformer."""
_GUIDED_ABOVE = {"ZImagePipeline": 0.0}
"""Guidance above which a class evaluates a negative prompt too, where that is not 1."""
_UNNAMED = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


class Call:
    """What every call of a pipeline is given besides conditions and generators.

    UsageError names what the pipeline does not take, and why.
    """

    arguments: dict[str, Any]
    negative_prompt: str | None
    """Given once for each image."""
    notes: dict[str, Any]
    """What the settings do not say, for readers of the record."""
    is_guided: bool
    """Whether each step is computed for a negative prompt too, if only for "" or zeros."""

    def __init__(self, pipeline: Any, settings: DiffusionSettings) -> None:
        named = inspect.signature(pipeline.__call__).parameters
        self._pipeline = pipeline
        self._settings = settings
        self._kind = type(pipeline).__name__
        self._defaults: dict[str, Any] = {}
        """Argument of the pipeline's call -> its default."""
        for name, parameter in named.items():
            if parameter.kind not in _UNNAMED:
                self._defaults[name] = parameter.default
        self._guiding = self._find_guiding()
        """The argument that the setting `guidance` means."""
        self._check_own()
        self.input_size = self._find_input_size()
        """(width, height) to which images are brought that a pipeline draws from, where
        those it draws are as large as they."""
        given = self._arguments_of_settings()
        own = settings.arguments
        if doubled := sorted(own.keys() & given.keys()):
            raise UsageError(
                f"guidance and arguments.{doubled[0]} both set {doubled[0]} of "
                f"{self._kind}; set one of them"
            )
        self.arguments = self._with_defaults({**given, **own})
        self.negative_prompt, self.notes = self._negative_prompt()
        self.is_guided = self._is_guided()

    def _find_guiding(self) -> str:
        """Return the argument of guidance that is in use by default."""
        for name in _GUIDING:
            if self._defaults.get(name) is not None:
                return name
        return _GUIDING[0]

    def _find_input_size(self) -> tuple[int, int] | None:
        """Return the size of images to draw from; None where the pipeline takes one."""
        width = self._settings.width
        height = self._settings.height
        takes_size = self._kind not in SEEING or "height" in self._defaults
        if takes_size or not (width and height):
            return None
        return width, height

    def _check_own(self) -> None:
        own = self._settings.arguments
        for name in own:
            if name not in self._defaults:
                what = f"argument of {self._kind}"
                raise unknown(what, name, filter(_settable, self._defaults))
        cleaning = own.get("clean_caption")
        if cleaning and not (is_bs4_available() and is_ftfy_available()):
            raise UsageError(
                "arguments.clean_caption needs the packages beautifulsoup4 and ftfy, "
                "without which the pipeline would leave captions as they are"
            )

    def _arguments_of_settings(self) -> dict[str, Any]:
        settings = self._settings
        requested = {
            "num_inference_steps": settings.steps,
            self._guiding: settings.guidance,
            "height": settings.height,
            "width": settings.width,
            "max_sequence_length": settings.max_sequence_length,
            "negative_prompt": settings.negative_prompt,
        }
        if self.input_size is not None:
            del requested["height"], requested["width"]
        arguments: dict[str, Any] = {}
        unsupported: list[str] = []
        for name, value in requested.items():
            if value is None:
                continue
            arguments[name] = value
            if name not in self._defaults:
                unsupported.append(name)
        if unsupported:
            hint = self._other_guidance() if self._guiding in unsupported else ""
            raise UsageError(f"{self._kind} does not take {', '.join(unsupported)}{hint}")
        if (settings.guidance or 0) > 1 and (reason := _what_is_ignored(self._pipeline)):
            raise UsageError(
                f"{self._kind} does not use guidance {settings.guidance:g}: {reason}; omit "
                "guidance"
            )
        arguments.pop("negative_prompt", None)
        return arguments

    def _other_guidance(self) -> str:
        """Return the end of a message that names other arguments of guidance, if any."""
        others: list[str] = []
        for name in self._defaults:
            if "guidance" in name and name not in PLAIT_SETS:
                others.append(name)
        listed = ", ".join(others)
        return f"; of guidance it takes, in arguments: {listed}" if others else ""

    def _with_defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Add arguments whose default would depend on the machine or clash with others."""
        # A pipeline of videos draws an image as one frame.
        defaults: dict[str, Any] = {"output_type": "np", "num_frames": 1}
        defaults["num_inference_steps"] = self._defaults.get("num_inference_steps")
        # The pipelines clean captions, and draw otherwise, where two packages are there.
        defaults["clean_caption"] = False
        if given.get("num_inference_steps", defaults["num_inference_steps"]) != 2:
            # SANA-Sprint raises an error for its own default unless there are two steps.
            defaults["intermediate_timesteps"] = None
        for name in defaults.keys() - self._defaults.keys():
            del defaults[name]
        return defaults | dict(given)

    @property
    def _guided_by(self) -> str | None:
        """Argument that scales what a negative prompt leads away from."""
        for name in (_TRUE_CFG, _GUIDING[0]):
            if name in self._defaults:
                return name
        return None

    def _is_guided(self) -> bool:
        needed = self._guided_by
        if needed is None or "negative_prompt_embeds" not in self._defaults:
            return False
        if needed == _TRUE_CFG and self.negative_prompt is None:
            return False
        scale = self.arguments.get(needed, self._defaults[needed]) or 0
        ignored = _embeds_guidance(self._pipeline) or _is_distilled(self._pipeline)
        return scale > _GUIDED_ABOVE.get(self._kind, 1.0) and not ignored

    def _negative_prompt(self) -> tuple[str | None, dict[str, Any]]:
        negative = self._settings.negative_prompt
        needed = self._guided_by
        if needed is None:
            return negative, {}
        scale = self.arguments.get(needed, self._defaults[needed])
        guided = (scale or 0) > 1 and not _embeds_guidance(self._pipeline)
        if negative is not None and not guided:
            setting = "guidance" if needed == self._guiding else f"arguments.{needed}"
            raise UsageError(
                f"{self._kind} does not take negative_prompt while its {needed} is {scale}:"
                f" it would have no effect; set {setting} above 1 or no negative_prompt"
            )
        if negative is not None or not guided or needed != _TRUE_CFG:
            return negative, {}
        if self._guiding != _TRUE_CFG:
            raise UsageError(
                f"{self._kind} does not use {needed} {scale:g} without a negative prompt; "
                "set negative_prompt"
            )
        # Without one the class does not guide; Qwen-Image's model card gives " ".
        return " ", {"negative_prompt": " "}


def _what_is_ignored(pipeline: Any) -> str | None:
    """Return why guidance above 1 would have no effect; None where it has one."""
    if _is_distilled(pipeline):
        return "its checkpoint is distilled to few steps and ignores it"
    if not _class_names(pipeline) & _EMBEDDED:
        return None
    # FLUX.1-schnell has the class of FLUX.1-dev, and no such input.
    if pipeline.transformer.config.get("guidance_embeds", True):
        return None
    return "its transformer has no input for it (guidance_embeds is false)"


def _is_distilled(pipeline: Any) -> bool:
    is_klein = "Flux2KleinPipeline" in _class_names(pipeline)
    return is_klein and bool(pipeline.config.get("is_distilled"))


def _class_names(pipeline: Any) -> set[str]:
    """Return the names of the pipeline's class and of those it is derived from."""
    return {kind.__name__ for kind in type(pipeline).__mro__}


def _settable(name: str) -> bool:
    """Return whether a config can set a parameter: no tensors, images or callbacks."""
    parts = ("embeds", "mask", "image", "callback", "latents", "kwargs")
    return name not in PLAIT_SETS and not any(part in name for part in parts)


def _embeds_guidance(pipeline: Any) -> bool:
    """Return whether a UNet reads guidance as an input, as latent consistency models do."""
    unet = pipeline.components.get("unet")
    return unet is not None and unet.config.get("time_cond_proj_dim") is not None


_ALONE = {"Cosmos3OmniPipeline", "GlmImagePipeline"}
IN_BATCHES = frozenset(design.pipeline for design in DESIGNS.values()) - _ALONE | {
    # Not tested, but they pad every prompt to one length as those do.
    "AuraFlowPipeline",
    "ChromaPipeline",
    "CogView3PlusPipeline",
    "Flux2Pipeline",
    "HunyuanDiTPipeline",
    "KolorsPipeline",
    "LatentConsistencyModelPipeline",
    "Lumina2Pipeline",
    "PixArtAlphaPipeline",
}
"""Classes whose images do not depend on the other prompts of a batch.

In others they do: CogView4, GLM-Image and Kandinsky 5 pad prompts to the longest of the
batch and attend to the padding; HunyuanImage guides the whole batch otherwise when one
prompt quotes a text; Cosmos 3 draws the first prompt alone; some take no lists.
"""


def draws_in_batches(pipeline: Any) -> bool:
    """Return whether several images may be drawn in one call of the pipeline."""
    return type(pipeline).__name__ in IN_BATCHES
