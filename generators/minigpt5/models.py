"""The drafting model for each kind of weights: language model and image encoder.

As published: stage checkpoints, Vicuna, MiniGPT-4's projection and BLIP-2.

Upstream reads LLaMA's pieces by the slow tokenizer of transformers 4.31
(`plait.generators.loading.llama`). Here the text of a prompt is tokenized apart from added
tokens, so that `[IMG0]` or `</s>` in a question are read as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers
from torch import nn

from plait.generators.architectures import config_of
from plait.generators.base import Weights
from plait.generators.checkpoints import looks_like_path, with_revision
from plait.generators.decoding.steering import held_level, steer
from plait.generators.errors import CheckpointError
from plait.generators.loading.files import (
    Files,
    config_of_class,
    in_pickle,
    read_json,
    read_stored,
    read_tokenizer,
    shape_of,
)
from plait.generators.loading.llama import BOS, EOS, UNKNOWN, LlamaPieces
from plait.generators.loading.strict import (
    Place,
    Put,
    device_of,
    empty_model,
    fill,
    identical,
    randomise,
    rebuild_rotary,
)
from plait.generators.minigpt5.settings import MiniGPT5DraftSettings
from plait.generators.minigpt5.vision import ImageEncoder, open_blip2
from plait.generators.toys import PIECES

VOKENS = 8
"""`[IMG0]` to `[IMG7]` (`IMG_TOKEN_NUM`, constants.py)."""
ADDED = VOKENS + 1
"""The vokens and `<ImageHere>`: the last rows of the embedding table."""
MARK = "###"
"""Begins every turn; an answer ends where the model writes it."""
_SPELLINGS = (("\u2581###",), ("##", "#"))
"""Pieces that spell the mark: ids [835] and [2277, 29937] of upstream's `predict`."""
_MODEL = "tokenizer.model"
_JSON = "tokenizer.json"
_SPECIAL_MAPS = ("special_tokens_map.json", "tokenizer_config.json")


class JsonTokenizer:
    """A `tokenizer.json`, where there is no `tokenizer.model`; the same ids."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # Otherwise `</s>` in a question would end the sequence.
        self._tokenizer.encode_special_tokens = True
        self._special = set(map(tokenizer.token_to_id, (UNKNOWN, BOS, EOS)))
        self.size: int = tokenizer.get_vocab_size(with_added_tokens=False)

    def encode(self, text: str) -> list[int]:
        """Return ids of the text's pieces."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text; control and unknown pieces are left out."""
        plain = [token for token in ids if token not in self._special]
        text: str = self._tokenizer.decode(plain, skip_special_tokens=False)
        return text

    def id_of(self, piece: str) -> int | None:
        """Return the id of a piece; None when there is no such piece."""
        token: int | None = self._tokenizer.token_to_id(piece)
        return token


TextTokenizer = LlamaPieces | JsonTokenizer
"""Text to pieces and back, without any special tokens."""


def load_tokenizer(files: Files) -> TextTokenizer:
    """Return the tokenizer of a LLaMA checkpoint; CheckpointError where there is none."""
    if (path := files.find(_MODEL)) is not None:
        return LlamaPieces.read(path)
    if (path := files.find(_JSON)) is not None:
        return JsonTokenizer(read_tokenizer(path))
    raise CheckpointError(f"{files.describe()} has neither {_MODEL} nor {_JSON}")


def read_bos(files: Files, tokenizer: TextTokenizer) -> int:
    """Return the id with which a prompt begins, by the checkpoint's `bos_token`.

    Conversions of LLaMA-1 name `<s>`, `</s>` or nothing at all; a name without a piece is
    the unknown piece, as in transformers.
    """
    token = tokenizer.id_of(_bos_name(files))
    if token is None:
        token = tokenizer.id_of(UNKNOWN)
    return token or 0


def _bos_name(files: Files) -> str:
    """Return the `bos_token` that a checkpoint names, else LLaMA's own."""
    for file in _SPECIAL_MAPS:
        path = files.find(file)
        stored = None if path is None else read_json(path).get("bos_token")
        if stored is not None:
            return stored["content"] if isinstance(stored, dict) else str(stored)
    return BOS


@dataclass(frozen=True)
class MiniGPT5Vocabulary:
    """The ids that the loop needs."""

    tokenizer: TextTokenizer
    rows: int
    """Rows of the embedding table; the added ids are the last of them."""
    bos: int
    stops: tuple[tuple[int, ...], ...]
    """Runs of ids that spell the mark."""

    @classmethod
    def of(cls, tokenizer: TextTokenizer, rows: int, bos: int) -> MiniGPT5Vocabulary:
        """Raise CheckpointError where the tokenizer's ids overlap with the added ones."""
        if tokenizer.size > rows - ADDED:
            raise CheckpointError(
                f"the tokenizer has {tokenizer.size} pieces, but of the {rows} rows of the "
                f"embedding table the last {ADDED} are the vokens and <ImageHere>"
            )
        # A vocabulary may lack the pieces of one spelling.
        spellings = [_spell(tokenizer, pieces) for pieces in _SPELLINGS]
        stops = tuple(filter(None, spellings))
        if not stops:
            raise CheckpointError(f"the tokenizer has no pieces that spell {MARK!r}")
        return cls(tokenizer, rows, bos, stops)

    @property
    def vokens(self) -> range:
        """Ids of `[IMG0]` to `[IMG7]`."""
        return range(self.rows - ADDED, self.rows - ADDED + VOKENS)

    @property
    def begin_image(self) -> int:
        """Id of `[IMG0]`, the only id of an image that is sampled."""
        return self.vokens[0]

    def name_of_added(self, token: int) -> str:
        """Return upstream's name of an id after the tokenizer's."""
        if token == self.rows - 1:
            return "<ImageHere>"
        voken = token - self.begin_image
        return f"[IMG{voken}]" if voken >= 0 else f"id {token}"

    def mark_length(self, ids: Sequence[int]) -> int:
        """Return how many of the last ids spell the mark; 0 when they do not."""
        longest = 0
        for stop in self.stops:
            if tuple(ids[-len(stop) :]) == stop:
                longest = max(longest, len(stop))
        return longest

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of generated ids, without the added ones."""
        pieces = [token for token in ids if token < self.tokenizer.size]
        return self.tokenizer.decode(pieces)


def _spell(tokenizer: TextTokenizer, pieces: Sequence[str]) -> tuple[int, ...] | None:
    """Return the ids of pieces; None where the tokenizer lacks one of them."""
    ids: list[int] = []
    for piece in pieces:
        token = tokenizer.id_of(piece)
        if token is None:
            return None
        ids.append(token)
    return tuple(ids)


SEED = 20_231_003
"""Seed of the random weights: the day on which the paper appeared."""
_SHARES: Mapping[Weights, tuple[float, float]] = {
    "tiny": (0.12, 0.02),
    "dummy": (0.0008, 0.0004),
}
"""Probabilities that random weights request an image after a word, among all ids, and that
they end the answer. Among the fifty ids that sampling keeps by default, they are larger
where there are many words."""


MiniGPT5Models = tuple[Any, MiniGPT5Vocabulary, ImageEncoder]
"""A `LlamaForCausalLM` that writes text and vokens, its ids, and what reads images."""


def load_models(weights: Weights, settings: MiniGPT5DraftSettings) -> MiniGPT5Models:
    """Return the drafting models; CheckpointError when published files do not fit."""
    device = device_of(settings.device)
    dtype = getattr(torch, settings.dtype)
    if weights == "pretrained":
        return _load_published(settings, device, dtype)
    return random_models(weights, device, torch.float32 if weights == "tiny" else dtype)


def _load_published(
    settings: MiniGPT5DraftSettings, device: torch.device, dtype: torch.dtype
) -> MiniGPT5Models:
    # Small files are read first, so that a wrong path fails before gigabytes are loaded.
    put = partial(fill, device=device, dtype=dtype)
    model = Files(settings.model, settings.revision)
    vicuna = Files(*with_revision(settings.language))
    projection = projection_file(model, settings.projection)
    blip2 = open_blip2(Files(*with_revision(settings.vision)))
    stages = StageCheckpoints(model, settings.finetuned)
    tokenizer = load_tokenizer(vicuna)
    bos = read_bos(vicuna, tokenizer)
    vocabulary = MiniGPT5Vocabulary.of(tokenizer, stages.rows(), bos)
    config = _language_config(vicuna, vocabulary.rows)
    with torch.device("meta"):
        encoder = ImageEncoder(*blip2.configs(), config.hidden_size)
    blip2.fill(encoder, put)
    names = [name for name in encoder.state_dict() if name.startswith("llama_proj.")]
    tensors = in_pickle(projection, "model").items()
    put(encoder, tensors, identical(names), source=str(projection))
    language = empty_model("AutoModelForCausalLM", config)
    _fill_layers(language, vicuna, put)
    stages.fill_language(language, put)
    rebuild_rotary(language, config, device)
    return language, vocabulary, encoder


def _language_config(vicuna: Files, rows: int) -> Any:
    """Return Vicuna's configuration with tables of so many rows."""
    path = vicuna.need("config.json")
    # Vicuna v0 names the padding id -1, which no token has; nothing is padded here.
    fields = read_json(path) | {"vocab_size": rows, "pad_token_id": None}
    return config_of_class("LlamaConfig", fields, str(path))


def _fill_layers(language: Any, vicuna: Files, put: Put) -> None:
    """Fill all but embeddings and head, which the stage checkpoints replace."""
    tables = tuple(f"{table}." for table in _TABLES)
    names = [name for name in language.state_dict() if not name.startswith(tables)]
    tensors = read_stored(vicuna, lambda name: not name.startswith(tables))
    layers = range(language.config.num_hidden_layers)
    # Files of older transformers hold these buffers; they are computed anew.
    rotary = [f"model.layers.{i}.self_attn.rotary_emb.inv_freq" for i in layers]
    source = vicuna.describe()
    put(language, tensors, identical(names), source=source, tolerated=rotary)


STAGE_1 = "stage1_cc3m.ckpt"
STAGE_2 = {"vist": "stage2_vist.ckpt", "mmdialog": "stage2_mmdialog.ckpt"}
PROJECTION = "prerained_minigpt4_7b.pth"

_LLAMA_1 = "model.llama_model."
_LLAMA_2 = "model.llama_model.base_model.model."
_TABLES = ("model.embed_tokens", "lm_head")
MAPPER = ("fc", "llm_to_t2i_mapping", "t2i_decoder_prompt")
"""The parts of the stage checkpoints that the renderer reads."""

_ALPHA = 16.0
"""`lora_alpha` of mini_gpt5.py; the files do not hold it."""
_TARGETS = ("q_proj", "v_proj")


@torch.no_grad()
def merge(model: Any, stored: Mapping[str, Any], prefix: str, source: str) -> None:
    """Add the low-rank updates in `stored` to the weights of a LLaMA.

    Names are peft's below `prefix`; the sum is computed in float32. CheckpointError where
    a layer has no update, or where others than queries and values have one.
    """
    linears: dict[str, Any] = {}
    for number, layer in enumerate(model.model.layers):
        for target in _TARGETS:
            name = f"layers.{number}.self_attn.{target}"
            linears[name] = getattr(layer.self_attn, target)
    first = f"{prefix}layers.0.self_attn.q_proj.lora_A.default.weight"
    rank = shape_of(stored, first, source, 2)[0]
    # One pair of matrices for each, (rank, inputs) and (outputs, rank).
    updates = nn.ModuleList()
    layout: dict[str, Place] = {}
    for number, (name, linear) in enumerate(linears.items()):
        with torch.device("meta"):
            down = torch.empty(rank, linear.in_features)
            up = torch.empty(linear.out_features, rank)
            updates.append(nn.ParameterList([down, up]))
        layout[f"{prefix}{name}.lora_A.default.weight"] = Place(f"{number}.0")
        layout[f"{prefix}{name}.lora_B.default.weight"] = Place(f"{number}.1")
    # All that is stored of the layers, so that an update of another matrix is told.
    low_rank = ((k, v) for k, v in stored.items() if k.startswith(f"{prefix}layers."))
    device = model.lm_head.weight.device
    fill(updates, low_rank, layout, source=source, device=device, dtype=torch.float32)
    for linear, update in zip(linears.values(), updates, strict=True):
        down, up = update.parameters()
        change = (_ALPHA / rank) * up @ down
        linear.weight.copy_(linear.weight.float() + change)


@dataclass(frozen=True)
class StageCheckpoints:
    """The stage checkpoints of one model."""

    files: Files
    finetuned: str

    def stage_1(self) -> Mapping[str, Any]:
        """Return the tensors of `stage1_cc3m.ckpt`."""
        return in_pickle(self.files.need(STAGE_1), "state_dict")

    def stage_2(self) -> Mapping[str, Any] | None:
        """Return the tensors of the stage-2 checkpoint; None where none is used."""
        if self.finetuned == "none":
            return None
        return in_pickle(self.files.need(STAGE_2[self.finetuned]), "state_dict")

    @property
    def last_source(self) -> str:
        """The file that is applied last, for errors."""
        return f"{STAGE_2.get(self.finetuned, STAGE_1)} of {self.files.describe()}"

    def rows(self) -> int:
        """Return the rows of the embedding table."""
        stored, names = self._tables()
        return shape_of(stored, next(iter(names)), self.last_source, 2)[0]

    def fill_language(self, model: Any, put: Put) -> None:
        """Fill embeddings and head, and add the updates of stage 2 to the other weights."""
        stored, names = self._tables()
        layers = f"{_LLAMA_2}model.layers"
        layout = {stored_name: Place(name) for stored_name, name in names.items()}
        unused = MAPPER if self.finetuned == "none" else (*MAPPER, layers)
        put(model, stored.items(), layout, source=self.last_source, tolerated=unused)
        if self.finetuned != "none":
            merge(model, stored, f"{_LLAMA_2}model.", self.last_source)

    def _tables(self) -> tuple[Mapping[str, Any], dict[str, str]]:
        """Return the last file's tensors, and its names of embeddings and head -> ours."""
        if (stored := self.stage_2()) is None:
            names = {f"{_LLAMA_1}{table}.weight": f"{table}.weight" for table in _TABLES}
            return self.stage_1(), names
        # peft's name of a module that is trained in full.
        saved = "modules_to_save.default.weight"
        return stored, {f"{_LLAMA_2}{t}.{saved}": f"{t}.weight" for t in _TABLES}


def projection_file(model: Files, name: str | None) -> Path:
    """Return the file with `llama_proj`; CheckpointError says where it is published."""
    if name is not None and looks_like_path(name) and Path(name).expanduser().is_file():
        return Path(name).expanduser()
    files = model if name is None else Files(*with_revision(name))
    for place in (PROJECTION, f"config/{PROJECTION}"):
        if (path := files.find(place)) is not None:
            return path
    raise CheckpointError(
        f"{files.describe()} has no file {PROJECTION!r}: it is in the folder `config` "
        "of the repository eric-ai-lab/MiniGPT-5; set `projection` to it"
    )


def random_models(
    weights: Weights, device: torch.device, dtype: torch.dtype
) -> MiniGPT5Models:
    """Return seeded random models that write interleaved answers."""
    sizes = config_of("minigpt5", tiny=weights == "tiny")
    tokenizer = toy_tokenizer(sizes["vocabulary"])
    pieces = JsonTokenizer(tokenizer)
    vocabulary = MiniGPT5Vocabulary.of(pieces, pieces.size + ADDED, bos=1)
    config = llama_config(sizes, vocabulary.rows)
    model = empty_model("AutoModelForCausalLM", config)
    parts = (sizes["vision"], sizes["qformer"], sizes["queries"])
    with torch.device("meta"):
        encoder = ImageEncoder(*parts, config.hidden_size)
    for module in (model, encoder):
        randomise(module, device=device, dtype=dtype, seed=SEED)
    rebuild_rotary(model, config, device)
    # Images keep channel 0 at the level from which `steer` has the head read a bias.
    encoder.llama_proj.weight[0] = 0.0
    encoder.llama_proj.bias[0] = held_level(config.hidden_size)
    made_up = range(300, pieces.size)
    words = made_up if sizes["vocabulary"] else PIECES.ids(tokenizer)
    mark = pieces.id_of(_MARK_PIECE)
    assert mark is not None, "`toy_tokenizer` has it"
    begins, ends = _SHARES[weights]
    steer(
        model,
        words=words,
        unwanted=set(range(vocabulary.rows)) - set(words),
        shares={vocabulary.begin_image: begins, mark: ends},
        context=[*words][:40],
    )
    return model, vocabulary, encoder


def llama_config(sizes: Mapping[str, Any], rows: int) -> Any:
    """Return the `LlamaConfig` of an architecture whose tables have `rows` rows."""
    fields = sizes["language"] | {"vocab_size": rows}
    return config_of_class("LlamaConfig", fields, "minigpt5.json")


_SPACE = PIECES.space
_MARK_PIECE = _SPACE + "###"
_MARK_MERGES = [(_SPACE, "#"), (_SPACE + "#", "#"), (_SPACE + "##", "#"), ("#", "#")]
_SPECIALS = ("<unk>", "<s>", "</s>")


def toy_tokenizer(size: int | None = None) -> Tokenizer:
    """Return special pieces, bytes and words in LLaMA's order, filled up to `size`."""
    octets = [f"<0x{byte:02X}>" for byte in range(256)]
    printable = [chr(code) for code in range(33, 127)]
    marks = [first + second for first, second in _MARK_MERGES]
    names = [*_SPECIALS, *octets, _SPACE, *printable, *marks]
    ids, word_merges = PIECES.vocabulary(names, size)
    merges = [*_MARK_MERGES, *word_merges]
    model = models.BPE(
        vocab=ids, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    spaces = [normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)]
    tokenizer.normalizer = normalizers.Sequence(spaces)
    # The last step drops the space that the first one put before a text.
    steps = [
        decoders.Replace(_SPACE, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens(list(_SPECIALS))
    return tokenizer
