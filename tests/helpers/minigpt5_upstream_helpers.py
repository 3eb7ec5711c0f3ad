"""MiniGPT-5's original program: a rewrite of its loop, and the inputs of stored results.

`minigpt5_upstream.npz` holds results of the original program
(eric-ai-lab/MiniGPT-5@915ab17, transformers 4.31.0, peft 0.10.0, diffusers 0.27.2) on the
files that `minigpt5_helpers` writes, in float32 on a CPU. Patched there: sizes of the ViT
and of the Q-Former, paths, cuda and bfloat16, the ids of `###`, and the random number of
each sampled id, which is the first whose cumulative probability exceeds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from paths import DATA
from picture_helpers import png
from PIL import Image as Pillow

from generators.document import Image, Request, Text, Turn

ARRAYS = DATA / "minigpt5_upstream.npz"

PICTURES = {"wide": (50, 31), "tall": (23, 60), "square": (28, 28), "odd": (37, 36)}
"""Name -> width and height."""

QUESTIONS: list[list[str]] = [
    ["the quiet old river", "wide", " grows under the house.", "tall", "\n"],
    ["Tell me of the garden, slowly"],
    ["square", "a bird  and\n### a boat", "odd", "wide", " then"],
]
"""Text, and names of pictures."""

RUNS: list[dict[str, Any]] = [
    {"seed": 3},
    {"seed": 4},
    {"seed": 15, "force_image": True},
    {"seed": 6, "max_new_tokens": 24},
    {"seed": 7, "finetuned": "mmdialog"},
    {"seed": 8, "finetuned": "none"},
]
"""Settings of the runs, each over all questions."""

STEPS = 12
NOISE_SEED = 77


def picture(name: str) -> Pillow.Image:
    """Smooth colours with some noise."""
    width, height = PICTURES[name]
    random = np.random.RandomState(sum(map(ord, name)))
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / (3 + c) + c) * np.cos(y / (5 - c)) for c in range(3)]
    values = 128 + 90 * np.stack(waves, axis=-1) + random.normal(0, 12, (height, width, 3))
    return Pillow.fromarray(values.clip(0, 255).astype(np.uint8))


def encoded(name: str) -> Image:
    return png(picture(name))


def request(question: list[str], seed: int) -> Request:
    content = tuple(encoded(s) if s in PICTURES else Text(s) for s in question)
    return Request((Turn("user", content),), seed=seed)


@torch.inference_mode()
def upstream_loop(
    language: Any,
    vocabulary: Any,
    settings: Any,
    prompt: torch.Tensor,
    seed: int,
    cached: bool = True,
) -> tuple[list[int], list[torch.Tensor]]:
    """One record by the rules of the paper's program: ids, and states (8, width).

    Prompt (positions, width). A picture's eight vokens are fed together. With `cached`
    each pass takes only new positions, as upstream's; otherwise everything is recomputed.
    """
    from transformers import DynamicCache

    model = language.model
    table = model.embed_tokens.weight
    vokens = list(range(len(table) - 9, len(table) - 1))
    generator = torch.Generator().manual_seed(seed)
    cache = DynamicCache() if cached else None
    fed, sequence = prompt.to(table), prompt.to(table)
    ids, pictures, last = [settings.leading_id], [], None
    while True:
        inputs = fed if cached else sequence
        out = model(inputs_embeds=inputs[None], past_key_values=cache, use_cache=cached)
        states = out.last_hidden_state[0][-len(fed) :]
        if ids[-1] == vokens[0]:
            pictures.append(torch.cat([last, states[:-1]]))
        if _ends(ids, settings, vocabulary.stops):
            return ids[1:], pictures
        last = states[-1:]
        logits = language.lm_head(last)[0].double().numpy()
        token = _next_id(logits, ids, settings, vokens[0], len(pictures), generator)
        ids.append(token)
        if token != vokens[0] and _ends(ids, settings, vocabulary.stops):
            return ids[1:], pictures
        fed = table[vokens] if token == vokens[0] else table[[token]]
        sequence = torch.cat([sequence, fed])


def _ends(ids: list[int], settings: Any, stops: Any) -> bool:
    marked = any(tuple(ids[-len(stop) :]) == tuple(stop) for stop in stops)
    over = len(ids) - 1 >= settings.max_new_tokens
    return marked or ids[-1] == settings.end_id or over


def _next_id(
    logits: np.ndarray,
    ids: list[int],
    settings: Any,
    begin: int,
    drawn: int,
    generator: torch.Generator,
) -> int:
    for i in set(ids):
        factor = settings.repetition_penalty
        logits[i] = logits[i] * factor if logits[i] < 0 else logits[i] / factor
    if drawn == settings.max_images:
        logits[begin] = -np.inf
    if settings.force_image and begin not in ids:
        logits[:begin] = logits[begin + 1 :] = -np.inf
    if settings.greedy:
        return int(logits.argmax())
    scaled = logits / settings.temperature
    if settings.top_k:
        scaled[scaled < np.sort(scaled)[-settings.top_k]] = -np.inf
    p = np.exp(scaled - scaled.max())
    p /= p.sum()
    order = np.argsort(p, kind="stable")
    p[order[:-1][np.cumsum(p[order])[:-1] <= 1 - settings.top_p]] = 0
    draw = float(torch.rand((), generator=generator, dtype=torch.float64))
    return int(np.searchsorted(np.cumsum(p), draw * p.sum(), side="right"))
