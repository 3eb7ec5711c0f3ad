"""GILL's frozen networks: an OPT that knows the image tokens, and CLIP's vision tower.

The published `pretrained_ckpt.pth.tar` and `model_args.json` hold the 50 million parameters
that were trained beside the two.

OPT's vocabulary has nine additions, and text is in upstream's spelling: upstream used
transformers' slow tokenizer, to which it added `<|image|>` and [IMG0] to [IMG7]
(`load_gill`, gill/models.py). It strips white space around those names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cached_property, partial
from itertools import groupby
from statistics import NormalDist
from typing import Any, Literal

import torch
from accelerate import init_empty_weights
from PIL import Image as Pillow
from tokenizers import Tokenizer, models
from torch import Tensor, nn
from transformers import AutoModel, CLIPImageProcessorPil

from plait.generators.architectures import config_of
from plait.generators.base import Weights
from plait.generators.checkpoints import with_revision
from plait.generators.decoding.steering import byte_level, toy_byte_level
from plait.generators.document import Image
from plait.generators.errors import CheckpointError
from plait.generators.gill.settings import GillDraftSettings
from plait.generators.images import decode
from plait.generators.loading.files import (
    Files,
    config_of_class,
    count,
    in_pickle,
    read_json,
    read_stored,
    read_tokenizer,
    section,
)
from plait.generators.loading.strict import (
    Layout,
    Place,
    Put,
    device_of,
    empty_model,
    fill,
    identical,
    randomise,
)
from plait.generators.toys import BYTE_LEVEL

BOS = "</s>"
PAD = "<pad>"
"""OPT begins texts with the token that ends them (facebook/opt-6.7b, config.json)."""
CLS = "<|image|>"

_TIDIED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")
"""Text that loses its spaces, in this order (`clean_up_tokenization` of transformers)."""


def voken_name(index: int) -> str:
    """Return the name of an image token."""
    return f"[IMG{index}]"


def opt_tokenizer(files: Files) -> Tokenizer:
    """Return an OPT checkpoint's tokenizer: `tokenizer.json`, or vocabulary and merges."""
    single_file = files.find("tokenizer.json")
    if single_file is not None:
        return read_tokenizer(single_file)
    vocabulary = files.need("vocab.json")
    merges = files.need("merges.txt")
    try:
        return byte_level(models.BPE.from_file(str(vocabulary), str(merges)), [BOS, PAD])
    except Exception as error:
        # The library raises plain `Exception` for any file that it cannot read.
        raise CheckpointError(
            f"{vocabulary} and {merges.name} are not a valid tokenizer: {error}"
        ) from None


class GillTokens:
    """Ids of text, and of the `vokens` image tokens that follow OPT's ids."""

    def __init__(self, tokenizer: Tokenizer, vokens: int) -> None:
        self.tokenizer = tokenizer
        first = tokenizer.get_vocab_size(with_added_tokens=True)
        self.cls = first
        self.vokens = tuple(range(first + 1, first + 1 + vokens))
        """Ids of [IMG0], [IMG1], ..."""
        self.size = first + 1 + vokens
        names = [CLS, *map(voken_name, range(vokens))]
        self.voken_names = "".join(names[1:])
        """[IMG0][IMG1]..., as upstream writes an image into text."""
        self._added = {name: number for number, name in enumerate(names, first)}
        self._names = {number: name for name, number in self._added.items()}
        self._split = re.compile(f"({'|'.join(map(re.escape, names))})")
        """Splits a text at the names, which stay: every second part is one."""
        self.bos = self._id(BOS)
        self._hidden = {self.bos, self._id(PAD), self.cls}
        """Ids of no text and no image."""
        self.newline = self._plain("\n")[0]

    def _id(self, name: str) -> int:
        token: int | None = self.tokenizer.token_to_id(name)
        if token is None:
            raise CheckpointError(f"the vocabulary of the language model lacks {name!r}")
        return token

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode(self, text: str) -> list[int]:
        """Return ids of a piece of text; the added names become their tokens.

        White space beside a name is dropped.
        """
        parts = self._split.split(text)
        last = len(parts) - 1
        ids: list[int] = []
        for place, part in enumerate(parts):
            if place % 2:
                ids.append(self._added[part])
                continue
            # A name stands before every part but the first, and after all but the last.
            if place > 0:
                part = part.lstrip()
            if place < last:
                part = part.rstrip()
            ids += self._plain(part)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without special tokens, image tokens by name.

        Runs of text and names are joined by a space, and the spaces before punctuation
        are removed, as transformers' slow tokenizers did by default.
        """
        visible = [token for token in ids if token not in self._hidden]
        parts: list[str] = []
        # Ids of text have no name of their own: a run of them is decoded as one.
        for name, same in groupby(visible, key=lambda token: self._names.get(token, "")):
            run = list(same)
            if name:
                parts += [name] * len(run)
            else:
                parts.append(self.tokenizer.decode(run, skip_special_tokens=False))
        text = " ".join(parts)
        for spaced in _TIDIED:
            text = text.replace(spaced, spaced.strip())
        return text


SEED = 20_230_526
"""Seed of the random weights: the day on which GILL was published."""
_SHARES = (0.08, 0.02)
"""Probabilities that random weights request an image after a word, by default, and that
they write a newline."""
_MAX_BATCH = 64
"""Maximum number of images in one pass through the tower."""


class GillVision:
    """Turns images into embeddings of the language model."""

    def __init__(
        self, tower: Any, processor: Any, projection: nn.Linear, tokens: int
    ) -> None:
        self.tower = tower
        self._processor = processor
        self.projection = projection
        self.tokens = tokens
        """Embeddings per image."""

    def pixels(self, image: Image, resize: Literal["squash", "crop"]) -> Tensor:
        """Return the tower's input (3, side, side); ImageError for a broken image.

        `squash` is the bicubic resize of upstream's demo and notebook before CLIP's own
        processor, which then only scales the values.
        """
        pil_image = decode(image)
        if resize == "squash":
            crop = self._processor.crop_size
            side = (crop["width"], crop["height"])
            pil_image = pil_image.resize(side, Pillow.Resampling.BICUBIC)
        pixels = self._processor(pil_image, return_tensors="np").pixel_values
        return torch.from_numpy(pixels[0])

    @torch.inference_mode()
    def __call__(self, pixels: Tensor) -> Tensor:
        """Return embeddings (images, tokens, width) of pixels (images, 3, side, side)."""
        weight = self.projection.weight
        pooled: list[Tensor] = []
        for part in torch.split(pixels, _MAX_BATCH):
            pooled.append(self.tower(pixel_values=part.to(weight)).pooler_output)
        embedded: Tensor = self.projection(torch.cat(pooled))
        return embedded.view(len(pixels), self.tokens, -1)


GillModels = tuple[Any, GillTokens, GillVision]
"""transformers' `OPTDecoder`, whose embeddings are also its output layer, its ids, and what
reads images."""


def vision_tower(config: Any) -> Any:
    """Return an empty `CLIPVisionModel`: parameters on the meta device, buffers real."""
    with init_empty_weights(include_buffers=False):
        model = AutoModel.from_config(config, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)


def load_models(weights: Weights, settings: GillDraftSettings) -> GillModels:
    """Return the drafting models; CheckpointError when published files do not fit."""
    device = device_of(settings.device)
    dtype = getattr(torch, settings.dtype)
    if weights == "pretrained":
        return _load_published(settings, device, dtype)
    return _random(weights, device, torch.float32 if weights == "tiny" else dtype)


def _load_published(
    settings: GillDraftSettings, device: torch.device, dtype: torch.dtype
) -> GillModels:
    """Return OPT and CLIP as published, with what GILL trained beside them."""
    put = partial(fill, device=device, dtype=dtype)
    checkpoint = GillCheckpoint(Files(settings.model, settings.revision))
    opt = Files(*with_revision(settings.language))
    clip = Files(*with_revision(settings.vision))
    tokens = GillTokens(opt_tokenizer(opt), checkpoint.argument("num_tokens"))
    checkpoint.check_ids(tokens)
    tower = _load_published_tower(clip, put)
    path = opt.need("config.json")
    about = read_json(path)
    stored_rows = count(about, "vocab_size", str(path))
    config = config_of_class("OPTConfig", about, str(path))
    added = checkpoint.additions(config.word_embed_proj_dim, tower.config.hidden_size, put)
    # With Pillow, as in upstream.
    preprocessing = read_json(clip.need("preprocessor_config.json"))
    processor = CLIPImageProcessorPil.from_dict(preprocessing)
    visual = checkpoint.argument("n_visual_tokens")
    vision = GillVision(tower.to(device), processor, added.visual, visual)
    # OPT's own rows, then those of the image tokens.
    config.vocab_size = tokens.size
    model = empty_model("AutoModel", config)
    fill_opt(model, opt, stored_rows, tokens, put)
    table = model.decoder.embed_tokens.weight
    table[-len(added.vokens) :] = added.vokens.to(table)
    return model.decoder, tokens, vision


def _load_published_tower(files: Files, put: Put) -> Any:
    """Return the vision tower of a published CLIP; its text tower is not read."""
    path = files.need("config.json")
    prefix = "vision_model."
    about = read_json(path)
    # The sizes of a tower stored alone stand at the top of its file.
    sizes = section({"vision_config": about} | about, "vision_config", str(path))
    tower = vision_tower(config_of_class("CLIPVisionConfig", sizes, str(path)))
    tensors = read_stored(files, lambda name: name.startswith(prefix))
    layout = identical(tower.state_dict(), prefix)
    # A buffer in files of older transformers.
    unused = f"{prefix}embeddings.position_ids"
    source = f"vision tower of {files.model!r}"
    put(tower, tensors, layout, source=source, tolerated=(unused,))
    return tower


CHECKPOINT = "pretrained_ckpt.pth.tar"
ARGUMENTS = "model_args.json"

VOKENS = "model.input_embeddings.weight"
VISUAL = "model.visual_embeddings"
MAPPER = "model.gen_text_hidden_fcs.0"
RETRIEVAL = ("model.logit_scale", "model.visual_fc", "model.ret_text_hidden_fcs")
"""Parts that retrieve images from a collection instead of drawing them."""


class Additions(nn.Module):
    """Embeddings that the language model reads besides those of its vocabulary."""

    def __init__(self, vokens: int, states: int, pooled: int, visual: int) -> None:
        """Take the number of image tokens; widths of states, CLIP and projection."""
        super().__init__()
        self.vokens = nn.Parameter(torch.empty(vokens, states))
        self.visual = nn.Linear(pooled, visual)


class GillCheckpoint:
    """The files of one GILL."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.source = f"checkpoint {files.model!r}"
        """The checkpoint's name in errors."""

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """What `model_args.json` holds."""
        return read_json(self.files.need(ARGUMENTS))

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """By name, memory-mapped, without the prefix of parallel training."""
        tensors: dict[str, Tensor] = {}
        for name, tensor in in_pickle(self.files.need(CHECKPOINT), "state_dict").items():
            tensors[name.removeprefix("module.")] = tensor
        return tensors

    def argument(self, name: str) -> int:
        """Return a count in `model_args.json`; CheckpointError where it is missing."""
        return count(self.arguments, name, f"{ARGUMENTS} of {self.source}")

    def additions(self, width: int, pooled: int, put: Put) -> Additions:
        """Return the image tokens' embeddings and the projection of images.

        `width` is that of the language model's embeddings, `pooled` the vision tower's.
        """
        vokens = self.argument("num_tokens")
        visual = self.argument("n_visual_tokens")
        with torch.device("meta"):
            module = Additions(vokens, width, pooled, width * visual)

        def last(tensor: Tensor) -> Tensor:
            """Training checkpoints hold all rows, published ones only the image tokens'."""
            return tensor[-vokens:]

        layout = {
            VOKENS: Place("vokens", last),
            f"{VISUAL}.weight": Place("visual.weight"),
            f"{VISUAL}.bias": Place("visual.bias"),
        }
        self.fill(module, layout, (MAPPER,), put)
        return module

    def fill(
        self, module: nn.Module, layout: Layout, others: tuple[str, ...], put: Put
    ) -> None:
        """Fill a part of the model strictly; `others` are the keys of other parts."""
        unused = (*others, *RETRIEVAL)
        tensors = self.tensors.items()
        put(module, tensors, layout, source=self.source, tolerated=unused)

    def check_ids(self, tokens: GillTokens) -> None:
        """Check that it was trained with the ids that follow the vocabulary."""
        trained = self.arguments.get("gen_token_idx", list(tokens.vokens))
        if trained != list(tokens.vokens):
            raise CheckpointError(
                f"{self.source} was trained with image tokens {trained} ({ARGUMENTS}), but "
                f"after the language model's vocabulary they are {list(tokens.vokens)}"
            )


def fill_opt(
    model: Any, files: Files, stored_rows: int, tokens: GillTokens, put: Put
) -> None:
    """Fill an `OPTModel` whose embeddings have a row for each of `tokens`.

    The file has `stored_rows`. CheckpointError when it does not fit.
    """
    layout = dict(identical(model.state_dict()))
    embeddings = "decoder.embed_tokens.weight"

    def extend(tensor: Tensor) -> Tensor:
        """Return rows of all ids; upstream resizes the table and fills its last rows."""
        if len(tensor) != stored_rows or stored_rows < tokens.vokens[0]:
            # Told by `fill` as a tensor of the wrong shape.
            raise IndexError
        missing = tensor.new_zeros(max(0, tokens.size - stored_rows), *tensor.shape[1:])
        return torch.cat([tensor[: tokens.size], missing])

    layout[embeddings] = Place(embeddings, extend)
    # Files of `OPTModel` and `OPTForCausalLM` differ in a prefix.
    tensors = ((n.removeprefix("model."), tensor) for n, tensor in read_stored(files))
    source = f"language model {files.model!r}"
    put(model, tensors, layout, source=source, tolerated=("lm_head.weight",))


def _random(weights: Weights, device: torch.device, dtype: torch.dtype) -> GillModels:
    """Return seeded random models that write interleaved documents."""
    sizes = config_of("gill", tiny=weights == "tiny")
    tokens = GillTokens(toy_tokenizer(sizes["vocabulary"]), sizes["vokens"])
    language = sizes["language"] | {"vocab_size": tokens.size}
    model = empty_model("AutoModel", config_of_class("OPTConfig", language, "gill.json"))
    config = config_of_class("CLIPVisionConfig", sizes["vision"], "gill.json")
    tower = vision_tower(config)
    visual = sizes["visual_tokens"]
    with torch.device("meta"):
        width = visual * language["word_embed_proj_dim"]
        projection = nn.Linear(config.hidden_size, width)
    for module in (model, tower, projection):
        randomise(module, device=device, dtype=dtype, seed=SEED)
    made_up = BYTE_LEVEL.made_up_ids(tokens.tokenizer)
    words = sorted({*BYTE_LEVEL.ids(tokens.tokenizer), *made_up})
    _steer(model.decoder, tokens, words)
    side = config.image_size
    crop = {"height": side, "width": side}
    processor = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size=crop)
    vision = GillVision(tower.to(device), processor, projection, visual)
    return model.decoder, tokens, vision


def toy_tokenizer(size: int | None = None) -> Tokenizer:
    """Return a tokenizer whose special tokens are where OPT's are, padded to `size`."""
    return toy_byte_level(("<s>", PAD, BOS, "<unk>"), (BOS, PAD), size)


_LEVEL = 100.0
"""The value of channel 0 at the output layer: large, so that the biases, which are also
read as inputs, can be small."""
_SCALE = 1.4
"""The scale factor at which an image has the requested probability."""
_REDUCED = 0.5
"""Factor on the noise of [IMG0]'s logit, so that a low logit does not win by its
absolute value."""


@torch.no_grad()
def _steer(decoder: Any, tokens: GillTokens, words: Sequence[int]) -> None:
    """Make a random OPT request images and end its answers now and then, even greedily.

    No layer changes channel 0 of the residual stream, so the tied embeddings read a bias
    from it. Greedy text consists of `words`; after each, an image is requested and a
    newline is written with about the probabilities of `_SHARES`.
    """
    asks, ends = _SHARES
    table = decoder.embed_tokens.weight
    asking = tokens.vokens[0]
    ending = tokens.newline
    _hold_channel(decoder)
    context = table[torch.tensor([tokens.bos, *words[:60]], device=table.device)]
    hidden: Tensor = decoder(inputs_embeds=context[None], use_cache=False)[0][0]
    decoder.final_layer_norm.weight[0] *= _LEVEL / hidden[:, 0].mean()
    noise = float((hidden @ table[list(words)].T).float().std())
    bias = torch.full((len(table),), -10.0)
    bias[list(words)] = 0.0
    # The median of the maximum of as many normal samples as there are words.
    best = NormalDist().inv_cdf(0.5 ** (1 / len(words)))
    bias[ending] = best - NormalDist().inv_cdf(1 - ends)
    bias[asking] = best / _SCALE - _REDUCED * NormalDist().inv_cdf(1 - asks)
    table[asking] *= _REDUCED
    mean = hidden.mean(dim=0)
    for token in (asking, ending):
        # A logit of 0 in the mean state, so that the token's chance is the noise's.
        table[token] -= (table[token] @ mean) / (mean @ mean) * mean
    table[:, 0] = (noise * bias / _LEVEL).to(table)


def _hold_channel(decoder: Any) -> None:
    """Hold channel 0 constant, and stop tokens from predicting themselves."""
    embeddings: Tensor = decoder.embed_tokens.weight
    positions: Tensor = decoder.embed_positions.weight
    for table in (embeddings, positions):
        table *= 0.5 / math.sqrt(embeddings.shape[1])
    embeddings[:, 0] = 0.0
    positions[:, 0] = 0.25
    for layer in decoder.layers:
        # Activations are positive: their mean would favour the same words everywhere.
        layer.fc2.weight -= layer.fc2.weight.mean(dim=1, keepdim=True)
        for written in (layer.self_attn.out_proj.weight, layer.fc2.weight):
            written[0] = 0.0
            # Norms subtract the mean of all channels, so it must not move either.
            written[1:] -= written[1:].mean(dim=0)
        layer.self_attn_layer_norm.weight[0] = 0.0
        layer.final_layer_norm.weight[0] = 0.0
        layer.self_attn.q_proj.weight *= 4.0
