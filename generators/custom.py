"""A user's own stage, named `module:Class`: a plain class, no registration.

Class attributes hold what the engine needs to know: `kind` ("draft", "render" or
"score"), and where they apply `version` (bump it when results change) and `placement`. A
stage that drafts or renders is given a seed with every input; `seeded = False` says that
its results do not depend on one, so that repeats share them.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plait.generators.base import (
    Kind,
    Outcome,
    Placement,
    Result,
    StageSpec,
    Weights,
    WeightsName,
    imported,
)
from plait.generators.document import Image, ImageRequest, Payload
from plait.generators.errors import MissingInput, UsageError
from plait.generators.names import unknown, validated
from plait.generators.registry import known_prefixes
from plait.generators.settings import StageSettings
from plait.generators.system import System

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage


def custom_spec(
    name: str, weights: WeightsName, overrides: Mapping[str, Any], kinds: Sequence[Kind]
) -> StageSpec:
    """Return the stage `module:Class` with `overrides` as arguments."""
    module, _, attribute = name.partition(":")
    try:
        cls = imported(name)
    except ModuleNotFoundError as error:
        known = ", ".join(known_prefixes())
        raise MissingInput(
            f"stage {name!r}: {error}. Prefixes that name no module are {known}"
        ) from error
    except AttributeError:
        module_names = (n for n in dir(importlib.import_module(module)) if n[0].isupper())
        raise unknown(f"class in module {module!r}", attribute, module_names) from None
    kind = _kind(name, cls, kinds)
    settings = {k: v for k, v in overrides.items() if k not in StageSettings.placed}
    # Under `mini` a class of one's own loads what it always loads.
    loaded: Weights = "pretrained" if weights == "mini" else weights
    return StageSpec(
        name=attribute,
        kind=kind,
        target=name,
        version=getattr(cls, "version", 1),
        weights=loaded,
        settings=settings,
        options={"weights": loaded},
        seeded=getattr(cls, "seeded", kind in (Kind.DRAFT, Kind.RENDER)),
        placement=_placement(name, cls, overrides),
    )


def _placement(name: str, cls: Any, overrides: Mapping[str, Any]) -> Placement:
    placed = {k: v for k, v in overrides.items() if k in StageSettings.placed}
    checked = validated(StageSettings, placed, name)
    own: Placement = getattr(cls, "placement", Placement())
    return replace(own, **{k: getattr(checked, k) for k in placed})


def _kind(name: str, cls: Any, allowed: Sequence[Kind]) -> Kind:
    valid = ", ".join(repr(k.value) for k in allowed)
    kind = getattr(cls, "kind", None)
    if kind not in [k.value for k in allowed]:
        raise UsageError(
            f"stage {name!r} has kind {kind!r}; its class attribute `kind` must be {valid}"
        )
    return Kind(kind)


def custom_system(name: str, weights: WeightsName, overrides: Mapping[str, Any]) -> System:
    """Return a system whose one stage drafts, and may draw: a draft may hold images."""
    draft = custom_spec(name, weights, overrides, [Kind.DRAFT])
    as_drawn = StageSpec(
        name="as-drawn",
        kind=Kind.RENDER,
        stage="as-drawn",
        target="plait.generators.custom:AsDrawn",
        placement=Placement(num_cpus=0.25, batch_size=32),
    )
    return System(name=name, draft=draft, render=as_drawn, max_images=4)


def drawn(pil_image: PILImage) -> ImageRequest:
    """Return a request for an image that a stage has drawn while it wrote.

    Drafts of earlier versions hold such requests; a draft may hold the image itself.
    """
    import numpy as np
    from safetensors.numpy import save

    file = io.BytesIO()
    pil_image.save(file, "PNG")
    data = np.frombuffer(file.getvalue(), dtype=np.uint8)
    return ImageRequest(payload=Payload.of(save({"png": data})))


class AsDrawn:
    """Renders the requests of `drawn`: the image is in the payload."""

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Image]]:
        """Return the images in the payloads."""
        from safetensors.numpy import load

        payloads = [request.payload for request in inputs]
        if None in payloads:
            raise ValueError("a drafting stage without a renderer must draw its images")
        files = (load(p.read())["png"].tobytes() for p in payloads if p is not None)
        return [Result(Image.of(file)) for file in files]
