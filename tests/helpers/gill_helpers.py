"""Tiny GILL checkpoints in the published layout, and a rewrite of the original loop."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from shard_helpers import save_shards
from torch import Tensor

from generators.diffusion.builds import build_pipeline
from generators.document import Image, Request, Text, Turn
from generators.gill.draft import GillDraft, GillPrompt
from generators.gill.networks import GillVision
from generators.gill.render import load_mapper
from generators.gill.sizes import TINY
from generators.pictures import encode
from generators.vokens.mapper import unpack_states

CPU = torch.device("cpu")
UNUSED_ROWS = 7
"""OPT's embedding table has so many more rows than its vocabulary."""


@functools.cache
def tiny(**settings: Any) -> GillDraft:
    return GillDraft(weights="tiny", device="cpu", **settings)


def question(*content: str | Image, seed: int | None = 1) -> Request:
    parts = tuple(Text(c) if isinstance(c, str) else c for c in content)
    return Request((Turn("user", parts),), seed)


def picture(seed: int = 0, width: int = 40, height: int = 30) -> Image:
    import numpy as np
    from PIL import Image as Pillow

    values = np.random.RandomState(seed).randint(0, 256, (height, width, 3))
    return encode(Pillow.fromarray(values.astype(np.uint8)))


QUESTIONS = [
    question("What is a red house?", seed=3),
    question("the river and the boat"),
    question(picture(1), "Describe a garden", seed=4),
    question("how do I bake a cake", picture(2), "with eggs", picture(3), seed=5),
    question("one", seed=6),
    question(picture(4), seed=7),
]
"""Of several lengths, with pictures before, within and instead of text."""


@torch.inference_mode()
def gill_uncached(
    stage: GillDraft, prompt: Tensor, seed: int, dtype: torch.dtype = torch.float64
) -> tuple[list[int], list[Tensor]]:
    """Ids and image states by the rules of `GILLModel.generate`, for one record.

    No cache: the whole sequence is recomputed for every token, and once more for the
    states, so that an image requested at the last step has them too.
    """
    settings, tokens = stage.settings, stage.language.tokens
    decoder = copy.deepcopy(stage.language.decoder).to(dtype)
    table = decoder.embed_tokens.weight
    first, *others = tokens.vokens
    generator = torch.Generator().manual_seed(seed)
    sequence, ids = prompt.to(dtype), []
    for step in range(settings.num_words):
        logits = table @ _states(decoder, sequence)[-1]
        logits[others] = -torch.inf
        for factor in (settings.ret_scale_factor, settings.gen_scale_factor):
            if factor > 1:
                logits[first] = logits[first].abs() * factor
        if step < settings.min_word_tokens:
            logits[first] = -torch.inf
        chosen = _pick(logits, settings, generator)
        new = [*tokens.vokens] if chosen == first else [chosen]
        ids += new
        sequence = torch.cat([sequence, table[new]])
    states = _states(decoder, sequence)[len(prompt) :]
    end = ids.index(tokens.newline) if tokens.newline in ids else 0
    ids = ids[:end] if end > 0 else ids
    begun = [i for i, token in enumerate(ids) if token == first][: settings.max_num_rets]
    return ids, [states[i : i + len(tokens.vokens)] for i in begun]


def _states(decoder: Any, sequence: Tensor) -> Tensor:
    positions = torch.arange(len(sequence))[None]
    outputs = decoder(inputs_embeds=sequence[None], position_ids=positions, use_cache=False)
    states: Tensor = outputs.last_hidden_state[0]
    return states


def _pick(logits: Tensor, settings: Any, generator: torch.Generator) -> int:
    """Greedy, or from the likeliest ids whose sum passes top_p."""
    if settings.temperature == 0:
        return int(logits.argmax())
    p = (logits.double() / settings.temperature).softmax(-1)
    order = p.argsort(descending=True)
    before = p[order].cumsum(-1) - p[order]
    p[order[before > settings.top_p]] = 0
    draw = float(torch.rand((), generator=generator, dtype=torch.float64))
    return int((p.cumsum(-1) > draw * p.sum()).nonzero()[0])


def embed(stage: GillDraft, request: Request) -> Tensor:
    prompt = stage.prompt(request)
    assert isinstance(prompt, GillPrompt)
    return stage.embed([prompt])[0]


def assert_same(ours: Any, theirs: Any) -> None:
    """Drafts with equal texts, and states equal but for the last digits."""
    for a, b in zip(ours.value.segments, theirs.value.segments, strict=True):
        assert type(a) is type(b)
        if isinstance(a, Text):
            assert a == b
            continue
        x, y = unpack_states(a.payload), unpack_states(b.payload)
        assert abs(x - y).max() <= 1e-5 * abs(y).max()


Change = Callable[[dict[str, Tensor]], None]


def own_tensors(stage: GillDraft) -> dict[str, Tensor]:
    """The content of `pretrained_ckpt.pth.tar`, with constant parts for retrieval."""
    mapper, _ = load_mapper("tiny", "", None, CPU)
    vision, width = stage.vision, TINY.mapper.states
    names = {"first": "fc", "transformer": "tfm", "last": "model"}
    tensors = {
        "logit_scale": torch.tensor(2.6),
        "input_embeddings.weight": stage.language.embeddings[-TINY.vokens :].clone(),
        "visual_embeddings.weight": vision.projection.weight,
        "visual_embeddings.bias": vision.projection.bias,
        "visual_fc.weight": torch.ones(16, TINY.vision["hidden_size"]),
        "visual_fc.bias": torch.ones(16),
        "ret_text_hidden_fcs.0.model.weight": torch.ones(16, width),
        "ret_text_hidden_fcs.0.model.bias": torch.ones(16),
        "gen_text_hidden_fcs.0.query_embs": mapper.queries[None],
    }
    for name, value in mapper.state_dict().items():
        part, _, rest = name.partition(".")
        if part in names:
            tensors[f"gen_text_hidden_fcs.0.{names[part]}.{rest}"] = value
    return {f"model.{name}": value.detach().clone() for name, value in tensors.items()}


def save_own(
    folder: Path, stage: GillDraft, change: Change | None = None, prefix: str = ""
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = own_tensors(stage)
    if change is not None:
        change(tensors)
    stored = {prefix + name: value for name, value in tensors.items()}
    torch.save({"state_dict": stored}, folder / "pretrained_ckpt.pth.tar")
    ids = list(stage.language.tokens.vokens)
    about = {"n_visual_tokens": TINY.visual_tokens, "num_tokens": TINY.vokens}
    about |= {"gen_token_idx": ids, "retrieval_token_idx": ids, "num_clip_tokens": 77}
    (folder / "model_args.json").write_text(json.dumps(about))


def opt_tensors(stage: GillDraft) -> dict[str, Tensor]:
    """A bare `OPTModel`, its table as long as it was before GILL."""
    tensors = {
        f"decoder.{k}": v.clone() for k, v in stage.language.decoder.state_dict().items()
    }
    table = tensors["decoder.embed_tokens.weight"]
    tensors["decoder.embed_tokens.weight"] = table[: opt_rows(stage)].clone()
    return tensors


def opt_rows(stage: GillDraft) -> int:
    tokens = stage.language.tokens
    return min(tokens.size, tokens.cls + UNUSED_ROWS)


def save_opt(
    folder: Path, stage: GillDraft, change: Change | None = None, slow: bool = False
) -> None:
    """Two shards with an index; `tokenizer.json`, or a slow tokenizer's two files."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = opt_tensors(stage)
    if change is not None:
        change(tensors)
    save_shards(folder, tensors)
    about = {"model_type": "opt", "vocab_size": opt_rows(stage)}
    config = dict(TINY.language) | about
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = stage.language.tokens.tokenizer
    if slow:
        tokenizer.model.save(str(folder))
    else:
        tokenizer.save(str(folder / "tokenizer.json"))


def save_clip(folder: Path, vision: GillVision, change: Change | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    state = vision.tower.state_dict()
    tensors = {f"vision_model.{name}": value.clone() for name, value in state.items()}
    tensors |= {"text_model.final_layer_norm.bias": torch.zeros(4)}
    tensors |= {"vision_model.embeddings.position_ids": torch.arange(5)[None]}
    if change is not None:
        change(tensors)
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "clip", "vision_config": dict(TINY.vision)}
    (folder / "config.json").write_text(json.dumps(config))
    side = TINY.vision["image_size"]
    processor = {"size": side, "crop_size": side, "resample": 3, "do_resize": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def save_diffusion(folder: Path) -> None:
    """Stable Diffusion 1.5 at toy size, as diffusers stores it."""
    pipeline = build_pipeline("sd15", "tiny", CPU, torch.float32)
    pipeline.save_pretrained(folder)


def save(folder: Path) -> dict[str, str]:
    """All four checkpoints; the settings that name them."""
    stage = tiny()
    save_own(folder / "gill", stage)
    save_opt(folder / "opt", stage)
    save_clip(folder / "clip", stage.vision)
    save_diffusion(folder / "sd")
    names = {"model": "gill", "language": "opt", "vision": "clip", "diffusion": "sd"}
    return {name: str(folder / place) for name, place in names.items()}
