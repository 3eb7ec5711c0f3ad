"""What a pipeline is called with: the settings, under the names that its class gives them.

Most pipelines of diffusers read `guidance_scale`, and guide above 1; which others do
follows from their arguments, read in the sources of diffusers 0.42.1. A setting that would
change only the key of an image, and not the image, is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from diffusers.utils import is_bs4_available, is_ftfy_available

from generators.diffusion.designs import DESIGNS
from generators.diffusion.settings import PLAIT_SETS, DiffusionSettings
from generators.names import unknown

Parameters = Mapping[str, inspect.Parameter]

_TRUE_CFG = "true_cfg_scale"
_GUIDING = ("guidance_scale", _TRUE_CFG, "distilled_guidance_scale")
_EMBEDDED = {"FluxPipeline", "Flux2Pipeline", "HunyuanImagePipeline"}
"""Classes of which guidance is an input of the transformer."""


@dataclass(frozen=True, slots=True)
class Call:
    """What every call of a pipeline is given besides conditions and generators."""

    arguments: Mapping[str, Any]
    negative_prompt: str | None = None
    """Given once for each image."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the settings do not say, for readers of the record."""


def call_of(pipeline: Any, settings: DiffusionSettings) -> Call:
    """Return how to call the pipeline; ValueError names what it does not take, and why."""
    named = inspect.signature(pipeline.__call__).parameters
    unnamed = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = {name: p for name, p in named.items() if p.kind not in unnamed}
    own = _own_arguments(pipeline, settings, parameters)
    arguments = _from_settings(pipeline, settings, parameters)
    if doubled := sorted(own.keys() & arguments.keys()):
        raise ValueError(
            f"guidance and arguments.{doubled[0]} both set {doubled[0]} of "
            f"{type(pipeline).__name__}; set one of them"
        )
    arguments |= own
    arguments = _defaults(parameters, arguments) | arguments
    negative, notes = _negative_prompt(pipeline, settings, parameters, arguments)
    return Call(arguments, negative, notes)


def _guidance(parameters: Parameters) -> str:
    """Return the argument that the setting `guidance` means: the one in use by default."""
    used = (n for n in _GUIDING if n in parameters and parameters[n].default is not None)
    return next(used, _GUIDING[0])


def _ignored(pipeline: Any) -> str | None:
    """Return why this pipeline ignores guidance; None where it does not."""
    names = {kind.__name__ for kind in type(pipeline).__mro__}
    if "Flux2KleinPipeline" in names and pipeline.config.get("is_distilled"):
        return "its checkpoint is distilled to few steps and ignores it"
    read = not names & _EMBEDDED or pipeline.transformer.config.get("guidance_embeds", True)
    if not read:
        return "its transformer has no input for guidance (guidance_embeds is false)"
    return None


def _own_arguments(
    pipeline: Any, settings: DiffusionSettings, parameters: Parameters
) -> dict[str, Any]:
    """Return the user's `arguments`; UnknownName for one that the pipeline lacks."""
    own = dict(settings.arguments)
    for name in own:
        if name not in parameters:
            what = f"argument of {type(pipeline).__name__}"
            raise unknown(what, name, filter(_settable, parameters))
    cleaning = own.get("clean_caption")
    if cleaning and not (is_bs4_available() and is_ftfy_available()):
        raise ValueError(
            "arguments.clean_caption needs the packages beautifulsoup4 and ftfy, without "
            "which the pipeline would leave captions as they are"
        )
    return own


def _settable(name: str) -> bool:
    """Return whether a config can set a parameter: no tensors, images or callbacks."""
    parts = ("embeds", "mask", "image", "callback", "latents", "kwargs")
    return name not in PLAIT_SETS and not any(part in name for part in parts)


def _from_settings(
    pipeline: Any, settings: DiffusionSettings, parameters: Parameters
) -> dict[str, Any]:
    name, guiding = type(pipeline).__name__, _guidance(parameters)
    requested = {
        "num_inference_steps": settings.steps,
        guiding: settings.guidance,
        "height": settings.height,
        "width": settings.width,
        "max_sequence_length": settings.max_sequence_length,
        "negative_prompt": settings.negative_prompt,
    }
    arguments = {k: v for k, v in requested.items() if v is not None}
    if unsupported := [k for k in arguments if k not in parameters]:
        others = [p for p in parameters if "guidance" in p and p not in PLAIT_SETS]
        hint = f"; of guidance it takes, in arguments: {', '.join(others)}"
        hint = hint if others and guiding in unsupported else ""
        raise ValueError(f"{name} does not take {', '.join(unsupported)}{hint}")
    if (settings.guidance or 0) > 1 and (reason := _ignored(pipeline)):
        raise ValueError(
            f"{name} does not use guidance {settings.guidance:g}: {reason}; omit guidance"
        )
    arguments.pop("negative_prompt", None)
    return arguments


def _defaults(parameters: Parameters, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments whose default would depend on the machine or clash with others."""
    defaults: dict[str, Any] = {}
    if "output_type" in parameters:
        defaults["output_type"] = "np"
    if "num_inference_steps" in parameters:
        defaults["num_inference_steps"] = parameters["num_inference_steps"].default
    if "clean_caption" in parameters:
        # The pipelines clean captions, and draw otherwise, where two packages are there.
        defaults["clean_caption"] = False
    steps = given.get("num_inference_steps", defaults.get("num_inference_steps"))
    if "intermediate_timesteps" in parameters and steps != 2:
        # SANA-Sprint raises an error for its own default unless there are two steps.
        defaults["intermediate_timesteps"] = None
    return defaults


def _negative_prompt(
    pipeline: Any,
    settings: DiffusionSettings,
    parameters: Parameters,
    arguments: Mapping[str, Any],
) -> tuple[str | None, dict[str, Any]]:
    """Return the negative prompt, and a note when it is not the user's own."""
    negative = settings.negative_prompt
    needed = next((n for n in (_TRUE_CFG, "guidance_scale") if n in parameters), None)
    if needed is None:
        return negative, {}
    scale = arguments.get(needed, parameters[needed].default)
    guided = scale is not None and scale > 1 and not _embeds_guidance(pipeline)
    name, guiding = type(pipeline).__name__, _guidance(parameters)
    if negative is not None and not guided:
        setting = "guidance" if needed == guiding else f"arguments.{needed}"
        raise ValueError(
            f"{name} does not take negative_prompt while its {needed} is {scale}: it "
            f"would have no effect; set {setting} above 1 or no negative_prompt"
        )
    if negative is not None or not guided or needed != _TRUE_CFG:
        return negative, {}
    if guiding != _TRUE_CFG:
        raise ValueError(
            f"{name} does not use {needed} {scale:g} without a negative prompt; set "
            "negative_prompt"
        )
    # Without a negative prompt the class does not guide; Qwen-Image's model card gives " ".
    return " ", {"negative_prompt": " "}


def _embeds_guidance(pipeline: Any) -> bool:
    """Return whether a UNet reads guidance as an input, as latent consistency models do."""
    unet = pipeline.components.get("unet")
    return unet is not None and unet.config.get("time_cond_proj_dim") is not None


IN_BATCHES = frozenset(design.pipeline for design in DESIGNS.values()) | {
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
prompt quotes a text; some take no lists.
"""


def draws_in_batches(pipeline: Any) -> bool:
    """Return whether several images may be drawn in one call of the pipeline."""
    return type(pipeline).__name__ in IN_BATCHES
