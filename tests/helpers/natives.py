"""The native models as their contract tests know them: tiny stages, layouts, payloads."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anole_helpers
import emu2_helpers
import gill_helpers
import janus_helpers
import minigpt5_helpers
import torch
from safetensors.torch import load, load_file, save_file
from torch import Tensor

from generators.anole.draft import AnoleDraft
from generators.anole.render import AnoleRender
from generators.base import Result
from generators.decoding.payloads import pack
from generators.document import Image, ImageRequest, Payload, Request, Text, Turn
from generators.emu2.condition import Emu2Condition
from generators.emu2.draft import Emu2Draft
from generators.emu2.render import Emu2Render
from generators.gill.draft import GillDraft
from generators.gill.render import GillRender
from generators.janus.condition import JanusCondition
from generators.janus.draft import JanusDraft
from generators.janus.render import JanusRender
from generators.minigpt5.draft import MiniGPT5Draft
from generators.minigpt5.render import MiniGPT5Render

SMALL = {"height": 64, "width": 64, "steps": 2}
EXACT = {"device": "cpu", "dtype": "float32"}


def asked(*content: str | Image, seed: int | None = 1) -> Request:
    """One turn of the user."""
    parts = tuple(Text(c) if isinstance(c, str) else c for c in content)
    return Request((Turn("user", parts),), seed)


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


_STATES = {"states": ((8, 64), torch.float32)}
NATIVES: Mapping[str, Native] = {
    "anole": Native(
        stages={"draft": AnoleDraft, "render": AnoleRender},
        pack=_codes,
        layout={"codes": ((8, 8), torch.int32)},
        sampled={},
        greedy={"text_greedy": True, "image_greedy": True},
        context={"context": 600},
        settings={"draft": {"context": 220, "max_images": 1}},
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
        greedy={"greedy": True, "max_new_tokens": 60},
        context={"context": 300, "before_image": "", "after_image": ""},
        settings={"render": SMALL},
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
}


@functools.cache
def tiny(name: str, stage: str = "draft", **settings: Any) -> Any:
    """A stage with tiny weights; built once in a process."""
    native = NATIVES[name]
    given = {**native.settings.get(stage, {}), **settings}
    return native.stages[stage](weights="tiny", device="cpu", **given)


Places = dict[str, str]
"""The settings that name the checkpoints of a stage."""


def _anole(folder: Path) -> dict[str, Places]:
    meta = _anole_meta(folder / "source")["draft"]
    language = AnoleDraft(weights="pretrained", **meta, **EXACT).language
    taming = anole_helpers.taming_tensors()
    place = anole_helpers.save_hf(folder / "anole", language, taming)
    return {stage: {"model": str(place)} for stage in ("draft", "render")}


def _anole_meta(folder: Path) -> dict[str, Places]:
    place = anole_helpers.checkpoint(folder / "meta")
    return {stage: {"model": str(place)} for stage in ("draft", "render")}


def _gill(folder: Path) -> dict[str, Places]:
    places = gill_helpers.checkpoint(folder)
    drafting = {k: v for k, v in places.items() if k != "diffusion"}
    return {"draft": drafting, "render": {k: places[k] for k in ("model", "diffusion")}}


def _minigpt5(folder: Path) -> dict[str, Places]:
    places = minigpt5_helpers.save_all(folder)
    diffusion = str(minigpt5_helpers.save_diffusion(folder / "sd"))
    drawing = {"model": places["model"], "diffusion": diffusion}
    return {"draft": places, "render": drawing}


def _minigpt5_blip2(folder: Path) -> dict[str, Places]:
    places = _minigpt5(folder)
    vision = {"vision": str(minigpt5_helpers.save_blip2(folder / "blip2"))}
    return places | {"draft": places["draft"] | vision}


def _emu2(kind: str) -> Callable[[Path], dict[str, Places]]:
    def save(folder: Path) -> dict[str, Places]:
        made = (
            getattr(emu2_helpers, f"{kind}_{part}")(folder / part)
            for part in ("chat", "gen")
        )
        chat, gen = ({"model": str(place)} for place in made)
        return {"draft": chat, "condition": gen, "render": gen}

    return save


def _janus(folder: Path) -> dict[str, Places]:
    place = janus_helpers.checkpoint(folder / "janus")
    return {stage: {"model": str(place)} for stage in NATIVES["janus-pro-1b"].stages}


LAYOUTS: Mapping[str, Callable[[Path], dict[str, Places]]] = {
    "anole": _anole,
    "anole/meta": _anole_meta,
    "gill": _gill,
    "minigpt5": _minigpt5,
    "minigpt5/blip2": _minigpt5_blip2,
    "emu2": _emu2("hub"),
    "emu2/native": _emu2("native"),
    "janus-pro-1b": _janus,
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
        own |= SMALL
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
