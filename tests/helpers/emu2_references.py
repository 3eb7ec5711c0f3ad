"""Reference programs for Emu2: everything recomputed, in upstream's own order."""

from __future__ import annotations

import copy
import functools
import math
from typing import Any

import torch
import torch.nn.functional as F
from emu2_helpers import State

from generators.emu2.sizes import VisionSize


def seen_exactly(state: State, vision: VisionSize, pixels: torch.Tensor) -> torch.Tensor:
    """The vision encoder: (3, side, side) -> (queries, width)."""
    t = {k.removeprefix("visual."): v.double() for k, v in state.items()}
    p, grid, heads = vision.patch, vision.grid, vision.heads
    patches = pixels.double().reshape(3, grid, p, grid, p).permute(1, 3, 0, 2, 4)
    kernel = t["patch_embed.proj.weight"].reshape(vision.width, -1)
    x = patches.reshape(grid * grid, -1) @ kernel.T + t["patch_embed.proj.bias"]
    x = torch.cat([t["cls_token"][0], x]) + t["pos_embed"][0]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        return scaled * t[f"{name}.weight"] + t[f"{name}.bias"]

    for i in range(vision.layers):
        b = f"blocks.{i}"
        q, k, v = (x @ w.T for w in t[f"{b}.attn.qkv.weight"].chunk(3))
        q, v = q + t[f"{b}.attn.q_bias"], v + t[f"{b}.attn.v_bias"]
        out = []
        for h in range(heads):
            part = slice(h * vision.width // heads, (h + 1) * vision.width // heads)
            scores = q[:, part] @ k[:, part].T / math.sqrt(vision.width // heads)
            out.append(scores.softmax(-1) @ v[:, part])
        a = torch.cat(out, -1) @ t[f"{b}.attn.proj.weight"].T + t[f"{b}.attn.proj.bias"]
        x = x + norm(a, f"{b}.norm1")
        h1 = x @ t[f"{b}.mlp.fc1.weight"].T + t[f"{b}.mlp.fc1.bias"]
        h2 = 0.5 * h1 * (1 + torch.erf(h1 / math.sqrt(2)))
        h3 = h2 @ t[f"{b}.mlp.fc2.weight"].T + t[f"{b}.mlp.fc2.bias"]
        x = x + norm(h3, f"{b}.norm2")
    side = math.isqrt(vision.queries)
    squares = x[1:].reshape(side, grid // side, side, grid // side, -1)
    return squares.mean((1, 3)).reshape(vision.queries, -1)


@functools.cache
def exact(model_of: Any) -> Any:
    """The network of a tiny model in float64."""
    return copy.deepcopy(model_of().network).double()


@torch.inference_mode()
def uncached_vectors(network: Any, prompt: torch.Tensor, queries: int) -> torch.Tensor:
    """Upstream's loop (`generate_image`): every vector recomputes the whole sequence.

    `prompt` (positions, hidden) ends with the mark of the picture's beginning. After
    `k` rounds the sequence is the prompt and `k` places of the picture; all `k + 1`
    vectors are then read anew, from the mark and those places.
    """
    vectors = torch.empty(0, network.project_down.weight.shape[0]).to(prompt)
    for k in range(queries):
        sequence = torch.cat([prompt, network.project_up(vectors)])[None]
        hidden = network.lm.model(inputs_embeds=sequence, use_cache=False)[0][0]
        vectors = network.project_down(hidden[-(k + 1) :])
    return vectors


def last_logits(network: Any, embeddings: torch.Tensor) -> torch.Tensor:
    """Logits after one sequence (positions, hidden), without any cache."""
    hidden = network.lm.model(inputs_embeds=embeddings[None], use_cache=False)[0]
    return network.lm.lm_head(hidden[0, -1])


def beam_search(
    network: Any,
    prompt: torch.Tensor,
    *,
    beams: int,
    most: int,
    end: int,
    length_penalty: float = -1.0,
) -> list[int]:
    """One record, recomputing every context: ids, the end included where it is reached.

    Hypotheses compete by the sum of their log-probabilities over their length to the
    power of the penalty (Hugging Face's search, which goes on until no running beam can
    beat the worst of `beams` finished ones). The length counts a leading `<s>` but no
    end, as in transformers 4.31.
    """
    embed = network.lm.get_input_embeddings().weight
    running: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for step in range(1, most + 1):
        candidates = []
        for score, ids in running:
            sequence = torch.cat([prompt, embed[torch.tensor(ids, dtype=torch.long)]])
            logs = F.log_softmax(last_logits(network, sequence), -1)
            top = logs.topk(2 * beams)
            both = zip(top.values.tolist(), top.indices.tolist(), strict=True)
            candidates += [(score + value, [*ids, i]) for value, i in both]
        candidates.sort(key=lambda c: -c[0])
        for score, ids in candidates[: 2 * beams][:beams]:
            if ids[-1] == end:
                finished.append((score / step**length_penalty, ids))
        finished = sorted(finished, key=lambda f: -f[0])[:beams]
        running = [c for c in candidates[: 2 * beams] if c[1][-1] != end][:beams]
        best = running[0][0] / step**length_penalty
        if len(finished) == beams and best <= finished[-1][0]:
            break
    else:
        finished += [(s / (most + 1) ** length_penalty, ids) for s, ids in running]
    return max(finished, key=lambda f: f[0])[1]
