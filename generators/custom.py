"""A user's own stage: a plain class, no registration, or a function of one input.

It is named `module:Class` or `module:function`, or given from Python, an instance of a
class too. Class attributes hold what the engine needs to know: `kind` ("draft", "render"
or "score"), and where they apply `version` (bump it when results change) and `placement`;
a function's are set on it. A function drafts where a system is named, and scores where a
scorer is; in place of a version its source names its results. A stage that drafts or
renders is given a seed with every input; `seeded = False` says that its results do not
depend on one, so that repeats share them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from plait.generators.base import (
    Kind,
    Outcome,
    Placement,
    Result,
    StageSpec,
    Weights,
    WeightsName,
)
from plait.generators.document import Image, ImageRequest, Payload
from plait.generators.errors import UsageError
from plait.generators.names import validate
from plait.generators.own_code import OwnCode, own_code, refuse_unusable, takes
from plait.generators.rendering import Rendering
from plait.generators.settings import StageSettings
from plait.generators.source import function_digest, place_of
from plait.generators.writing import NativeSystem

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage


def custom_spec(
    name: str, weights: WeightsName, overrides: Mapping[str, Any], kinds: Sequence[Kind]
) -> StageSpec:
    """Return the stage of a user's class, instance or function, with `overrides`.

    They are arguments of a class, and how any of them is run. UsageError for code that
    cannot be called as a stage is, with its file and line.
    """
    own = own_code(name)
    kind = _kind(own, kinds)
    settings, placed = _split_overrides(overrides)
    refuse_unusable(own, settings)
    # Under `mini` a class of one's own loads what it always loads.
    loaded: Weights = "pretrained" if weights == "mini" else weights
    return StageSpec(
        name=name.partition(":")[2],
        kind=kind,
        target=own.target,
        version=getattr(own.code, "version", 1),
        identity=_identity(own),
        weights=loaded,
        settings={**own.settings, **settings},
        options={"weights": loaded} if takes(own.code, "weights") else {},
        seeded=getattr(own.code, "seeded", kind in (Kind.DRAFT, Kind.RENDER)),
        placement=_placement(own, placed),
        given=own.code if own.given else None,
    )


def _identity(own: OwnCode) -> str:
    """Return what names a function's results besides its name: of a class, `version` does.

    UsageError for a function without source.
    """
    if not own.is_function:
        return ""
    if (source := function_digest(own.code)) is None:
        raise UsageError(
            f"the source of {own.name} cannot be read, which names its results: put it "
            "into a file, or into a class with a `version`"
        )
    return f"source:{source[:16]}"


class _SplitOverrides(NamedTuple):
    """A user's overrides of a stage."""

    settings: dict[str, Any]
    """Arguments of a class's constructor, which enter keys."""
    placed: dict[str, Any]
    """How the stage is run, which changes no result."""


def _split_overrides(overrides: Mapping[str, Any]) -> _SplitOverrides:
    split = _SplitOverrides({}, {})
    for name, value in overrides.items():
        part = split.placed if name in StageSettings.placed else split.settings
        part[name] = value
    return split


def _placement(own: OwnCode, placed: Mapping[str, Any]) -> Placement:
    """Return the placement that the code declares, with a user's changes; UsageError."""
    checked = validate(StageSettings, placed, own.name)
    usual: Placement = getattr(own.code, "placement", Placement())
    changes = {name: getattr(checked, name) for name in placed}
    return replace(usual, **changes)


def _kind(own: OwnCode, allowed: Sequence[Kind]) -> Kind:
    """Return the kind that the code declares; UsageError for one that is not allowed."""
    # What a function does is known by where it is named.
    kind = getattr(own.code, "kind", allowed[0] if own.is_function else None)
    valid = [each.value for each in allowed]
    if kind not in valid:
        where = place_of(own.code)
        raise UsageError(
            f"stage {own.name!r}{f' ({where})' if where else ''} has kind {kind!r}; its "
            f"class attribute `kind` must be {', '.join(map(repr, valid))}"
        )
    return Kind(kind)


def custom_system(
    name: str, weights: WeightsName, overrides: Mapping[str, Any]
) -> NativeSystem:
    """Return a system whose one stage drafts, and may draw: a draft may hold images."""
    draft = custom_spec(name, weights, overrides, [Kind.DRAFT])
    as_drawn = StageSpec(
        name="as-drawn",
        kind=Kind.RENDER,
        stage="as-drawn",
        target="plait.generators.custom:AsDrawn",
        placement=Placement(num_cpus=0.25, batch_size=32),
    )
    drawing = Rendering(render=as_drawn)
    return NativeSystem(name=name, draft=draft, rendering=drawing, max_images=4)


def request_of_drawing(pil_image: PILImage) -> ImageRequest:
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
    """Renders the requests of `request_of_drawing`: the image is in the payload."""

    def __init__(self, **_: Any) -> None:
        pass

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Image]]:
        """Return the images in the payloads."""
        from safetensors.numpy import load

        images: list[Outcome[Image]] = []
        for request in inputs:
            if request.payload is None:
                raise ValueError("a drafting stage without a renderer must draw its images")
            png = load(request.payload.read())["png"].tobytes()
            images.append(Result(Image.of(png)))
        return images
