"""Where each parameter stands in a published `InternVLChatModel` checkpoint.

The published names are those of modeling_intern_vit.py and modeling_internvl_chat.py
(OpenGVLab/InternVL@2410d1d); ours are transformers' `InternVLForConditionalGeneration`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from torch import Tensor

from generators.loading.strict import Layout, Place

_NAMES = [
    (r"^model\.vision_tower\.encoder\.layer\.", "vision_model.encoder.layers."),
    (r"^model\.vision_tower\.", "vision_model."),
    (r"^model\.multi_modal_projector\.layer_norm\.", "mlp1.0."),
    (r"^model\.multi_modal_projector\.linear_1\.", "mlp1.1."),
    (r"^model\.multi_modal_projector\.linear_2\.", "mlp1.3."),
    (r"^model\.language_model\.", "language_model.model."),
    (r"^lm_head\.", "language_model.lm_head."),
    (r"\.embeddings\.cls_token$", ".embeddings.class_embedding"),
    (r"\.embeddings\.position_embeddings$", ".embeddings.position_embedding"),
    (r"\.patch_embeddings\.projection\.", ".patch_embedding."),
    (r"\.attention\.([qk])_norm\.", r".attn.\1_norm."),
    (r"\.attention\.([qkv])_proj\.(weight|bias)$", r".attn.qkv.\2[\1]"),
    (r"\.attention\.projection_layer\.", ".attn.proj."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.lambda_([12])$", r".ls\1"),
]
"""From transformers' names to the published ones."""


def published_layout(names: Iterable[str]) -> Layout:
    """The layout for the parameters `names`, of the tensors that `separated` yields."""
    return {_published(name): Place(name) for name in names}


def _published(name: str) -> str:
    for pattern, replacement in _NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def separated(stored: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Stored tensors, with the joint projection of the vision model's attention in three.

    `...attn.qkv.weight` becomes `...attn.qkv.weight[q]`, `[k]` and `[v]`.
    """
    for name, tensor in stored:
        if not re.search(r"^vision_model\..*\.attn\.qkv\.(weight|bias)$", name):
            yield name, tensor
            continue
        for part, piece in zip("qkv", tensor.tensor_split(3), strict=True):
            yield f"{name}[{part}]", piece
