"""The native models as their contract tests know them: tiny stages, layouts, payloads."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anole_helpers
import bagel_helpers
import emu2_helpers
import gill_helpers
import janus_helpers
import minigpt5_helpers
import pytest
import torch
from pydantic import BaseModel
from safetensors.torch import load, load_file, save_file
from torch import Tensor

from plait.generators.anole.draft import AnoleDraft
from plait.generators.anole.models import AnoleRender
from plait.generators.bagel.condition import BagelCondition
from plait.generators.bagel.draft import BagelDraft
from plait.generators.bagel.render import BagelRender
from plait.generators.base import Result
from plait.generators.decoding.payloads import pack
from plait.generators.document import Image, ImageRequest, Payload, Request, Text, Turn
from plait.generators.emu2.condition import Emu2Condition
from plait.generators.emu2.draft import Emu2Draft
from plait.generators.emu2.render import Emu2Render
from plait.generators.gill.draft import GillDraft
from plait.generators.janus.condition import JanusCondition
from plait.generators.janus.draft import JanusDraft
from plait.generators.janus.models import JanusRender
from plait.generators.minigpt5.draft import MiniGPT5Draft
from plait.generators.vokens.render import GillRender, MiniGPT5Render

SMALL = {"height": 64, "width": 64, "steps": 2}
EXACT = {"device": "cpu", "dtype": "float32"}


def asked(*content: str | Image, seed: int | None = 1) -> Request:
    """One turn of the user."""
    return Request((turn("user", *content),), seed)


def turn(role: Any, *content: str | Image) -> Turn:
    return Turn(role, tuple(Text(c) if isinstance(c, str) else c for c in content))


@dataclass(frozen=True)
class Native:
    """One native model."""

    stages: Mapping[str, Callable[..., Any]]
    """`draft`, `condition`, `render` -> its class."""
    pack: Callable[[Tensor], Payload]
    """The payload of random values (rows, columns)."""
    layout: Mapping[str, tuple[tuple[int, ...], torch.dtype]]
    """Tensor of a payload -> its shape and type."""
    sampled: Mapping[str, Any] | None
    """Settings under which tokens are drawn; None where they never are."""
    greedy: Mapping[str, Any]
    """Settings under which no token is drawn."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a short context, where it is one."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Stage -> settings of the tests."""


def _codes(values: Tensor) -> Payload:
    return pack(codes=(values * 30).abs().int().clamp(max=127))


def _latents(values: Tensor) -> Payload:
    return pack(latents=values, grid=torch.tensor([4, len(values) // 4], dtype=torch.int32))


_STATES = {"states": ((8, 64), torch.float32)}
NATIVES: Mapping[str, Native] = {
    "anole": Native(
        stages={"draft": AnoleDraft, "render": AnoleRender},
        pack=_codes,
        layout={"codes": ((8, 8), torch.int32)},
        sampled={},
        greedy={"text_greedy": True, "image_greedy": True},
        context={"context": 600},
        settings={"draft": {"context": 220, "max_images": 1, "max_text_tokens": 30}},
    ),
    "gill": Native(
        stages={"draft": GillDraft, "render": GillRender},
        pack=lambda values: pack(states=values),
        layout=_STATES,
        sampled={"temperature": 0.7},
        greedy={},
        settings={"render": SMALL},
    ),
    "minigpt5": Native(
        stages={"draft": MiniGPT5Draft, "render": MiniGPT5Render},
        pack=lambda values: pack(states=values),
        layout=_STATES,
        sampled={},
        greedy={"greedy": True},
        context={"context": 300, "before_image": "", "after_image": ""},
        settings={"draft": {"max_new_tokens": 60}, "render": SMALL},
    ),
    "emu2": Native(
        stages={"draft": Emu2Draft, "condition": Emu2Condition, "render": Emu2Render},
        pack=lambda values: pack(vectors=values, unconditional=values * 0),
        layout=dict.fromkeys(("vectors", "unconditional"), ((16, 64), torch.float32)),
        sampled=None,
        greedy={},
        context={"context": 300},
        settings={"draft": {"max_new_tokens": 24}, "render": SMALL},
    ),
    "janus-pro-1b": Native(
        stages={"draft": JanusDraft, "condition": JanusCondition, "render": JanusRender},
        pack=_codes,
        layout={"codes": ((8, 8), torch.int32)},
        sampled={"temperature": 1.0},
        greedy={},
        context={"context": 600},
        settings={"draft": {"max_new_tokens": 24}},
    ),
    "bagel-7b-mot": Native(
        stages={"draft": BagelDraft, "condition": BagelCondition, "render": BagelRender},
        pack=_latents,
        layout={"latents": ((16, 64), torch.float32), "grid": ((2,), torch.int32)},
        sampled={"temperature": 1.0},
        greedy={},
        context={"context": 300},
        settings={"draft": {"max_new_tokens": 24}, "condition": {"num_timesteps": 4}},
    ),
}


@contextmanager
def shared_weights(make: Callable[..., Any]) -> Iterator[None]:
    """Stages of this class, made here, have one model, whatever their other settings."""
    module = sys.modules[make.__module__]
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            *("load", "load_codec", "load_language", "load_models"),
            "load_autoencoder",
        ):
            if hasattr(module, name):
                patch.setattr(module, name, partial(_loaded, getattr(module, name)))
        yield


_LOADED: dict[Any, Any] = {}
_LOADING = ("model", "revision", "language", "vision", "projection", "finetuned")
_LOADING += ("device", "dtype", "quantization", "strip_text")
"""Settings by which weights are loaded."""


def _loaded(load: Callable[..., Any], *arguments: Any) -> Any:
    key = (load, *(_key(argument) for argument in arguments))
    if key not in _LOADED:
        _LOADED[key] = load(*arguments)
    return _LOADED[key]


def _key(argument: Any) -> Any:
    if not isinstance(argument, BaseModel):
        return argument
    return tuple(getattr(argument, name, None) for name in _LOADING)


@functools.cache
def tiny(name: str, stage: str = "draft", **settings: Any) -> Any:
    """A stage with tiny weights; its model is built once in a process."""
    native = NATIVES[name]
    given = {**native.settings.get(stage, {}), **settings}
    with shared_weights(native.stages[stage]):
        return native.stages[stage](weights="tiny", device="cpu", **given)


Places = dict[str, str]
"""The settings that name the checkpoints of a stage."""


def _of_all_stages(name: str, place: Path) -> dict[str, Places]:
    return {stage: {"model": str(place)} for stage in NATIVES[name].stages}


def _anole(folder: Path) -> dict[str, Places]:
    meta = _anole_meta(folder / "source")["draft"]
    language = AnoleDraft(weights="pretrained", **meta, **EXACT).language
    taming = anole_helpers.taming_tensors()
    return _of_all_stages("anole", anole_helpers.save_hf(folder, language, taming))


def _anole_meta(folder: Path) -> dict[str, Places]:
    return _of_all_stages("anole", anole_helpers.checkpoint(folder / "meta"))


def _gill(folder: Path) -> dict[str, Places]:
    places = gill_helpers.checkpoint(folder)
    drafting = {k: v for k, v in places.items() if k != "diffusion"}
    return {"draft": drafting, "render": {k: places[k] for k in ("model", "diffusion")}}


def _minigpt5(folder: Path) -> dict[str, Places]:
    places = minigpt5_helpers.save_all(folder)
    diffusion = str(minigpt5_helpers.save_diffusion(folder / "sd"))
    return {"draft": places, "render": {"model": places["model"], "diffusion": diffusion}}


def _minigpt5_blip2(folder: Path) -> dict[str, Places]:
    places = _minigpt5(folder)
    places["draft"]["vision"] = str(minigpt5_helpers.save_blip2(folder / "blip2"))
    return places


def _emu2(kind: str, folder: Path) -> dict[str, Places]:
    save = (getattr(emu2_helpers, f"{kind}_{part}") for part in ("chat", "gen"))
    chat, gen = ({"model": str(one(folder / one.__name__))} for one in save)
    return {"draft": chat, "condition": gen, "render": gen}


def _janus(folder: Path) -> dict[str, Places]:
    return _of_all_stages("janus-pro-1b", janus_helpers.checkpoint(folder / "janus"))


def _bagel(folder: Path) -> dict[str, Places]:
    return _of_all_stages("bagel-7b-mot", bagel_helpers.checkpoint(folder / "bagel"))


LAYOUTS: Mapping[str, Callable[[Path], dict[str, Places]]] = {
    "anole": _anole,
    "anole/meta": _anole_meta,
    "gill": _gill,
    "minigpt5": _minigpt5,
    "minigpt5/blip2": _minigpt5_blip2,
    "emu2": partial(_emu2, "hub"),
    "emu2/native": partial(_emu2, "native"),
    "janus-pro-1b": _janus,
    "bagel-7b-mot": _bagel,
}
"""Model and layout -> writes its checkpoints; stage -> the settings that name them.

The weights are those on which the original programs were run.
"""


def published(layout: str, stage: str, places: Places, **settings: Any) -> Any:
    """A stage from the checkpoints that `places` names."""
    name = layout.partition("/")[0]
    own: dict[str, Any] = {"weights": "pretrained", **EXACT}
    if stage == "render" and "codes" in NATIVES[name].layout:
        del own["dtype"]
    elif stage == "render":
        own |= NATIVES[name].settings.get("render", {})
    return NATIVES[name].stages[stage](**places, **own | settings)


def good_payload(name: str, seed: int = 0) -> Payload:
    """A payload of random values that tiny weights draw."""
    shape = next(iter(NATIVES[name].layout.values()))[0]
    return NATIVES[name].pack(torch.randn(shape, generator=torch.manual_seed(seed)))


def drawings(
    name: str, outcomes: Sequence[Result], condition: Any = None
) -> list[ImageRequest]:
    """The requests of drafts as the render stage takes them."""
    if "condition" not in NATIVES[name].stages:
        payloads = [r.payload for o in outcomes for r in o.value.requests]
    else:
        texts = [o.value.text for o in outcomes if o.value.text.strip()]
        prompts = [ImageRequest(text, seed=i) for i, text in enumerate(texts)]
        condition = condition or tiny(name, "condition")
        payloads = [o.value for o in condition(prompts)]
    return [ImageRequest(payload=p, seed=i) for i, p in enumerate(payloads)]


def same_draft(ours: Any, theirs: Any) -> bool:
    """Whether two drafts are equal, their payloads but for rounding."""
    if len(ours.segments) != len(theirs.segments):
        return False
    pairs = zip(ours.segments, theirs.segments, strict=True)
    return all(_same(a, b) for a, b in pairs)


def _same(a: Text | ImageRequest, b: Text | ImageRequest) -> bool:
    if not (isinstance(a, ImageRequest) and isinstance(b, ImageRequest)):
        return a == b
    x, y = load(a.payload.read()), load(b.payload.read())
    return x.keys() == y.keys() and all((x[k] - y[k]).abs().max() < 1e-3 for k in x)


def edit(folder: Path, pattern: str, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the tensors in the files that match, which become one file."""
    paths = sorted(folder.glob(pattern))
    safe = paths[0].suffix == ".safetensors"
    stored = [load_file(p) if safe else torch.load(p, weights_only=True) for p in paths]
    below = next((k for k in ("state_dict", "model") if k in stored[0]), None)
    tensors = {k: v for s in stored for k, v in (s if below is None else s[below]).items()}
    change(tensors)
    for path in paths[1:]:
        path.unlink()
    if safe:
        save_file({k: v.contiguous() for k, v in tensors.items()}, paths[0])
    else:
        torch.save(tensors if below is None else {**stored[0], below: tensors}, paths[0])
    for index in folder.glob("*.index*.json"):
        index.write_text(json.dumps({"weight_map": dict.fromkeys(tensors, paths[0].name)}))
