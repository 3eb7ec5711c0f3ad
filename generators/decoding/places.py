"""Where tokens stand, in the numbers that a decoder's position embeddings read.

Text counts 0, 1, 2, ... Under M-RoPE (Qwen2-VL, arXiv:2409.12191, section 2.1) a token has
three such numbers, of time, height and width, which differ inside a picture: a picture of
many tokens takes up as many numbers as its longer side has. A token's place in the cache
is another matter, the number of tokens before it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def counted(length: int, axes: int) -> Tensor:
    """Places (length, axes) of text from the first token on."""
    return torch.arange(length)[:, None].expand(length, axes)


def following(places: Tensor) -> Tensor:
    """Where text goes on after tokens at `places` (rows, axes): one after their largest."""
    if places.shape[-1] == 1:
        return places + 1
    return (places.amax(dim=-1, keepdim=True) + 1).repeat(1, places.shape[-1])


def position_ids(places: Tensor) -> Tensor:
    """Places (rows, tokens, axes) as transformers has them.

    (rows, tokens) for one axis, else (axes, rows, tokens).
    """
    return places[..., 0] if places.shape[-1] == 1 else places.permute(2, 0, 1)
