"""Loads a language model of Emu2 with pretrained, dummy or tiny weights.

Published ones, from a folder or the Hub, have three layouts: Hugging Face's of Emu2-Chat
(all at the root) and of Emu2-Gen (a folder for each component), and the authors' own single
files. Beside such a file a folder holds, of upstream's repository, the files of
`Emu2/emu/conf/llama_config` and, for drawing, the folders of `.../diffusion_config`.

Decoder layers are spread over the GPUs of one node; everything else is on the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import dispatch_model
from torch import Tensor, nn

from plait.generators.architectures import config_of, read_config
from plait.generators.base import Weights
from plait.generators.decoding.steering import isolate
from plait.generators.emu2.network import (
    ADDED,
    ADDED_CHAT,
    USER,
    Emu2,
    Emu2Tokens,
    VisionSize,
    empty_network,
)
from plait.generators.emu2.settings import Emu2Settings, Quantization
from plait.generators.errors import CheckpointError
from plait.generators.extras import import_extra
from plait.generators.loading.files import (
    Files,
    config_of_class,
    count,
    divide,
    in_pickle,
    in_safetensors,
    read_json,
    read_stored,
    section,
    shapes_in,
)
from plait.generators.loading.llama import LlamaPieces, train_pieces
from plait.generators.loading.strict import (
    Layout,
    Place,
    device_of,
    fill,
    first_keys,
    randomise,
    rebuild_rotary,
)
from plait.generators.toys import WORDS

Part = Literal["chat", "gen"]
"""Emu2-Chat, or Emu2-Gen's multimodal encoder."""
SPECIAL: Mapping[Part, tuple[str, ...]] = {"chat": ADDED_CHAT, "gen": ADDED}
"""Special tokens of each beyond LLaMA's pieces."""

_SEED = 20_231_220
"""Seed of random weights: the day Emu2 was published."""


def load(settings: Emu2Settings, weights: Weights, part: Part) -> Emu2:
    """Return the model of `settings`; CheckpointError when a checkpoint does not fit.

    A published one is streamed onto the devices tensor by tensor; random ones are seeded
    and write sentences.
    """
    kind = settings.quantization
    tiny = weights == "tiny"
    if kind is not None:
        _bitsandbytes()
    devices = devices_of(settings.device)
    dtype = torch.float32 if tiny else getattr(torch, settings.dtype)
    if weights == "pretrained":
        checkpoint = open_checkpoint(settings.model, settings.revision)
        tokens = _vocabulary(checkpoint, part, settings.strip_text)
        vision = checkpoint.vision()
        config = checkpoint.language(tokens.rows)
    else:
        sizes = config_of("emu2", tiny=tiny)
        tokens = toy_tokens(SPECIAL[part], sizes["vocabulary"], settings.strip_text)
        vision = vision_size(sizes, part)
        config = llama_config(sizes, tokens.rows)
    network: Any = empty_network(vision, config)
    home = device_map(network, devices)
    if weights == "pretrained":
        layout = checkpoint.layout(network.state_dict())
        tensors = checkpoint.tensors()
        if kind is not None:
            tensors = quantising(tensors, network, layout, kind)
        about: Any = {"source": checkpoint.source, "device": home, "dtype": dtype}
        about["tolerated"] = checkpoint.stray(config.num_hidden_layers)
        fill(network, tensors, layout, **about)
    else:
        sharpness = _SHARPENED if tiny and part == "chat" else 1.0
        _randomise(network, home, dtype, kind, sharpness)
    rebuild_rotary(network.lm, config, devices[0])
    for block in network.visual.blocks:
        # timm's own zeros, which no file holds, are on the meta device.
        block.attn.k_bias = torch.zeros_like(block.attn.q_bias)
    if len(devices) > 1:
        connect(network.lm, home)
    if weights != "pretrained":
        _steer(network.lm, tokens)
    return Emu2(network, tokens, vision, config.max_position_embeddings)


def _vocabulary(checkpoint: Emu2Checkpoint, part: Part, strip: bool) -> Emu2Tokens:
    """Return the checkpoint's tokens.

    CheckpointError where it lacks one of the part's special tokens, or is asked to
    condition and has the marks of a conversation: Emu2-Chat was tuned to write text only.
    """
    tokens = checkpoint.tokens(strip)
    lacking = [name for name in SPECIAL[part] if name not in tokens.added]
    wrong = f"lacks {first_keys(lacking)}" if lacking else ""
    if part == "gen" and USER in tokens.added:
        wrong = f"has {USER}, so it is Emu2-Chat"
    if wrong:
        raise CheckpointError(
            f"{checkpoint.source}: the vocabulary {wrong}; drafting takes Emu2-Chat, "
            "conditioning Emu2-Gen"
        )
    return tokens


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
    native = native_file(files)
    path = files.find("config.json")
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
        self.files = files
        self.tokenizer = tokenizer
        self.config = config
        self.source = f"checkpoint {files.model!r}"
        """The checkpoint's name, for errors."""

    def layout(self, names: Iterable[str]) -> Layout:
        """Return where the parameters `names` of an `Emu2Network` are stored."""
        return {self.name_in_file(name): Place(name) for name in names}

    def stray(self, layers: int) -> list[str]:
        """Return the names of buffers of older transformers that are not needed."""
        layer = self.name_in_file("lm.model.layers.")
        return [f"{layer}{i}.self_attn.rotary_emb.inv_freq" for i in range(layers)]

    def tokens(self, strip: bool = True) -> Emu2Tokens:
        """Return the vocabulary, from `tokenizer.model` and the added tokens' names."""
        pieces = LlamaPieces.read(self.tokenizer.need("tokenizer.model"))
        return Emu2Tokens(pieces, self.special_tokens(pieces.size), strip)

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

    def language(self, ids: int) -> Any:
        """Return the `LlamaConfig`; CheckpointError where it has fewer rows than `ids`."""
        source = f"config.json of {self.source}"
        sizes = {name: count(self.config, name, source) for name in _SIZES}
        heads = sizes["num_attention_heads"]
        divide(sizes["hidden_size"], heads, f"num_attention_heads is {heads}", source)
        theta = self.config.get("rope_theta", 10_000.0)
        fields = sizes | {
            "vocab_size": self.rows,
            "num_key_value_heads": self.config.get("num_key_value_heads", heads),
            "rms_norm_eps": self.config.get("rms_norm_eps", 1e-6),
            "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        }
        if ids > self.rows:
            raise CheckpointError(
                f"{self.source}: the vocabulary numbers {ids} tokens, the embedding has "
                f"{self.rows} rows"
            )
        return config_of_class("LlamaConfig", fields, source)

    @property
    def rows(self) -> int:
        """Rows of the table of embeddings."""
        return count(self.config, "vocab_size", f"config.json of {self.source}")

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Read the tensors of the network, under their stored names."""
        return read_stored(self.files)

    def name_in_file(self, name: str) -> str:
        """Return the stored name of a parameter of ours, or of a prefix."""
        return name if name.startswith("project_") else f"model.{_native_name(name)}"

    def special_tokens(self, pieces: int) -> Mapping[str, int]:
        """Return special tokens beyond the `pieces` of the vocabulary: name -> id.

        From `added_tokens.json`, or `tokenizer_config.json` of newer versions.
        """
        path = self.tokenizer.find("added_tokens.json")
        if path is None or not (named := read_json(path)):
            path = self.tokenizer.need("tokenizer_config.json")
            named = {}
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
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    "max_position_embeddings",
)

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


def read_tensors(path: Path, prefix: str) -> Iterator[tuple[str, Tensor]]:
    """Read the tensors of one file whose names begin with `prefix`."""
    if path.suffix == ".safetensors":
        yield from in_safetensors(path, lambda name: name.startswith(prefix))
    else:
        yield from ((n, t) for n, t in in_pickle(path).items() if n.startswith(prefix))


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
        own = self.config.get("vision_config", {})
        published = read_config("emu2")
        width, _, patch, _ = self._shape("visual.patch_embed.proj.weight")
        head_width = published["vision"]["width"] // published["vision"]["heads"]
        part = "chat" if USER in self.tokens().added else "gen"
        blocks = self.name_in_file("visual.blocks.")
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

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Read the tensors of the network."""
        return read_tensors(self._path, self._prefix)

    def name_in_file(self, name: str) -> str:
        """Return the name; in a file of Gen all begin with `multimodal_encoder.`."""
        return self._prefix + _native_name(name)

    def special_tokens(self, pieces: int) -> Mapping[str, int]:
        """Return upstream's list; the number of embeddings shows which."""
        for names in (ADDED, ADDED_CHAT):
            if self.rows == pieces + len(names):
                return {name: pieces + i for i, name in enumerate(names)}
        raise CheckpointError(
            f"{self.source}: {self.rows} embeddings fit neither the {pieces} pieces of "
            f"tokenizer.model with the {len(ADDED)} special tokens of Emu2-Gen nor with "
            f"the {len(ADDED_CHAT)} of Emu2-Chat"
        )

    @property
    def rows(self) -> int:
        """Rows of the stored table; `config.json` is LLaMA's."""
        return self._shape("lm.model.embed_tokens.weight")[0]

    def _shape(self, name: str) -> tuple[int, ...]:
        stored_name = self.name_in_file(name)
        if stored_name not in self._shapes:
            raise CheckpointError(f"{self._path} lacks {stored_name}")
        return self._shapes[stored_name]


@torch.no_grad()
def _randomise(
    network: Any,
    home: Callable[[str], torch.device],
    dtype: torch.dtype,
    kind: Quantization | None,
    sharpness: float,
) -> None:
    """Fill an empty network layer by layer, so that none waits for its quantisation."""
    layers = network.lm.model.layers
    network.lm.model.layers = nn.ModuleList()
    randomise(network, device=home, dtype=dtype, seed=_SEED)
    # `randomise` takes a name with `embed` for an embedding, which has one input.
    patches = network.visual.patch_embed.proj.weight
    patches *= patches[0].numel() ** -0.5
    network.lm.model.layers = layers
    for i, layer in enumerate(layers):
        place = f"lm.model.layers.{i}."
        randomise(layer, device=home(place), dtype=dtype, seed=_SEED + i)
        # Above 1, attention is sharpened.
        layer.self_attn.q_proj.weight *= sharpness
        layer.self_attn.o_proj.weight *= sharpness
        isolate(layer, channels=2)
        for name in [n for n, _ in network.named_parameters() if n.startswith(place)]:
            if kind is not None:
                quantise(network, name, kind)


def vision_size(sizes: Mapping[str, Any], part: Part) -> VisionSize:
    """Return the dimensions of a part's vision encoder."""
    return VisionSize(**sizes["vision"], queries=sizes["queries"][part])


def llama_config(sizes: Mapping[str, Any], rows: int) -> Any:
    """Return the `LlamaConfig` for a vocabulary of `rows` tokens."""
    fields = sizes["language"] | {"vocab_size": rows}
    return config_of_class("LlamaConfig", fields, "emu2.json")


_LAYER = re.compile(r"lm\.model\.layers\.(\d+)\.")


def devices_of(name: str) -> list[torch.device]:
    """Return the devices a setting means: for `auto`, every visible GPU."""
    if name == "auto" and torch.cuda.device_count() > 1:
        return [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
    return [device_of(name)]


def layer_devices(layers: int, layer_size: int, rest: int, devices: int) -> list[int]:
    """Return the index of each layer's device, so that all hold about the same.

    The first device also holds `rest`; layers stay in order.
    """
    share = (layers * layer_size + rest) / devices
    indices = []
    load = float(rest)
    device = 0
    for _ in range(layers):
        if load + layer_size / 2 > share and device < devices - 1:
            device = device + 1
            load = 0.0
        indices.append(device)
        load += layer_size
    return indices


def device_map(
    network: Any, devices: Sequence[torch.device]
) -> Callable[[str], torch.device]:
    """Return the device of each parameter of the network, by name."""
    sizes = {name: value.numel() for name, value in network.named_parameters()}
    inside = sum(size for name, size in sizes.items() if _LAYER.match(name))
    layers = network.lm.config.num_hidden_layers
    total = sum(sizes.values())
    placed = layer_devices(layers, inside // layers, total - inside, len(devices))

    def home(name: str) -> torch.device:
        layer = _LAYER.match(name)
        return devices[placed[int(layer[1])] if layer else 0]

    return home


def connect(lm: Any, home: Callable[[str], torch.device]) -> None:
    """Make states follow the layers of a language model from device to device."""
    layers = range(lm.config.num_hidden_layers)
    places = {f"model.layers.{i}": home(f"lm.model.layers.{i}.") for i in layers}
    first = home("lm.lm_head.weight")
    rest = ("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head")
    dispatch_model(lm, {**dict.fromkeys(rest, first), **places}, force_hooks=True)


_OUTLIERS = 6.0
"""Larger activations are multiplied in full precision (arXiv:2208.07339)."""


def quantising(
    stored: Iterable[tuple[str, Tensor]],
    network: nn.Module,
    layout: Layout,
    kind: Quantization,
) -> Iterator[tuple[str, Tensor]]:
    """Return `stored`, with each matrix of a decoder layer quantised once it is in place.

    So a device never holds more than one such matrix in full. For `strict.fill` on
    `network`, which takes the next tensor when the last one is in place.
    """
    for key, tensor in stored:
        yield key, tensor
        if key in layout:
            quantise(network, layout[key].name, kind)


def quantise(network: nn.Module, name: str, kind: Quantization) -> None:
    """Replace the matrix of that parameter name if it is one of a decoder layer."""
    owner, _, leaf = name.rpartition(".")
    layer = network.get_submodule(owner)
    if not isinstance(layer, nn.Linear) or layer.weight.is_meta:
        return
    if name.startswith("lm.model.layers.") and leaf == "weight":
        parent, _, child = owner.rpartition(".")
        setattr(network.get_submodule(parent), child, _quantise(layer, kind))


def _bitsandbytes() -> Any:
    return import_extra("bitsandbytes", "the setting quantization")


def _quantise(layer: nn.Linear, kind: Quantization) -> nn.Module:
    bnb = _bitsandbytes()
    weight = layer.weight.data
    sizes = (layer.in_features, layer.out_features)
    options: dict[str, Any] = {"bias": False, "device": "meta"}
    if kind == "int8":
        quantised = bnb.nn.Linear8bitLt(
            *sizes, has_fp16_weights=False, threshold=_OUTLIERS, **options
        )
        # Int8Params are quantised on their way from the host to a device, and only then.
        quantised.weight = bnb.nn.Int8Params(
            weight.cpu(), requires_grad=False, has_fp16_weights=False
        )
    else:
        options |= {"compute_dtype": weight.dtype, "quant_type": "fp4"}
        quantised = bnb.nn.Linear4bit(*sizes, **options)
        quantised.weight = bnb.nn.Params4bit(weight, requires_grad=False, quant_type="fp4")
    module: nn.Module = quantised.to(weight.device).eval()
    return module.requires_grad_(False)


END = "."
"""The token after which tiny models may end."""
_PIECES = 480
"""Bytes, characters, and enough merges to make each word one piece."""
_SHARPENED = 4.0
"""Factor on random attention. Above 1 answers depend more on their questions, and
regression becomes chaotic: a rounding error grows from vector to vector."""
_SHARPNESS = 4.0
"""Random logits are so flat that beam search would end at once."""
_FORBIDDEN = -30.0
_END_LOGIT = 30.0


def toy_tokens(
    added: Sequence[str], first: int | None = None, strip: bool = True
) -> Emu2Tokens:
    """Return a vocabulary in which each word is one piece, with the special tokens `added`.

    Pieces have LLaMA's options. Special tokens are numbered from `first` on: LLaMA's own
    come after 32,000 pieces; by default they follow the last piece here.
    """
    lines = [" ".join([*WORDS[i:], *WORDS[:i], END]) for i in range(len(WORDS))]
    ids = {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2}
    model = train_pieces(lines, _PIECES, character_coverage=1.0, **ids)
    pieces = LlamaPieces.parse(model, "the toy vocabulary")
    start = first or pieces.size
    return Emu2Tokens(pieces, {name: start + i for i, name in enumerate(added)}, strip)


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
    after_word = hidden[0, -2, :2]
    after_end = hidden[0, -1, :2]
    head: Tensor = lm.lm_head.weight
    word_rows = head[words] * _SHARPNESS
    word_rows[:, :2] = 0.0
    head.zero_()
    head[:, 0] = _FORBIDDEN / after_word[0]
    head[words] = word_rows
    head[tokens["</s>"], 1] = (_END_LOGIT - _FORBIDDEN) / after_end[1]
