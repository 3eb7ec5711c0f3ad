"""Loads a language model of Emu2 with pretrained, dummy or tiny weights.

Published ones, from a folder or the Hub, have three layouts: Hugging Face's of Emu2-Chat
(all at the root) and of Emu2-Gen (a folder for each component), and the authors' own single
files. Beside such a file a folder holds, of upstream's repository, the files of
`Emu2/emu/conf/llama_config` and, for drawing, the folders of `.../diffusion_config`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from generators.architectures import config_of, stored
from generators.base import Weights
from generators.decoding.steering import isolate
from generators.emu2.network import Emu2, VisionSize, empty_network
from generators.emu2.placing import (
    connect,
    device_map,
    devices_of,
    quantise,
    quantising,
    require_bitsandbytes,
)
from generators.emu2.settings import Emu2Settings, Quantization
from generators.emu2.tokens import ADDED, ADDED_CHAT, USER, Emu2Tokens
from generators.errors import CheckpointError
from generators.loading.files import (
    Files,
    configured,
    count,
    divided,
    in_pickle,
    in_safetensors,
    read_json,
    section,
    shape_of,
    stored_tensors,
)
from generators.loading.llama import LlamaPieces, trained_pieces
from generators.loading.strict import Layout, Place, fill, listed, randomised, revived
from generators.toys import WORDS

Part = Literal["chat", "gen"]
"""Emu2-Chat, or Emu2-Gen's multimodal encoder."""
SPECIAL: Mapping[Part, tuple[str, ...]] = {"chat": ADDED_CHAT, "gen": ADDED}
"""Special tokens of each beyond LLaMA's pieces."""

_SEED = 20_231_220
"""Seed of random weights: the day Emu2 was published."""


def load(settings: Emu2Settings, weights: Weights, part: Part) -> Emu2:
    """Return the model of `settings`; CheckpointError when a checkpoint does not fit."""
    if settings.quantization is not None:
        require_bitsandbytes(settings.quantization)
    devices = devices_of(settings.device)
    dtype = torch.float32 if weights == "tiny" else getattr(torch, settings.dtype)
    where = (devices, dtype, settings.quantization)
    if weights == "pretrained":
        checkpoint = open_checkpoint(settings.model, settings.revision)
        tokens = _vocabulary(checkpoint, part, settings.strip_text)
        return _published(checkpoint, tokens, *where)
    return random_model(part, weights, *where, settings.strip_text)


def _vocabulary(checkpoint: Emu2Checkpoint, part: Part, strip: bool) -> Emu2Tokens:
    """Return the checkpoint's tokens.

    CheckpointError where it lacks one of the part's special tokens, or is asked to
    condition and has the marks of a conversation: Emu2-Chat was tuned to write text only.
    """
    tokens = checkpoint.tokens(strip)
    lacking = [name for name in SPECIAL[part] if name not in tokens.added]
    wrong = f"lacks {listed(lacking)}" if lacking else ""
    if part == "gen" and USER in tokens.added:
        wrong = f"has {USER}, so it is Emu2-Chat"
    if wrong:
        raise CheckpointError(
            f"{checkpoint.source}: the vocabulary {wrong}; drafting takes Emu2-Chat, "
            "conditioning Emu2-Gen"
        )
    return tokens


def _published(
    checkpoint: Emu2Checkpoint,
    tokens: Emu2Tokens,
    devices: Sequence[torch.device],
    dtype: torch.dtype,
    quantization: Quantization | None,
) -> Emu2:
    """Return a published checkpoint, streamed onto `devices` tensor by tensor."""
    source = checkpoint.source
    config = configured("LlamaConfig", checkpoint.language(), f"config.json of {source}")
    if tokens.rows > config.vocab_size:
        raise CheckpointError(
            f"{source}: the vocabulary numbers {tokens.rows} tokens, the embedding has "
            f"{config.vocab_size} rows"
        )
    network = empty_network(checkpoint.vision(), config)
    layout = checkpoint.layout(network.state_dict())
    tensors = checkpoint.tensors()
    if quantization is not None:
        tensors = quantising(tensors, network, layout, quantization)
    home = device_map(network, devices)
    stray = checkpoint.stray(config.num_hidden_layers)
    put = partial(fill, device=home, dtype=dtype)
    put(network, tensors, layout, source=source, tolerated=stray)
    return _ready(network, tokens, config, devices, home)


@dataclass(frozen=True)
class ComponentFiles(Files):
    """The files of a component's folder, those of a variant first.

    transformers and diffusers put the variant before the last part of a name:
    `model.safetensors.index.json` becomes `model.safetensors.index.bf16.json`.
    """

    folder: str = ""
    variant: str | None = None

    def find(self, name: str) -> Path | None:
        """Return the file of that name in the folder; None where there is none."""
        before, _, last = name.rpartition(".")
        names = [f"{before}.{self.variant}.{last}"] if self.variant else []
        paths = (Files.find(self, f"{self.folder}/{n}") for n in (*names, name))
        return next((path for path in paths if path is not None), None)

    def describe(self) -> str:
        """Return the folder and its checkpoint, for errors."""
        return f"{self.folder}/ of {Files.describe(self)}"


def open_checkpoint(model: str, revision: str | None = None) -> Emu2Checkpoint:
    """Return the checkpoint of a folder or the Hub; CheckpointError if it is not Emu2."""
    files = Files(model, revision)
    native, path = native_file(files), files.find("config.json")
    config = {} if path is None else read_json(path)
    if "vision_config" in config and native is None:
        return Emu2Checkpoint(files, files, config)
    encoder = ComponentFiles(model, revision, "multimodal_encoder", "bf16")
    if (path := encoder.find("config.json")) is not None:
        tokenizer = ComponentFiles(model, revision, "tokenizer")
        return Emu2Checkpoint(encoder, tokenizer, read_json(path))
    if native is not None:
        return NativeEmu2(files, native, config)
    raise CheckpointError(
        f"{files.describe()} holds no Emu2: neither a config.json with a vision_config "
        "(the layout of BAAI/Emu2-Chat), nor multimodal_encoder/config.json "
        f"(BAAI/Emu2-Gen), nor one of {', '.join(FILES)}"
    )


class Emu2Checkpoint:
    """Hugging Face's layouts: `config.json` with a `vision_config`, and shards."""

    def __init__(self, files: Files, tokenizer: Files, config: Mapping[str, Any]) -> None:
        self.files, self.tokenizer, self.config = files, tokenizer, config
        self.source = f"checkpoint {files.model!r}"
        """The checkpoint's name, for errors."""

    def layout(self, names: Iterable[str]) -> Layout:
        """Return where the parameters `names` of an `Emu2Network` are stored."""
        return {self.stored_name(name): Place(name) for name in names}

    def stray(self, layers: int) -> list[str]:
        """Return the names of buffers of older transformers that are not needed."""
        layer = self.stored_name("lm.model.layers.")
        return [f"{layer}{i}.self_attn.rotary_emb.inv_freq" for i in range(layers)]

    def tokens(self, strip: bool = True) -> Emu2Tokens:
        """Return the vocabulary, from `tokenizer.model` and the added tokens' names."""
        pieces = LlamaPieces.stored(self.tokenizer.need("tokenizer.model"))
        return Emu2Tokens(pieces, self.added(pieces.size), strip)

    def vision(self) -> VisionSize:
        """Return the vision encoder's dimensions, as `EmuModel` reads them."""
        source = f"config.json of {self.source}"
        values = section(self.config, "vision_config", source)
        source = f"vision_config in {source}"
        width, patch = (count(values, name, source) for name in ("width", "patch_size"))
        ratio = values.get("mlp_ratio")
        if not isinstance(ratio, (int, float)) or ratio <= 0:
            raise CheckpointError(
                f"{source}: mlp_ratio is {ratio!r}; it must be a number above 0"
            )
        return VisionSize(
            width=width,
            layers=count(values, "layers", source),
            heads=width // count(values, "head_width", source),
            mlp_width=round(width * ratio),
            patch=patch,
            grid=count(values, "image_size", source) // patch,
            norm_eps=values.get("layer_norm_eps", 1e-6),
            queries=count(values, "n_query", source),
        )

    def language(self) -> dict[str, Any]:
        """Return the fields of the language model's `LlamaConfig`."""
        rows = count(self.config, "vocab_size", f"config.json of {self.source}")
        return _llama(self.config, self.source) | {"vocab_size": rows}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Read the tensors of the network, under their stored names."""
        return stored_tensors(self.files)

    def stored_name(self, name: str) -> str:
        """Return the stored name of a parameter of ours, or of a prefix."""
        return name if name.startswith("project_") else f"model.{_native_name(name)}"

    def added(self, pieces: int) -> Mapping[str, int]:
        """Return special tokens beyond the `pieces` of the vocabulary: name -> id.

        From `added_tokens.json`, or `tokenizer_config.json` of newer versions.
        """
        path = self.tokenizer.find("added_tokens.json")
        if path is None or not (named := read_json(path)):
            path, named = self.tokenizer.need("tokenizer_config.json"), {}
        try:
            if not named:
                decoder = read_json(path).get("added_tokens_decoder", {})
                named = {about["content"]: i for i, about in decoder.items()}
            ids = {name: int(i) for name, i in named.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path}: each added token must have a content and a whole number as its "
                f"id ({error!r})"
            ) from None
        added = {name: i for name, i in ids.items() if i >= pieces}
        if not added:
            raise CheckpointError(
                f"{self.source}: neither added_tokens.json nor tokenizer_config.json "
                f"names tokens beyond the {pieces} of tokenizer.model"
            )
        return added


def _native_name(name: str) -> str:
    """Return the authors' name of a parameter of `Emu2Network`."""
    return f"decoder.{name}" if name.startswith("lm.") else name


_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)


def _llama(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return `LlamaConfig`'s fields but the rows; CheckpointError where one is missing."""
    sizes = {name: count(config, name, f"config.json of {source}") for name in _SIZES}
    heads = sizes["num_attention_heads"]
    width = sizes["hidden_size"]
    divided(width, heads, f"num_attention_heads is {heads}", f"config.json of {source}")
    theta = config.get("rope_theta", 10_000.0)
    return sizes | {
        "num_key_value_heads": config.get("num_key_value_heads", heads),
        "rms_norm_eps": config.get("rms_norm_eps", 1e-6),
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
    }


FILES = (
    "Emu2-Chat_pytorch_model.bf16.bin",
    "Emu2-Gen_pytorch_model.bf16.safetensors",
    "Emu2_pytorch_model.bf16.bin",
)
"""Their names in upstream's README and demo/backend/pytorch_model."""

_ENCODER = "multimodal_encoder."


def native_file(files: Files) -> Path | None:
    """Return the single file of a folder; None where it has none."""
    paths = (files.find(name) for name in FILES)
    return next((path for path in paths if path is not None), None)


def stored_in(path: Path, prefix: str) -> Iterator[tuple[str, Tensor]]:
    """Read the tensors of one file whose names begin with `prefix`."""
    if path.suffix == ".safetensors":
        yield from in_safetensors(path, lambda name: name.startswith(prefix))
    else:
        yield from ((n, t) for n, t in in_pickle(path).items() if n.startswith(prefix))


def shapes_in(path: Path) -> Mapping[str, tuple[int, ...]]:
    """Return the shape of each tensor of a file; CheckpointError where it is broken."""
    if path.suffix != ".safetensors":
        tensors = in_pickle(path)
        return {name: shape_of(tensors, name, str(path)) for name in tensors}
    try:
        with safe_open(str(path), framework="pt") as file:
            names = list(file.keys())
            return {name: tuple(file.get_slice(name).get_shape()) for name in names}
    except SafetensorError as error:
        raise CheckpointError(f"{path} is broken: {error}") from None


class NativeEmu2(Emu2Checkpoint):
    """A file of Emu2-Chat, or of Emu2-Gen, which holds its UNet and autoencoder too."""

    def __init__(self, files: Files, path: Path, config: Mapping[str, Any]) -> None:
        super().__init__(files, files, config)
        self._path = path
        self._shapes = shapes_in(path)
        whole = any(name.startswith(_ENCODER) for name in self._shapes)
        self._prefix = _ENCODER if whole else ""

    def vision(self) -> VisionSize:
        """Return what shapes show; heads and queries, which none shows, are published ones.

        A `vision_config` in `config.json` may set others.
        """
        own, published = self.config.get("vision_config", {}), stored("emu2")
        width, _, patch, _ = self._shape("visual.patch_embed.proj.weight")
        head_width = published["vision"]["width"] // published["vision"]["heads"]
        part = "chat" if USER in self.tokens().added else "gen"
        blocks = self.stored_name("visual.blocks.")
        inside = (n.removeprefix(blocks) for n in self._shapes if n.startswith(blocks))
        return VisionSize(
            width=width,
            layers=len({name.partition(".")[0] for name in inside}),
            heads=width // own.get("head_width", head_width),
            mlp_width=self._shape("visual.blocks.0.mlp.fc1.weight")[0],
            patch=patch,
            grid=isqrt(self._shape("visual.pos_embed")[1] - 1),
            queries=own.get("n_query", published["queries"][part]),
        )

    def language(self) -> dict[str, Any]:
        """Return LLaMA's `config.json`, with the rows of the stored embedding."""
        return _llama(self.config, self.source) | {"vocab_size": self._rows}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Read the tensors of the network."""
        return stored_in(self._path, self._prefix)

    def stored_name(self, name: str) -> str:
        """Return the name; in a file of Gen all begin with `multimodal_encoder.`."""
        return self._prefix + _native_name(name)

    def added(self, pieces: int) -> Mapping[str, int]:
        """Return upstream's list; the number of embeddings shows which."""
        for names in (ADDED, ADDED_CHAT):
            if self._rows == pieces + len(names):
                return {name: pieces + i for i, name in enumerate(names)}
        raise CheckpointError(
            f"{self.source}: {self._rows} embeddings fit neither the {pieces} pieces of "
            f"tokenizer.model with the {len(ADDED)} special tokens of Emu2-Gen nor with "
            f"the {len(ADDED_CHAT)} of Emu2-Chat"
        )

    @property
    def _rows(self) -> int:
        return self._shape("lm.model.embed_tokens.weight")[0]

    def _shape(self, name: str) -> tuple[int, ...]:
        stored_name = self.stored_name(name)
        if stored_name not in self._shapes:
            raise CheckpointError(f"{self._path} lacks {stored_name}")
        return self._shapes[stored_name]


def random_model(
    part: Part,
    weights: Weights,
    devices: Sequence[torch.device],
    dtype: torch.dtype,
    quantization: Quantization | None = None,
    strip: bool = True,
) -> Emu2:
    """Return a seeded random model that writes sentences."""
    tiny = weights == "tiny"
    sizes = config_of("emu2", tiny=tiny)
    tokens = toy_tokens(SPECIAL[part], sizes["vocabulary"], strip)
    config = llama_config(sizes, tokens.rows)
    network: Any = empty_network(vision_size(sizes, part), config)
    home = device_map(network, devices)
    layers = network.lm.model.layers
    network.lm.model.layers = nn.ModuleList()
    randomised(network, device=home, dtype=dtype, seed=_SEED)
    with torch.no_grad():
        # `randomised` takes a name with `embed` for an embedding, which has one input.
        patches = network.visual.patch_embed.proj.weight
        patches *= patches[0].numel() ** -0.5
    network.lm.model.layers = layers
    for i, layer in enumerate(layers):
        place = f"lm.model.layers.{i}."
        randomised(layer, device=home(place), dtype=dtype, seed=_SEED + i)
        _prepare(layer, _SHARPENED if tiny and part == "chat" else 1.0)
        for name in [n for n, _ in network.named_parameters() if n.startswith(place)]:
            if quantization is not None:
                quantise(network, name, quantization)
    model = _ready(network, tokens, config, devices, home)
    _steer(network.lm, tokens)
    return model


def vision_size(sizes: Mapping[str, Any], part: Part) -> VisionSize:
    """Return the dimensions of a part's vision encoder."""
    return VisionSize(**sizes["vision"], queries=sizes["queries"][part])


def llama_config(sizes: Mapping[str, Any], rows: int) -> Any:
    """Return the `LlamaConfig` for a vocabulary of `rows` tokens."""
    fields = sizes["language"] | {"vocab_size": rows}
    return configured("LlamaConfig", fields, "emu2.json")


def _ready(
    network: Any,
    tokens: Emu2Tokens,
    config: Any,
    devices: Sequence[torch.device],
    home: Callable[[str], torch.device],
) -> Emu2:
    revived(network.lm, config, devices[0])
    if len(devices) > 1:
        connect(network.lm, home)
    return Emu2(network, tokens, config.max_position_embeddings)


END = "."
"""The token after which tiny models may end."""
_PIECES = 480
"""Bytes, characters, and enough merges to make each word one piece."""
_SHARPENED = 4.0
"""Factor on random attention. Above 1 answers depend more on their questions, and
regression becomes chaotic: a rounding error grows from vector to vector."""
_SHARPNESS = 4.0
"""Random logits are so flat that beam search would end at once."""
_FORBIDDEN, _END_LOGIT = -30.0, 30.0


def toy_pieces() -> LlamaPieces:
    """Return a sentencepiece model with LLaMA's options in which each word is one piece."""
    lines = [" ".join([*WORDS[i:], *WORDS[:i], END]) for i in range(len(WORDS))]
    ids = {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2}
    model = trained_pieces(lines, _PIECES, character_coverage=1.0, **ids)
    return LlamaPieces.parsed(model, "the toy vocabulary")


def toy_tokens(
    added: Sequence[str], first: int | None = None, strip: bool = True
) -> Emu2Tokens:
    """Return a small vocabulary with the special tokens `added`, numbered from `first` on.

    LLaMA's own come after 32,000 pieces; by default they follow the last piece here.
    """
    pieces = toy_pieces()
    start = first or pieces.size
    return Emu2Tokens(pieces, {name: start + i for i, name in enumerate(added)}, strip)


@torch.no_grad()
def _prepare(layer: Any, attention: float) -> None:
    """Keep a layer from channels 0 and 1 of the residual stream; sharpen its attention."""
    layer.self_attn.q_proj.weight *= attention
    layer.self_attn.o_proj.weight *= attention
    isolate(layer, channels=2)


@torch.no_grad()
def _steer(lm: Any, tokens: Emu2Tokens) -> None:
    """Make a random LLaMA of isolated channels write words, and end only after a full stop.

    Channel 0 is constant: the head reads from it which tokens are not words. Channel 1 is
    set by the full stop alone: the head reads from it that the answer may end.
    """
    words = [tokens.pieces.encode(word)[0] for word in (*WORDS, END)]
    embeddings: Tensor = lm.model.embed_tokens.weight
    strength = embeddings.shape[1] ** 0.5 / 2
    embeddings[:, 0] = strength
    embeddings[:, 1] = 0.0
    embeddings[words[-1], 1] = strength
    ids = torch.tensor([[tokens["<s>"], *words]], device=lm.lm_head.weight.device)
    hidden: Tensor = lm.model(input_ids=ids, use_cache=False).last_hidden_state
    after_word, after_end = hidden[0, -2, :2], hidden[0, -1, :2]
    head: Tensor = lm.lm_head.weight
    word_rows = head[words] * _SHARPNESS
    word_rows[:, :2] = 0.0
    head.zero_()
    head[:, 0] = _FORBIDDEN / after_word[0]
    head[words] = word_rows
    head[tokens["</s>"], 1] = (_END_LOGIT - _FORBIDDEN) / after_end[1]
