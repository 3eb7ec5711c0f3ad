"""Loads the parts of a BAGEL checkpoint that a stage needs.

The published layout (`ByteDance-Seed/BAGEL-7B-MoT`), from a folder or the Hub, has
`llm_config.json`, `vit_config.json`, `tokenizer.json`, `ema.safetensors` with the network
and `ae.safetensors` with FLUX.1's autoencoder. What no file states follows from the shapes
of tensors.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import isqrt
from typing import Any, Literal

import torch
from tokenizers import Tokenizer
from torch import Tensor

from plait.generators.architectures import config_of
from plait.generators.bagel.network import BagelNetwork, NetworkSize, is_wanted
from plait.generators.bagel.pixels import Sides
from plait.generators.bagel.settings import BAGEL, NAME, BagelSettings
from plait.generators.base import Weights
from plait.generators.decoding.payloads import full_precision
from plait.generators.decoding.steering import steer, toy_byte_level
from plait.generators.errors import CheckpointError
from plait.generators.loading.files import (
    Files,
    config_of_class,
    count,
    divide,
    in_safetensors,
    read_json,
    read_stored,
    read_tokenizer,
    shapes_in,
)
from plait.generators.loading.strict import (
    check_tokens,
    device_of,
    fill,
    identical,
    randomise,
    rebuild_rotary,
)
from plait.generators.loading.taming import (
    dim_random_images,
    keep_contiguous,
    taming_layout,
)
from plait.generators.toys import BYTE_LEVEL

START = "<|im_start|>"
END = "<|im_end|>"
BEGIN_IMAGE = "<|vision_start|>"
END_IMAGE = "<|vision_end|>"
SPECIALS = (START, END, BEGIN_IMAGE, END_IMAGE)
_NETWORK = "ema.safetensors"
_AUTOENCODER = "ae.safetensors"
_SCALE = 0.3611
_SHIFT = 0.1159
"""Of latents (`load_ae`, modeling/autoencoder.py)."""
_SHORTEST_SEEN = 224
_SHORTEST_DRAWN = 512
"""Shortest sides of images that are resized (`vit_transform`, `vae_transform`, app.py)."""
_SHARES: Mapping[Weights, float] = {"tiny": 0.03, "dummy": 0.0003}
"""Probability that random weights end a text after a word, as Janus has them."""


@dataclass(frozen=True, slots=True)
class AutoencoderSize:
    """What FLUX.1's autoencoder is made of."""

    widths: Sequence[int]
    """Channels of each level, from the full resolution down."""
    blocks: int
    """Residual blocks of a level on the way down."""
    channels: int
    """Of a latent."""

    @property
    def downsampling(self) -> int:
        """Pixels along a side of a latent."""
        return 1 << (len(self.widths) - 1)


@dataclass(frozen=True, slots=True)
class BagelSize:
    """The sizes of all parts, and what follows from them."""

    network: NetworkSize
    autoencoder: AutoencoderSize

    @property
    def patch(self) -> int:
        """Latents along a side of a patch."""
        return isqrt(self.network.values // self.autoencoder.channels)

    @property
    def drawn(self) -> Sides:
        """Sides of an image that is drawn, or given to the autoencoder."""
        stride = self.autoencoder.downsampling * self.patch
        return Sides(stride * self.network.side, _SHORTEST_DRAWN, stride)

    @property
    def seen(self) -> Sides:
        """Sides of an image that the encoder sees."""
        vision = self.network.vision
        longest = vision.image_size // vision.patch_size * vision.patch_size
        return Sides(longest, _SHORTEST_SEEN, vision.patch_size)


@dataclass(frozen=True)
class Bagel:
    """A network, or the parts of it that a stage needs, with its tokens."""

    network: Any
    tokenizer: Tokenizer
    size: BagelSize

    def __post_init__(self) -> None:
        rows = self.size.network.language.vocab_size
        check_tokens(self.tokenizer, SPECIALS, rows)

    def id(self, token: str) -> int:
        """Return the id of a special token."""
        found = self.tokenizer.token_to_id(token)
        assert found is not None, "checked when it was made"
        return found

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, between the marks of its beginning and end."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        return [self.id(START), *ids, self.id(END)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, up to the first mark (`gen_text`, inferencer.py)."""
        marks = {self.id(START), self.id(END)}
        words = list(takewhile(lambda token: token not in marks, ids))
        text: str = self.tokenizer.decode(words, skip_special_tokens=False)
        return text


class Autoencoder:
    """FLUX.1's autoencoder, in float32."""

    def __init__(self, model: Any, channels: int, patch: int) -> None:
        """`model` is an `AutoencoderKL`, of which one half may be missing."""
        self._model = model.eval()
        self.channels = channels
        """Of a latent."""
        self.patch = patch
        """Latents along a side of a patch."""
        self._device = next(model.parameters()).device
        if model.decoder is not None:
            keep_contiguous(model.decoder)

    @torch.inference_mode()
    def encode(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """Return latents (channels, height, width) of one image (3, ...) in [-1, 1].

        They are sampled, as upstream's `DiagonalGaussian` is, by `generator`.
        """
        with full_precision():
            moments = self._model.encoder(pixels[None].to(self._device))
        mean, log_variance = moments.chunk(2, dim=1)
        noise = torch.randn(mean.shape, generator=generator).to(mean)
        latents: Tensor = mean + (0.5 * log_variance).exp() * noise
        return _SCALE * (latents - _SHIFT)[0]

    @torch.inference_mode()
    def decode(self, latents: Tensor) -> Tensor:
        """Return the decoder's output of latents (batch, channels, ...): near [-1, 1]."""
        given = latents.to(self._device, torch.float32) / _SCALE + _SHIFT
        with full_precision():
            values: Tensor = self._model.decoder(given)
        return values


def load(settings: BagelSettings, weights: Weights, draws: bool, writes: bool) -> Bagel:
    """Return the model without what only drawing, or only writing, needs.

    Raises CheckpointError when a published one does not fit.
    """
    device = device_of(settings.device)
    dtype = torch.float32 if weights == "tiny" else getattr(torch, settings.dtype)
    if weights == "pretrained":
        return _load_published(settings, draws, writes, device, dtype)
    sizes = _sizes(settings, weights)
    tokenizer = toy_byte_level(SPECIALS, SPECIALS, sizes["vocabulary"])
    size = random_size(sizes, tokenizer.get_vocab_size())
    network = empty(size.network, draws, writes)
    seed = zlib.crc32(settings.model.encode())
    randomise(network, device=device, dtype=dtype, seed=seed)
    rebuild_rotary(network, size.network.language, device)
    bagel = Bagel(network, tokenizer, size)
    if writes:
        _write_words(bagel, _SHARES[weights], sizes["vocabulary"] is not None)
    return bagel


def _load_published(
    settings: BagelSettings,
    draws: bool,
    writes: bool,
    device: torch.device,
    dtype: torch.dtype,
) -> Bagel:
    files = Files(settings.model, settings.revision)
    size = read_size(files)
    tokenizer = read_tokenizer(files.need("tokenizer.json"))
    network = empty(size.network, draws, writes)
    stored = read_stored(
        files, lambda name: is_wanted(name, draws, writes), safe=_NETWORK, pickled=None
    )
    layout = identical(network.state_dict())
    source = f"{_NETWORK} of checkpoint {settings.model!r}"
    fill(network, stored, layout, source=source, device=device, dtype=dtype)
    rebuild_rotary(network, size.network.language, device)
    return Bagel(network, tokenizer, size)


Half = Literal["encoder", "decoder"]
_OTHER: Mapping[Half, Half] = {"encoder": "decoder", "decoder": "encoder"}


def load_autoencoder(settings: BagelSettings, weights: Weights, half: Half) -> Autoencoder:
    """Return one half of the autoencoder, in float32."""
    device = device_of(settings.device)
    if weights != "pretrained":
        sizes = _sizes(settings, weights)
        size = AutoencoderSize(**sizes["autoencoder"])
        model = empty_autoencoder(size, half)
        randomise(model, device=device, dtype=torch.float32, seed=1)
        if half == "decoder":
            dim_random_images(model.decoder)
        return Autoencoder(model, size.channels, sizes["patch"])
    files = Files(settings.model, settings.revision)
    path = files.need(_AUTOENCODER)
    whole = read_size(files)
    size = whole.autoencoder
    model = empty_autoencoder(size, half)
    other = f"{_OTHER[half]}."
    fill(
        model,
        in_safetensors(path, lambda name: not name.startswith(other)),
        taming_layout(model.state_dict(), len(size.widths)),
        source=f"{_AUTOENCODER} of checkpoint {settings.model!r}",
        device=device,
        dtype=torch.float32,
    )
    return Autoencoder(model, size.channels, whole.patch)


def empty(size: NetworkSize, draws: bool, writes: bool) -> Any:
    """Return a network on the meta device."""
    with torch.device("meta"):
        return BagelNetwork(size, draws, writes).eval().requires_grad_(False)


def empty_autoencoder(size: AutoencoderSize, half: Half) -> Any:
    """Return one half of the autoencoder on the meta device."""
    from diffusers import AutoencoderKL

    levels = len(size.widths)
    with torch.device("meta"):
        model = AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * levels,
            up_block_types=("UpDecoderBlock2D",) * levels,
            block_out_channels=tuple(size.widths),
            layers_per_block=size.blocks,
            latent_channels=size.channels,
            use_quant_conv=False,
            use_post_quant_conv=False,
        )
    setattr(model, _OTHER[half], None)
    return model.eval().requires_grad_(False)


def read_size(files: Files) -> BagelSize:
    """Return the sizes of a checkpoint; CheckpointError names what does not fit."""
    network = files.need(_NETWORK)
    shapes = shapes_in(network)
    places, _ = _shape(shapes, "latent_pos_embed.pos_embed", str(network))
    _, values = _shape(shapes, "vae2llm.weight", str(network))
    autoencoder = _autoencoder_size(files)
    side = isqrt(places)
    if side**2 != places:
        raise CheckpointError(
            f"{network}: latent_pos_embed.pos_embed has {places} rows; it must have as "
            "many as a square has places"
        )
    channels = autoencoder.channels
    if values % channels or isqrt(values // channels) ** 2 != values // channels:
        raise CheckpointError(
            f"{network}: vae2llm.weight takes {values} values; it must take a square of "
            f"latents of {channels} channels, as {_AUTOENCODER} has them"
        )
    own = NetworkSize(_language_config(files), _vision_config(files), side, values)
    return BagelSize(own, autoencoder)


def _language_config(files: Files) -> Any:
    path = files.need("llm_config.json")
    content = read_json(path)
    heads = count(content, "num_attention_heads", str(path))
    width = count(content, "hidden_size", str(path))
    divide(width, heads, f"num_attention_heads is {heads}", str(path))
    pairs = count(content, "num_key_value_heads", str(path))
    divide(heads, pairs, f"num_key_value_heads is {pairs}", str(path))
    for name in ("vocab_size", "intermediate_size", "num_hidden_layers"):
        count(content, name, str(path))
    return _config("Qwen2Config", content, str(path))


def _vision_config(files: Files) -> Any:
    path = files.need("vit_config.json")
    content = read_json(path)
    for name in ("image_size", "patch_size", "hidden_size", "intermediate_size"):
        count(content, name, str(path))
    # Upstream leaves the last layer out, and no checkpoint stores it (app.py).
    layers = count(content, "num_hidden_layers", str(path)) - 1
    return _config("SiglipVisionConfig", content | {"num_hidden_layers": layers}, str(path))


def _config(kind: str, content: Mapping[str, Any], source: str) -> Any:
    """Return the configuration, without the fields (`_...`) of the program that wrote it.

    One of these says how that program attends.
    """
    fields = {name: v for name, v in content.items() if not name.startswith("_")}
    return config_of_class(kind, fields | {"attn_implementation": "sdpa"}, source)


def _autoencoder_size(files: Files) -> AutoencoderSize:
    """Return what the shapes show, in the names of taming-transformers."""
    path = files.need(_AUTOENCODER)
    shapes = shapes_in(path)

    level = "encoder.down.{}.block.0.conv2.weight"
    widths: list[int] = []
    for number in range(_run_length(shapes, level)):
        widths.append(_shape(shapes, level.format(number), str(path))[0])
    blocks = _run_length(shapes, "encoder.down.0.block.{}.conv2.weight")
    channels = _shape(shapes, "decoder.conv_in.weight", str(path))[1]
    return AutoencoderSize(widths, blocks, channels)


def _run_length(shapes: Mapping[str, Any], name: str) -> int:
    """Return how many names with a number in their hole there are, from 0 on.

    At least one, so that a file without any is told what it lacks.
    """
    length = 1
    while name.format(length) in shapes:
        length += 1
    return length


def _shape(shapes: Mapping[str, tuple[int, ...]], name: str, source: str) -> Sequence[int]:
    if name not in shapes:
        raise CheckpointError(f"{source} lacks {name}")
    if len(shapes[name]) < 2:
        raise CheckpointError(
            f"{source}: {name} has the shape {shapes[name]}, not one of a matrix or kernel"
        )
    return shapes[name]


def _sizes(settings: BagelSettings, weights: Weights) -> dict[str, Any]:
    if settings.model != BAGEL and weights == "dummy":
        raise CheckpointError(
            f"no full-size configuration of {settings.model!r} is known for dummy weights; "
            f"valid is {BAGEL}"
        )
    return config_of(NAME, tiny=weights == "tiny")


def random_size(sizes: Mapping[str, Any], rows: int) -> BagelSize:
    """Return the sizes of an architecture, with `rows` of embeddings."""
    about = "the published configuration"
    language = _config("Qwen2Config", {**sizes["language"], "vocab_size": rows}, about)
    vision = _config("SiglipVisionConfig", sizes["vision"], about)
    autoencoder = AutoencoderSize(**sizes["autoencoder"])
    values = autoencoder.channels * sizes["patch"] ** 2
    return BagelSize(NetworkSize(language, vision, sizes["side"], values), autoencoder)


def _write_words(bagel: Bagel, share: float, padded: bool) -> None:
    """Make random weights write words, and end a text after each with that probability."""
    everything = set(bagel.tokenizer.get_vocab().values())
    ordinary = everything - {bagel.id(name) for name in SPECIALS}
    words = ordinary if padded else BYTE_LEVEL.ids(bagel.tokenizer)
    steer(
        bagel.network.language_model,
        words=words,
        unwanted=everything - set(words),
        shares={bagel.id(END): share},
        context=[bagel.id(START), *words][:60],
    )
