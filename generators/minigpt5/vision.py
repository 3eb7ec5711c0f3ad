"""The image encoder: images as upstream preprocesses them, then vectors of a prompt.

Two of upstream's programs differ: examples/playground.py makes images square with white
margins, VIST's evaluation (train_eval.py) scales the shorter side and crops.

BLIP-2's part is stored as transformers does, or as LAVIS does. Of LAVIS's files,
`eva_vit_g.pth` holds the ViT, `blip2_pretrained_flant5xxl.pth` its last norm, the Q-Former
and the queries. Neither has a configuration: sizes follow from the tensors, and head sizes
and the depth from LAVIS's code (minigpt4/models/eva_vit.py and Qformer.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import torch
import torchvision.transforms.functional as TF
from PIL import Image as Pillow
from torch import Tensor, nn

from plait.generators.decoding.drafting import clip_pixels
from plait.generators.document import Image
from plait.generators.errors import CheckpointError
from plait.generators.images import decode
from plait.generators.loading.files import (
    Files,
    config_of_class,
    count,
    in_pickle,
    read_json,
    read_stored,
    section,
    shape_of,
)
from plait.generators.loading.strict import Place, Put, identical, rename

_LONGEST = 8192
"""Longer images are scaled down first: their margins would make huge squares."""


def encoder_pixels(image: Image, side: int, fit: Literal["pad", "crop"]) -> Tensor:
    """Return the encoder's input: (3, side, side), float32, normalised.

    Raises ImageError for an image that cannot be decoded.
    """
    pil_image = decode(image)
    if (factor := math.ceil(max(pil_image.size) / _LONGEST)) > 1:
        pil_image = pil_image.reduce(factor)
    to_square = pad_to_square if fit == "pad" else crop_to_square
    return clip_pixels(to_square(pil_image, side))


def pad_to_square(pil_image: Pillow.Image, side: int) -> Pillow.Image:
    """Return the whole image in the middle of a white square, scaled to `side` pixels."""
    longest = max(pil_image.size)
    square = Pillow.new("RGB", (longest, longest), (255, 255, 255))
    left = (longest - pil_image.width) // 2
    top = (longest - pil_image.height) // 2
    square.paste(pil_image, (left, top))
    return square.resize((side, side), Pillow.Resampling.BILINEAR)


def crop_to_square(pil_image: Pillow.Image, side: int) -> Any:
    """Return the centre square, the shorter side scaled to `side` pixels.

    The long side is truncated and the margin rounded.
    """
    return TF.center_crop(TF.resize(pil_image, side), side)


_LAVIS_NORM = 1e-5
"""Epsilon of `ln_vision` (blip2.py); transformers uses that of the ViT, 1e-6."""
_MAX_BATCH = 16
"""Maximum number of images in one pass."""


class ImageEncoder(nn.Module):
    """EVA-ViT-g and Q-Former of BLIP-2 (arXiv:2301.12597), and MiniGPT-4's projection.

    Parameters have the names of transformers' `Blip2Model`, and `llama_proj`.
    """

    def __init__(
        self,
        vision: Mapping[str, Any],
        qformer: Mapping[str, Any],
        queries: int,
        width: int,
    ) -> None:
        """Take both parts' configurations; `width` is that of the language model."""
        super().__init__()
        from transformers import Blip2QFormerModel, Blip2VisionModel

        vit = config_of_class("Blip2VisionConfig", vision, "the ViT of BLIP-2")
        bert = config_of_class("Blip2QFormerConfig", qformer, "the Q-Former of BLIP-2")
        self.vision_model = Blip2VisionModel(vit)
        self.vision_model.post_layernorm.eps = _LAVIS_NORM
        self.query_tokens = nn.Parameter(torch.empty(1, queries, bert.hidden_size))
        self.qformer = Blip2QFormerModel(bert)
        self.llama_proj = nn.Linear(bert.hidden_size, width)
        self.side: int = vit.image_size
        self.eval().requires_grad_(False)

    @torch.inference_mode()
    def forward(self, pixels: Tensor) -> Tensor:
        """Return vectors (images, queries, width) of pixels (images, 3, side, side)."""
        parts = torch.split(pixels.to(self.query_tokens), _MAX_BATCH)
        return torch.cat([self._encode(part) for part in parts])

    def _encode(self, pixels: Tensor) -> Tensor:
        features = self.vision_model(pixel_values=pixels).last_hidden_state
        queries = self.query_tokens.expand(len(pixels), -1, -1)
        outputs = self.qformer(query_embeds=queries, encoder_hidden_states=features)
        projected: Tensor = self.llama_proj(outputs.last_hidden_state)
        return projected


VIT = "eva_vit_g.pth"
QFORMER = "blip2_pretrained_flant5xxl.pth"
_DEPTH = 39
"""`create_eva_vit_g` leaves out the last of EVA-CLIP's 40 blocks."""
_VIT_HEAD = 88
_QFORMER_HEAD = 64
"""Channels of one attention head."""

_UNUSED_VIT = ("norm", "fc_norm", "head", "mask_token")
_UNUSED_QFORMER = ("t5_proj", "Qformer.cls", "Qformer.bert.embeddings.position_ids")
"""The head of EVA-CLIP, and the layers between BLIP-2's Q-Former and its T5."""

_NAMES = [
    (r"vision_model\.embeddings\.class_embedding", "cls_token"),
    (r"vision_model\.embeddings\.position_embedding", "pos_embed"),
    (r"vision_model\.embeddings\.patch_embedding", "patch_embed.proj"),
    (r"vision_model\.encoder\.layers\.(\d+)", r"blocks.\1"),
    (r"\.layer_norm([12])", r".norm\1"),
    (r"\.self_attn\.projection", ".attn.proj"),
    (r"\.self_attn\.qkv", ".attn.qkv"),
    (r"\.attn\.qkv\.bias", ".attn.q_bias and v_bias"),
    (r"vision_model\.post_layernorm", "ln_vision"),
    (r"qformer\.layernorm", "Qformer.bert.embeddings.LayerNorm"),
    (r"attention\.attention\.", "attention.self."),
    (r"qformer\.encoder", "Qformer.bert.encoder"),
]
"""From transformers' names to LAVIS's."""


def open_blip2(files: Files) -> Blip2:
    """Return the checkpoint in either layout; CheckpointError if it is not BLIP-2."""
    if files.find("config.json") is not None:
        return Blip2(files)
    if files.find(VIT) is None:
        raise CheckpointError(
            f"{files.describe()} does not hold a BLIP-2: neither config.json with "
            f"model.safetensors, nor LAVIS's {VIT} and {QFORMER}"
        )
    return LavisBlip2(files)


class Blip2:
    """A checkpoint as transformers stores it."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.source = files.describe()

    def configs(self) -> tuple[dict[str, Any], dict[str, Any], int]:
        """Return `Blip2VisionConfig`'s fields, `Blip2QFormerConfig`'s, and the queries."""
        path = self.files.need("config.json")
        stored = read_json(path)
        qformer = section(stored, "qformer_config", str(path))
        vision = section({"vision_config": {}} | stored, "vision_config", str(path))
        queries = count({"num_query_tokens": 32} | stored, "num_query_tokens", str(path))
        return dict(vision), dict(qformer), queries

    def fill(self, encoder: ImageEncoder, put: Put) -> None:
        """Fill an encoder, except its projection, strictly."""
        prefixes = ("vision_model.", "qformer.", "query_tokens")
        names = [name for name in encoder.state_dict() if name.startswith(prefixes)]
        tensors = read_stored(self.files, lambda name: name.startswith(prefixes))
        put(encoder, tensors, identical(names), source=self.source)


class LavisBlip2(Blip2):
    """The two files of LAVIS in a folder."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self._vit = in_pickle(files.need(VIT))
        self._qformer = in_pickle(files.need(QFORMER), "model")

    def configs(self) -> tuple[dict[str, Any], dict[str, Any], int]:
        """Return what follows from the tensors' shapes."""
        _, queries, _ = self._shape(self._qformer, "query_tokens", 3)
        return self._vision_config(), self._qformer_config(), queries

    def _vision_config(self) -> dict[str, Any]:
        width, _, patch, _ = self._shape(self._vit, "patch_embed.proj.weight", 4)
        positions = self._shape(self._vit, "pos_embed", 3)[1]
        return {
            "hidden_size": width,
            "intermediate_size": self._shape(self._vit, "blocks.0.mlp.fc1.weight", 2)[0],
            "num_hidden_layers": min(_DEPTH, _length(self._vit, r"blocks\.(\d+)\.")),
            "num_attention_heads": width // _VIT_HEAD,
            "image_size": math.isqrt(positions - 1) * patch,
            "patch_size": patch,
        }

    def _qformer_config(self) -> dict[str, Any]:
        layer = "Qformer.bert.encoder.layer."
        # Only some layers read the image: every second one, as published.
        crossing = _numbers(self._qformer, r".*\.layer\.(\d+)\.crossattention\.")
        first = crossing[0] if crossing else 0
        interval = crossing[1] - first if len(crossing) > 1 else 2
        key = f"{layer}{first}.crossattention.self.key.weight"
        inner = f"{layer}0.intermediate_query.dense.weight"
        width = self._shape(self._qformer, "query_tokens", 3)[2]
        return {
            "hidden_size": width,
            "intermediate_size": self._shape(self._qformer, inner, 2)[0],
            "num_hidden_layers": _length(self._qformer, r".*\.layer\.(\d+)\."),
            "num_attention_heads": width // _QFORMER_HEAD,
            "encoder_hidden_size": self._shape(self._qformer, key, 2)[1],
            "cross_attention_frequency": interval,
        }

    def _shape(self, tensors: Mapping[str, Any], name: str, rank: int) -> tuple[int, ...]:
        file = VIT if tensors is self._vit else QFORMER
        return shape_of(tensors, name, f"{file} of {self.source}", rank)

    def fill(self, encoder: ImageEncoder, put: Put) -> None:
        """Fill an encoder, except its projection, strictly."""
        rest = ("qformer.", "query_tokens", "vision_model.post_layernorm.")
        vit: dict[str, Place] = {}
        qformer: dict[str, Place] = {}
        for name in encoder.state_dict():
            if name.startswith("llama_proj."):
                continue
            layout = qformer if name.startswith(rest) else vit
            layout[rename(name, _NAMES)] = Place(name)
        source = f"{VIT} of {self.source}"
        tensors = _vit_tensors(self._vit)
        put(encoder, tensors, vit, source=source, tolerated=_UNUSED_VIT)
        source = f"{QFORMER} of {self.source}"
        tensors = iter(self._qformer.items())
        put(encoder, tensors, qformer, source=source, tolerated=_UNUSED_QFORMER)


def _vit_tensors(stored: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Read the blocks in use, biases of queries and values joined with the keys' zeros."""
    biases: dict[str, dict[str, Tensor]] = {}
    for name, tensor in stored.items():
        block = re.match(r"blocks\.(\d+)\.", name)
        if block is not None and int(block[1]) >= _DEPTH:
            continue
        bias = re.match(r"(.*\.attn)\.([qv])_bias$", name)
        if bias is None or not isinstance(tensor, Tensor):
            yield name, tensor
            continue
        both = biases.setdefault(bias[1], {})
        both[bias[2]] = tensor
        if len(both) == 2:
            joint = [both["q"], torch.zeros_like(both["q"]), both["v"]]
            yield f"{bias[1]}.q_bias and v_bias", torch.cat(joint)


def _length(names: Iterable[str], pattern: str) -> int:
    """Return how many layers there are, by the numbers in their parameters' names."""
    return max(_numbers(names, pattern), default=-1) + 1


def _numbers(names: Iterable[str], pattern: str) -> list[int]:
    """Return the numbers in the pattern's group, ascending."""
    numbers: set[int] = set()
    for name in names:
        if match := re.match(pattern, name):
            numbers.add(int(match[1]))
    return sorted(numbers)
