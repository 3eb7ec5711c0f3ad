"""Loads the parts of a Janus checkpoint that a stage needs, and renders with one.

Published checkpoints (`deepseek-community/Janus-Pro-1B`, `-7B`), from a folder or the Hub,
have transformers' layout: `config.json`, `tokenizer.json`, `preprocessor_config.json` (or
its content in `processor_config.json`) and safetensors with the names of
`JanusForConditionalGeneration`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from plait.generators.architectures import config_of
from plait.generators.base import Weights
from plait.generators.decoding.payloads import CodeDecoder, CodesRender, full_precision
from plait.generators.decoding.steering import steer, toy_byte_level
from plait.generators.errors import CheckpointError
from plait.generators.janus.settings import (
    ARCHITECTURES,
    JanusRenderSettings,
    JanusSettings,
)
from plait.generators.loading.files import (
    Files,
    config_of_class,
    read_json,
    read_stored,
    read_tokenizer,
    section,
)
from plait.generators.loading.strict import (
    assign,
    check_tokens,
    device_of,
    empty_model,
    fill,
    identical,
    randomise,
    rebuild_rotary,
)
from plait.generators.loading.taming import dim_random_images
from plait.generators.toys import BYTE_LEVEL

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
PAD = "<｜▁pad▁｜>"
USER = "<|User|>"
ASSISTANT = "<|Assistant|>"
IMAGE = "<image_placeholder>"
BEGIN_IMAGE = "<begin_of_image>"
END_IMAGE = "<end_of_image>"
_SPECIALS = (BOS, EOS, PAD, USER, ASSISTANT, IMAGE, BEGIN_IMAGE, END_IMAGE)

HEAD = "lm_head.weight"
TABLE = "model.language_model.embed_tokens.weight"
DRAWING = ("model.vqmodel.", "model.generation_")
"""Beginnings of the names of what only images are written with."""
READING = ("model.vqmodel.", "model.vision_model.", "model.aligner.", "lm_head.")
"""Of what images are read and text is written with."""
_VQ = "model.vqmodel."
_SHARES: Mapping[Weights, float] = {"tiny": 0.03, "dummy": 0.0003}
"""Probability that random weights end a text after a word. Texts are greedy by default: a
larger one would beat every word of the published vocabulary at once."""


@dataclass(frozen=True)
class Janus:
    """A model, or the parts of it that a stage needs, with its tokens."""

    model: Any
    """`JanusForConditionalGeneration`, without the parts that were left out."""
    tokenizer: Tokenizer
    images: Any
    """The image processor."""

    def __post_init__(self) -> None:
        check_tokens(self.tokenizer, _SPECIALS, self.rows)

    @property
    def rows(self) -> int:
        """Rows of the table of embeddings."""
        return int(self.model.config.text_config.vocab_size)

    @property
    def image_tokens(self) -> int:
        """Positions of an image that is read, and codes of one that is drawn."""
        return int(self.model.config.vision_config.num_image_tokens)

    def id(self, token: str) -> int:
        """Return the id of a special token."""
        found = self.tokenizer.token_to_id(token)
        assert found is not None, "checked when it was made"
        return found

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without any added."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids


class JanusCodec(CodeDecoder):
    """The decoder of the VQ model, in float32."""

    def __init__(self, model: Any) -> None:
        """`model` is a `JanusVQVAE`."""
        self._model = model.eval()
        self._device = next(model.parameters()).device
        self.side = int(model.config.num_patches)
        self.size = int(model.config.num_embeddings)

    @torch.inference_mode()
    def values(self, codes: Tensor) -> Tensor:
        """Return the decoder's output of codes: (batch, 3, height, width), near [-1, 1]."""
        with full_precision():
            values: Tensor = self._model.decode(codes.long().to(self._device).flatten(1))
        return values


def load(settings: JanusSettings, weights: Weights, left_out: tuple[str, ...]) -> Janus:
    """Return the model without parameters whose names begin with one of `left_out`.

    Raises CheckpointError when a published one does not fit.
    """
    device = device_of(settings.device)
    dtype = torch.float32 if weights == "tiny" else getattr(torch, settings.dtype)
    if weights == "pretrained":
        return _load_published(settings, left_out, device, dtype)
    sizes = _sizes(settings, weights)
    tokenizer = toy_tokenizer(sizes["vocabulary"])
    model = empty(random_config(sizes, tokenizer), left_out)
    seed = zlib.crc32(settings.model.encode())
    randomise(model, device=device, dtype=dtype, seed=seed)
    side = sizes["vision_config"]["image_size"]
    about = {"size": {"height": side, "width": side}, **_HALVES}
    janus = _complete(model, tokenizer, about, device)
    _write_words(janus, _SHARES[weights], sizes["vocabulary"] is not None)
    return janus


def _load_published(
    settings: JanusSettings,
    left_out: tuple[str, ...],
    device: torch.device,
    dtype: torch.dtype,
) -> Janus:
    files = Files(settings.model, settings.revision)
    model = empty(_config(files), left_out)
    stored = read_stored(files, lambda name: not name.startswith(left_out))
    if "lm_head." not in left_out and model.config.tie_word_embeddings:
        stored = _with_head(stored)
    layout = identical(model.state_dict())
    source = f"checkpoint {settings.model!r}"
    fill(model, stored, layout, source=source, device=device, dtype=dtype)
    tokenizer = read_tokenizer(files.need("tokenizer.json"))
    return _complete(model, tokenizer, _preprocessing(files), device)


def _complete(
    model: Any, tokenizer: Tokenizer, about: Mapping[str, Any], device: torch.device
) -> Janus:
    """Return the model whose images are prepared as in `about`.

    Rotary frequencies and numbers of patches are made here: no checkpoint stores them.
    """
    rebuild_rotary(model, model.config.text_config, device)
    if (vision := getattr(model.model, "vision_model", None)) is not None:
        numbers = torch.arange(vision.embeddings.num_positions, device=device)[None]
        assign(vision.embeddings, "position_ids", numbers)
    # It scales with Pillow, as the authors' does.
    images = config_of_class("JanusImageProcessorPil", about, "preprocessor_config.json")
    return Janus(model, tokenizer, images)


def load_codec(settings: JanusSettings, weights: Weights) -> JanusCodec:
    """Return the VQ model in float32."""
    device = device_of(settings.device)
    if weights != "pretrained":
        sizes = _sizes(settings, weights)
        vq = _empty_vq_model(random_config(sizes, toy_tokenizer(sizes["vocabulary"])))
        randomise(vq, device=device, dtype=torch.float32, seed=1)
        dim_random_images(vq.decoder)
        return JanusCodec(vq)
    files = Files(settings.model, settings.revision)
    vq = _empty_vq_model(_config(files))
    stored = read_stored(files, lambda name: name.startswith(_VQ))
    source = f"VQ model of {settings.model!r}"
    layout = identical(vq.state_dict(), _VQ)
    fill(vq, stored, layout, source=source, device=device, dtype=torch.float32)
    return JanusCodec(vq)


def _empty_vq_model(config: Any) -> Any:
    """Return a `JanusVQVAE` on the meta device."""
    from transformers import JanusVQVAE

    with torch.device("meta"):
        return JanusVQVAE(config.vq_config).requires_grad_(False)


_HALVES = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
"""As published: images are read and drawn in [-1, 1]."""


def _config(files: Files) -> Any:
    path = files.need("config.json")
    content = read_json(path)
    if content.get("model_type") != "janus":
        raise CheckpointError(
            f"{path}: model_type is {content.get('model_type')!r}; it must be 'janus', in "
            "the layout of deepseek-community/Janus-Pro-1B (deepseek-ai's own is another)"
        )
    return config_of_class("JanusConfig", content, str(path))


def _preprocessing(files: Files) -> Mapping[str, Any]:
    """Return how images are prepared; transformers 5 keeps that with the rest."""
    whole = files.find("processor_config.json")
    if whole is not None and "image_processor" in (content := read_json(whole)):
        return section(content, "image_processor", str(whole))
    return read_json(files.need("preprocessor_config.json"))


def empty(config: Any, left_out: tuple[str, ...]) -> Any:
    """Return a model on the meta device without the parts that are left out."""
    model = empty_model("AutoModelForImageTextToText", config)
    for owner, prefix in ((model, ""), (model.model, "model.")):
        for name, _ in list(owner.named_children()):
            if f"{prefix}{name}.".startswith(left_out):
                delattr(owner, name)
    return model


def _with_head(stored: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield the table of embeddings as the head too, where no head is stored."""
    table = None
    has_head = False
    for name, tensor in stored:
        yield name, tensor
        if name == TABLE:
            table = tensor
        elif name == HEAD:
            has_head = True
    if table is not None and not has_head:
        yield HEAD, table


def _sizes(settings: JanusSettings, weights: Weights) -> dict[str, Any]:
    name = ARCHITECTURES.get(settings.model)
    if name is None and weights == "dummy":
        raise CheckpointError(
            f"no full-size configuration of {settings.model!r} is known for dummy weights; "
            f"valid are {', '.join(ARCHITECTURES)}"
        )
    return config_of(name or "janus-pro-1b", tiny=weights == "tiny")


def random_config(sizes: Mapping[str, Any], tokenizer: Tokenizer) -> Any:
    """Return the `JanusConfig` of an architecture for a tokenizer."""
    ids = {
        "bos_token_id": tokenizer.token_to_id(BOS),
        "eos_token_id": tokenizer.token_to_id(EOS),
        "pad_token_id": tokenizer.token_to_id(PAD),
    }
    text = {**sizes["text_config"], "vocab_size": tokenizer.get_vocab_size(), **ids}
    named = {"text_config": text, "image_token_id": tokenizer.token_to_id(IMAGE)}
    return config_of_class("JanusConfig", {**sizes, **named}, "the published configuration")


def toy_tokenizer(size: int | None) -> Tokenizer:
    """Return a tokenizer with the published special tokens, padded to `size` tokens."""
    return toy_byte_level(_SPECIALS, _SPECIALS, size)


def _write_words(janus: Janus, share: float, padded: bool) -> None:
    """Make random weights write words; those that only draw have no head for them."""
    if not hasattr(janus.model, "lm_head"):
        return
    language = SimpleNamespace(
        model=janus.model.model.language_model, lm_head=janus.model.lm_head
    )
    everything = set(janus.tokenizer.get_vocab().values())
    ordinary = everything - {janus.id(name) for name in _SPECIALS}
    words = ordinary if padded else BYTE_LEVEL.ids(janus.tokenizer)
    steer(
        language,
        words=words,
        unwanted=everything - set(words),
        shares={janus.id(EOS): share},
        context=[janus.id(BOS), *words][:60],
    )


class JanusRender(CodesRender):
    """Draws what `JanusCondition` wrote; takes the fields of `JanusRenderSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.codec = load_codec(JanusRenderSettings(**settings), weights)
