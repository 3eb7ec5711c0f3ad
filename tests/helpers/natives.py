"""The native models as their contract tests know them: tiny stages, questions, payloads."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anole_helpers
import anole_upstream_helpers
import emu2_helpers
import gill_helpers
import minigpt5_helpers
import torch
from safetensors.numpy import load
from safetensors.torch import load_file, save_file
from torch import Tensor

from generators.anole.codec import pack_codes
from generators.anole.draft import AnoleDraft
from generators.anole.render import AnoleRender
from generators.base import Result
from generators.document import Image, ImageRequest, Payload, Request
from generators.emu2.condition import Emu2Condition
from generators.emu2.draft import Emu2Draft
from generators.emu2.reading import pack_vectors
from generators.emu2.render import Emu2Render
from generators.emu2.sizes import TINY_CHAT, TINY_GEN
from generators.gill.draft import GillDraft
from generators.gill.render import GillRender
from generators.minigpt5.draft import MiniGPT5Draft
from generators.minigpt5.render import MiniGPT5Render
from generators.vokens.mapper import pack_states

SMALL = {"height": 64, "width": 64, "steps": 2}


def asked(*content: str | Image, seed: int | None = 1) -> Request:
    """One turn of the user."""
    return emu2_helpers.asked(*content, seed=seed)


@dataclass(frozen=True)
class Native:
    """One native model."""

    stages: Mapping[str, Callable[..., Any]]
    """`draft`, `condition`, `render` -> its class."""
    save: Callable[[Path], dict[str, dict[str, str]]]
    """Writes tiny checkpoints as published; stage -> the settings that name them."""
    pack: Callable[[Tensor], Payload]
    """The payload of random values (rows, columns)."""
    layout: Mapping[str, tuple[tuple[int, ...], str]]
    """Tensor of a payload -> its shape and type."""
    sampled: Mapping[str, Any] | None
    """Settings under which tokens are drawn; None where they never are."""
    greedy: Mapping[str, Any]
    """Settings under which no token is drawn."""
    context: int
    """Positions of tiny weights."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Stage -> settings of the tests."""


def _anole(folder: Path) -> dict[str, dict[str, str]]:
    taming = anole_helpers.taming_tensors(anole_helpers.VQ)
    place = anole_helpers.save_hf(folder / "anole", anole_helpers.language(), taming)
    return {stage: {"model": str(place)} for stage in ("draft", "render")}


def _gill(folder: Path) -> dict[str, dict[str, str]]:
    places = gill_helpers.save(folder)
    drafting = {k: v for k, v in places.items() if k != "diffusion"}
    return {"draft": drafting, "render": {k: places[k] for k in ("model", "diffusion")}}


def _minigpt5(folder: Path) -> dict[str, dict[str, str]]:
    places = minigpt5_helpers.save_all(folder)
    diffusion = str(minigpt5_helpers.save_diffusion(folder / "sd"))
    return {
        "draft": places,
        "render": {"model": places["model"], "diffusion": diffusion},
    }


def _emu2(folder: Path) -> dict[str, dict[str, str]]:
    chat, gen = (
        emu2_helpers.native_state(m()) for m in (emu2_helpers.chat, emu2_helpers.gen)
    )
    chat_folder = emu2_helpers.save_chat(
        folder / "chat", chat, TINY_CHAT.vision, TINY_CHAT.language
    )
    drawing = emu2_helpers.tiny_drawing()
    gen_folder = emu2_helpers.save_gen(
        folder / "gen", gen, TINY_GEN.vision, TINY_GEN.language, drawing
    )
    drawn = {"model": str(gen_folder)}
    return {"draft": {"model": str(chat_folder)}, "condition": drawn, "render": drawn}


def _codes(values: Tensor) -> Payload:
    return pack_codes((values * 30).abs().int().clamp(max=127).numpy())


NATIVES: Mapping[str, Native] = {
    "anole": Native(
        stages={"draft": AnoleDraft, "render": AnoleRender},
        save=_anole,
        pack=_codes,
        layout={"codes": ((8, 8), "int32")},
        sampled={"context": 300},
        greedy={"text_greedy": True, "image_greedy": True, "context": 300},
        context=600,
        settings={"draft": {"context": 600}},
    ),
    "gill": Native(
        stages={"draft": GillDraft, "render": GillRender},
        save=_gill,
        pack=pack_states,
        layout={"states": ((8, 64), "float32")},
        sampled={"temperature": 0.7},
        greedy={},
        context=2048,
        settings={"render": SMALL},
    ),
    "minigpt5": Native(
        stages={"draft": MiniGPT5Draft, "render": MiniGPT5Render},
        save=_minigpt5,
        pack=pack_states,
        layout={"states": ((8, 64), "float32")},
        sampled={},
        greedy={"greedy": True, "max_new_tokens": 60},
        context=2048,
        settings={"render": SMALL},
    ),
    "emu2": Native(
        stages={"draft": Emu2Draft, "condition": Emu2Condition, "render": Emu2Render},
        save=_emu2,
        pack=lambda values: pack_vectors(values, values * 0),
        layout={
            "vectors": ((16, 64), "float32"),
            "unconditional": ((16, 64), "float32"),
        },
        sampled=None,
        greedy={"max_new_tokens": 24},
        context=2048,
        settings={"render": SMALL},
    ),
}


@functools.cache
def tiny(name: str, stage: str = "draft", **settings: Any) -> Any:
    """A stage with tiny weights; built once in a process."""
    native = NATIVES[name]
    given = {**native.settings.get(stage, {}), **settings}
    return native.stages[stage](weights="tiny", device="cpu", **given)


def published(name: str, stage: str, places: Mapping[str, str], **settings: Any) -> Any:
    """A stage from the checkpoints that `places` names."""
    given = SMALL if stage == "render" and name != "anole" else {}
    own = {
        "weights": "pretrained",
        "device": "cpu",
        "dtype": "float32",
        **given,
        **settings,
    }
    if name == "anole" and stage == "render":
        del own["dtype"]
    return NATIVES[name].stages[stage](**places, **own)


def good_payload(name: str, seed: int = 0) -> Payload:
    """A payload of random values that tiny weights draw."""
    shape = next(iter(NATIVES[name].layout.values()))[0]
    return NATIVES[name].pack(torch.randn(shape, generator=torch.manual_seed(seed)))


def drawings(name: str, outcomes: Sequence[Result]) -> list[ImageRequest]:
    """The requests of drafts as the render stage takes them."""
    if "condition" not in NATIVES[name].stages:
        payloads = [r.payload for o in outcomes for r in o.value.requests]
    else:
        prompts = [ImageRequest(o.value.text) for o in outcomes]
        payloads = [o.value for o in tiny(name, "condition")(prompts)]
    return [ImageRequest(payload=p, seed=i) for i, p in enumerate(payloads)]


def same_draft(ours: Any, theirs: Any) -> bool:
    """Whether two drafts are equal, their payloads but for rounding."""
    if len(ours.segments) != len(theirs.segments):
        return False
    for a, b in zip(ours.segments, theirs.segments, strict=True):
        if isinstance(a, ImageRequest) and isinstance(b, ImageRequest):
            x, y = load(a.payload.read()), load(b.payload.read())
            if x.keys() != y.keys() or any(abs(x[k] - y[k]).max() > 1e-3 for k in x):
                return False
        elif a != b:
            return False
    return True


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


def meta_anole(folder: Path) -> dict[str, str]:
    """Anole in its authors' layout."""
    return {"model": str(anole_upstream_helpers.checkpoint(folder / "meta"))}
