"""What a pipeline is called with: the settings, under the names that its class gives them.

Most pipelines of diffusers read `guidance_scale`, and guide above 1; the exceptions are
read in the sources of diffusers 0.42.1. A setting that would change only the key of an
image, and not the image, is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from diffusers.utils import is_bs4_available, is_ftfy_available

from generators.diffusion.designs import DESIGNS, EMBEDDED, QWEN_GUIDANCE, GuidanceRule
from generators.diffusion.settings import PLAIT_SETS, DiffusionSettings
from generators.names import unknown

Parameters = Mapping[str, inspect.Parameter]


@dataclass(frozen=True, slots=True)
class Call:
    """What every call of a pipeline is given besides conditions and generators."""

    arguments: Mapping[str, Any]
    negative_prompt: str | None = None
    """Given once for each picture."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the settings do not say, for readers of the record."""


_TRUE_CFG = "true_cfg_scale"
RULES: Mapping[str, GuidanceRule] = {
    "Flux2Pipeline": EMBEDDED,
    "QwenImage21Pipeline": QWEN_GUIDANCE,
    "HunyuanImagePipeline": GuidanceRule(
        argument="distilled_guidance_scale", negative=None, unless="not embedded"
    ),
    **{design.pipeline: design.guidance for design in DESIGNS.values()},
}
"""By the name of the pipeline's class, or of one it inherits from."""


def rule_of(pipeline: Any) -> GuidanceRule:
    """The rule of the pipeline's class."""
    names = [kind.__name__ for kind in type(pipeline).__mro__]
    return next((RULES[name] for name in names if name in RULES), GuidanceRule())


def _ignored(pipeline: Any, rule: GuidanceRule) -> str | None:
    """Why this pipeline ignores guidance; None when it does not."""
    if rule.unless == "distilled" and pipeline.config.get("is_distilled"):
        return "its checkpoint is distilled to few steps and ignores it"
    if rule.unless == "not embedded":
        if pipeline.transformer.config.get("guidance_embeds", True):
            return None
        return "its transformer has no input for guidance (guidance_embeds is false)"
    return None


def call_of(pipeline: Any, settings: DiffusionSettings) -> Call:
    """How to call the pipeline; ValueError names what it does not take, and why."""
    rule = rule_of(pipeline)
    parameters = _parameters(pipeline)
    own = _own_arguments(pipeline, settings, parameters)
    arguments = _from_settings(pipeline, settings, rule, parameters)
    doubled = sorted(own.keys() & arguments.keys())
    if doubled:
        raise ValueError(
            f"guidance and arguments.{doubled[0]} both set {doubled[0]} of "
            f"{type(pipeline).__name__}; set one of them"
        )
    arguments = _defaults(parameters, arguments | own) | arguments | own
    negative, notes = _negative_prompt(pipeline, settings, rule, parameters, arguments)
    return Call(arguments, negative, notes)


def _parameters(pipeline: Any) -> dict[str, inspect.Parameter]:
    """The named arguments of the pipeline's call."""
    named = inspect.signature(pipeline.__call__).parameters
    unnamed = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: p for name, p in named.items() if p.kind not in unnamed}


def _own_arguments(
    pipeline: Any, settings: DiffusionSettings, parameters: Parameters
) -> dict[str, Any]:
    """The user's `arguments`, each of which the pipeline has; UnknownName otherwise."""
    own = dict(settings.arguments)
    for name in own:
        if name not in parameters or name in PLAIT_SETS:
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
    """Whether a parameter can be set from a config: no tensors, pictures or callbacks."""
    parts = ("embeds", "mask", "image", "callback", "latents", "kwargs")
    return name not in PLAIT_SETS and not any(part in name for part in parts)


def _from_settings(
    pipeline: Any,
    settings: DiffusionSettings,
    rule: GuidanceRule,
    parameters: Parameters,
) -> dict[str, Any]:
    requested = {
        "num_inference_steps": settings.steps,
        rule.argument: settings.guidance,
        "height": settings.height,
        "width": settings.width,
        "max_sequence_length": settings.max_sequence_length,
    }
    arguments = {k: v for k, v in requested.items() if v is not None}
    unsupported = [k for k in arguments if k not in parameters]
    if settings.negative_prompt is not None and "negative_prompt" not in parameters:
        unsupported.append("negative_prompt")
    name = type(pipeline).__name__
    if unsupported:
        others = [p for p in parameters if "guidance" in p and p not in PLAIT_SETS]
        hint = f"; of guidance it takes, in arguments: {', '.join(others)}"
        missing = rule.argument in unsupported and others
        raise ValueError(
            f"{name} does not take {', '.join(unsupported)}{hint if missing else ''}"
        )
    if (settings.guidance or 0) > 1 and (reason := _ignored(pipeline, rule)):
        raise ValueError(
            f"{name} does not use guidance {settings.guidance:g}: {reason}; omit guidance"
        )
    return arguments


def _defaults(parameters: Parameters, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments whose default would depend on the machine or clash with others."""
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
    rule: GuidanceRule,
    parameters: Parameters,
    arguments: Mapping[str, Any],
) -> tuple[str | None, dict[str, Any]]:
    """The negative prompt, and a note when it is not the user's own."""
    name, needed = type(pipeline).__name__, rule.negative
    if needed is None or needed not in parameters:
        return settings.negative_prompt, {}
    scale = arguments.get(needed, parameters[needed].default)
    guided = scale is not None and scale > 1 and not _embeds_guidance(pipeline)
    if settings.negative_prompt is not None and not guided:
        setting = "guidance" if needed == rule.argument else f"arguments.{needed}"
        raise ValueError(
            f"{name} does not take negative_prompt while its {needed} is {scale}: it "
            f"would have no effect; set {setting} above 1 or no negative_prompt"
        )
    if settings.negative_prompt is not None or not guided or needed != _TRUE_CFG:
        return settings.negative_prompt, {}
    if rule.blank is None:
        raise ValueError(
            f"{name} does not use {needed} {scale:g} without a negative prompt; set "
            "negative_prompt"
        )
    return rule.blank, {"negative_prompt": rule.blank}


def _embeds_guidance(pipeline: Any) -> bool:
    """Whether a UNet reads guidance as an input, as latent consistency models do."""
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
"""Classes whose pictures do not depend on the other prompts of a batch.

In others they do: CogView4, GLM-Image and Kandinsky 5 pad prompts to the longest of the
batch and attend to the padding; HunyuanImage guides the whole batch otherwise when one
prompt quotes a text; some take no lists.
"""


def draws_in_batches(pipeline: Any) -> bool:
    """Whether several pictures may be drawn in one call of the pipeline."""
    return type(pipeline).__name__ in IN_BATCHES
