"""MiniGPT-5's loop of words and pictures as the paper's program runs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


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

    Prompt (positions, width). A picture's eight vokens go in together. With `cached`
    each pass takes only new positions, as upstream's; else it recomputes everything.
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
