"""CLIP as a model of images and texts: open_clip's model, weights and preprocessing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import open_clip
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict
from PIL import Image as Pillow
from torchvision.transforms import CenterCrop, InterpolationMode
from torchvision.transforms import functional as F

from plait.generators.base import Weights
from plait.generators.errors import CheckpointError
from plait.generators.loading.strict import device_of, fill, identical
from plait.scorers.clip.checkpoints import read_checkpoint
from plait.scorers.clip.text import ClipText, TokenIds
from plait.scorers.embeddings.settings import PUBLISHED, ClipSettings, Processor
from plait.scorers.embeddings.stage import Embed, Encoder, TextEncoder, Transform

MAX_ASPECT = 16
"""Of a longer image only the middle is resized: the centre crop keeps no more."""


def transform_of(
    size: tuple[int, int], about: Mapping[str, Any], processor: Processor = "open_clip"
) -> Transform:
    """Return the evaluation transform of a library for towers of `size` (height, width).

    `about` holds those fields of open_clip's `PreprocessCfg` that differ from OpenAI's:
    shorter side resized with Pillow's bicubic filter, centre cropped.
    """
    merged = {**merge_preprocess_dict(PreprocessCfg(), dict(about)), "size": size}
    if processor == "hpsv2":
        return _pad(size[0], merged["mean"], merged["std"])
    transform = image_transform_v2(PreprocessCfg(**merged), is_train=False)
    steps = transform.transforms
    if merged["resize_mode"] == "shortest":
        steps.insert(0, middle)
    if processor == "transformers":
        for place, step in enumerate(steps):
            if isinstance(step, CenterCrop):
                steps[place] = _crop(step.size)
    return transform  # type: ignore[no-any-return]


def _crop(size: tuple[int, int]) -> Callable[[Pillow.Image], Pillow.Image]:
    """The middle of an image, rounded down; torchvision rounds half a pixel to even."""

    def crop(image: Pillow.Image) -> Pillow.Image:
        left = (image.width - size[1]) // 2
        top = (image.height - size[0]) // 2
        return image.crop((left, top, left + size[1], top + size[0]))

    return crop


def _pad(side: int, mean: Sequence[float], std: Sequence[float]) -> Transform:
    """HPSv2's transform for square towers.

    The longer side is resized as a tensor, antialiased as by torchvision since 0.17, and
    black is added on both sides (`ResizeMaxSize` in its open_clip/transform.py).
    """

    def transform(image: Pillow.Image) -> torch.Tensor:
        scale = side / max(image.size)
        width = max(1, round(image.width * scale))
        height = max(1, round(image.height * scale))
        pixels = F.resize(F.to_tensor(image), [height, width], InterpolationMode.BICUBIC)
        left = (side - width) // 2
        top = (side - height) // 2
        ends = [left, top, side - width - left, side - height - top]
        prepared: torch.Tensor = F.normalize(F.pad(pixels, ends), mean, std)
        return prepared

    return transform


def middle(image: Pillow.Image) -> Pillow.Image:
    """`image`, cut to MAX_ASPECT around its centre.

    Resizing the shorter side of a 10 x 10,000,000 image to 224 would take 150 GB.
    """
    width, height = image.size
    longest = MAX_ASPECT * min(width, height)
    left = max(0, width - longest) // 2
    top = max(0, height - longest) // 2
    if not left and not top:
        return image
    return image.crop((left, top, width - left, height - top))


TINY = {
    "embed_dim": 32,
    "quick_gelu": True,
    "vision_cfg": {
        "image_size": 32, "patch_size": 8, "width": 64, "head_width": 32, "layers": 2,
    },
    "text_cfg": {
        "context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2,
    },
}  # fmt: skip
"""OpenAI's CLIP at toy size, with the published vocabulary that open_clip ships."""

SEED = 3
"""Of random weights. With it the toy's cosines spread from -0.1 to 0.4; with many others
they are all negative, and Hessel's clamp would make every tiny score 0."""
_PLAIN_KEYS = ("embed_dim", "vision_cfg", "text_cfg", "quick_gelu")
_FOREIGN_KEYS = {"hf_model_name", "hf_tokenizer_name", "timm_model_name"}
_PLAIN_TEXT = {"vocab_size": 49408, "pool_type": "argmax"}


class ClipEmbed(Embed):
    """Encodes images and texts by a plain CLIP of open_clip."""

    settings = ClipSettings

    @staticmethod
    def load(config: ClipSettings, weights: Weights) -> Encoder:
        """Return the model in evaluation mode.

        Raises CheckpointError when the weights cannot be found, are not those of a plain
        CLIP, or do not fit it key by key and shape by shape.
        """
        model, about = _load(config, weights)
        device = device_of(config.device)
        context = model.context_length
        model = model.to(device)

        def encode(windows: Sequence[TokenIds]) -> torch.Tensor:
            batch = torch.zeros(len(windows), context, dtype=torch.long)
            for row, window in zip(batch, windows, strict=True):
                row[: len(window)] = torch.tensor(window)
            features: torch.Tensor = model.encode_text(batch.to(device))
            return features

        read = ClipText(context, repair=config.processor != "transformers").read
        texts = TextEncoder(read, encode, float(model.logit_scale.double().exp()))
        transform = transform_of(model.visual.image_size, about, config.processor)
        dtype = getattr(torch, config.dtype)
        return Encoder(transform, model.encode_image, device, dtype, texts)


def _load(settings: ClipSettings, weights: Weights) -> tuple[Any, Mapping[str, Any]]:
    """Return the model and what differs in its preprocessing from OpenAI's."""
    device = device_of(settings.device)
    about = _list_settings(settings)
    if weights == "pretrained":
        checkpoint = read_checkpoint(settings)
        about = {**checkpoint.preprocessing, **about}
        config = architecture(settings.built) if settings.built else checkpoint.config
        model = _towers(config, settings.dtype)
        fill(
            model,
            checkpoint.tensors.items(),
            identical(model.state_dict()),
            source=f"weights {settings.model!r}",
            device=torch.device("cpu"),
            dtype=torch.float32,
        )
        return _lower_precision(model, settings.dtype), about
    config = TINY if weights == "tiny" else architecture(str(settings.built))
    # Another device draws other numbers from the same seed; a CPU takes long for many.
    source = torch.device("cpu") if weights == "tiny" else device
    own_state = [source] if source.type == "cuda" else []
    with torch.random.fork_rng(own_state), source:
        torch.manual_seed(SEED)
        return build(config, settings.dtype), about


def architecture(name: str) -> Mapping[str, Any]:
    """Return the configuration that open_clip holds under `name`."""
    config = open_clip.get_model_config(name)
    if config is None:
        valid = [known for known in open_clip.list_models() if known.startswith("ViT")]
        raise CheckpointError(
            f"open_clip has no architecture {name!r}; it lists {', '.join(valid)}"
        )
    return dict(config)


def build(config: Mapping[str, Any], dtype: str) -> Any:
    """A plain `open_clip.CLIP` on the current device; other kinds of tower are refused."""
    return _lower_precision(_towers(config, dtype), dtype)


def _towers(config: Mapping[str, Any], dtype: str) -> Any:
    """Return the model that computes in `dtype`, with weights in float32."""
    _refuse_foreign(config)
    half = None if dtype == "float32" else getattr(torch, dtype)
    plain = {key: config[key] for key in _PLAIN_KEYS if key in config}
    return open_clip.CLIP(**plain, cast_dtype=half).eval().requires_grad_(False)


def _lower_precision(model: Any, dtype: str) -> Any:
    """As open_clip's own `bf16` and `fp16`: norms and embeddings stay in float32."""
    if dtype != "float32":
        open_clip.convert_weights_to_lp(model, getattr(torch, dtype))
    return model


def _refuse_foreign(config: Mapping[str, Any]) -> None:
    """CheckpointError unless the tokens and the pooling are those of OpenAI's CLIP."""
    vision = config["vision_cfg"]
    text = config["text_cfg"]
    foreign: list[str] = []
    for key, value in config.items():
        if value and key not in _PLAIN_KEYS:
            foreign.append(key)
    for key, value in {**vision, **text}.items():
        if value and key in _FOREIGN_KEYS:
            foreign.append(key)
    for key, plain in _PLAIN_TEXT.items():
        if text.get(key, plain) != plain:
            foreign.append(key)
    if foreign:
        raise CheckpointError(
            "only plain CLIP models with OpenAI's own tokenizer can be scored with; this "
            f"configuration sets {', '.join(foreign)}"
        )


def _list_settings(settings: ClipSettings) -> Mapping[str, Any]:
    """Return what open_clip's list of weights says of the model's preprocessing."""
    if settings.model not in PUBLISHED:
        return {}
    return dict(open_clip.get_pretrained_cfg(*settings.model.split(":")))
