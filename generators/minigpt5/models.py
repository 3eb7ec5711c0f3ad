"""The drafting model for each kind of weights: language model and image encoder.

As published: stage checkpoints, Vicuna, MiniGPT-4's projection and BLIP-2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers
from torch import nn

from generators.architectures import config_of
from generators.base import Weights
from generators.checkpoints import looks_like_path, with_revision
from generators.decoding.steering import held_level, steer
from generators.errors import CheckpointError
from generators.loading.files import (
    Files,
    configured,
    in_pickle,
    read_json,
    shape_of,
    stored_tensors,
)
from generators.loading.strict import (
    Place,
    Put,
    device_of,
    empty_model,
    fill,
    identical,
    randomised,
    revived,
)
from generators.minigpt5.settings import MiniGPT5DraftSettings
from generators.minigpt5.tokens import (
    ADDED,
    JsonTokenizer,
    MiniGPT5Vocabulary,
    stored_bos,
    stored_tokenizer,
)
from generators.minigpt5.vision import ImageEncoder, open_blip2
from generators.toys import PIECES

_SEED = 20_231_003
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
    device, dtype = device_of(settings.device), getattr(torch, settings.dtype)
    if weights == "pretrained":
        return _published(settings, device, dtype)
    return random_models(weights, device, torch.float32 if weights == "tiny" else dtype)


def _published(
    settings: MiniGPT5DraftSettings, device: torch.device, dtype: torch.dtype
) -> MiniGPT5Models:
    # Small files are read first, so that a wrong path fails before gigabytes are loaded.
    put = partial(fill, device=device, dtype=dtype)
    model = Files(settings.model, settings.revision)
    vicuna = Files(*with_revision(settings.language))
    projection = projection_file(model, settings.projection)
    blip2 = open_blip2(Files(*with_revision(settings.vision)))
    stages = StageCheckpoints(model, settings.finetuned)
    tokenizer = stored_tokenizer(vicuna)
    bos = stored_bos(vicuna, tokenizer)
    vocabulary = MiniGPT5Vocabulary.of(tokenizer, stages.rows(), bos)
    config = vicuna_config(vicuna, vocabulary.rows)
    with torch.device("meta"):
        encoder = ImageEncoder(*blip2.configs(), config.hidden_size)
    blip2.fill(encoder, put)
    fill_projection(encoder, projection, put)
    language = empty_model("AutoModelForCausalLM", config)
    fill_vicuna(language, vicuna, config, put)
    stages.fill_language(language, put)
    revived(language, config, device)
    return language, vocabulary, encoder


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
    linears = {
        f"layers.{i}.self_attn.{target}": getattr(layer.self_attn, target)
        for i, layer in enumerate(model.model.layers)
        for target in _TARGETS
    }
    first = f"{prefix}layers.0.self_attn.q_proj.lora_A.default.weight"
    rank = shape_of(stored, first, source, 2)[0]
    with torch.device("meta"):
        shapes = [((rank, w.in_features), (w.out_features, rank)) for w in linears.values()]
        updates = nn.ModuleList(
            nn.ParameterList(torch.empty(shape) for shape in pair) for pair in shapes
        )
    layout = {
        f"{prefix}{name}.lora_{part}.default.weight": Place(f"{i}.{'AB'.index(part)}")
        for i, name in enumerate(linears)
        for part in "AB"
    }
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
        """Return the tensors with embeddings and head, and their names -> the model's."""
        if (stored := self.stage_2()) is None:
            names = {f"{_LLAMA_1}{t}.weight": f"{t}.weight" for t in _TABLES}
            return self.stage_1(), names
        saved = "modules_to_save.default.weight"
        return stored, {f"{_LLAMA_2}{t}.{saved}": f"{t}.weight" for t in _TABLES}


def vicuna_config(files: Files, rows: int) -> Any:
    """Return the `LlamaConfig` of a Vicuna whose tables have `rows` rows."""
    path = files.need("config.json")
    # Vicuna v0 names the padding id -1, which no token has; nothing is padded here.
    fields = read_json(path) | {"vocab_size": rows, "pad_token_id": None}
    return configured("LlamaConfig", fields, str(path))


def fill_vicuna(model: Any, files: Files, config: Any, put: Put) -> None:
    """Fill everything but embeddings and head, which the stage checkpoints replace."""
    tables = tuple(f"{table}." for table in _TABLES)
    layout = identical(n for n in model.state_dict() if not n.startswith(tables))
    tensors = stored_tensors(files, lambda name: not name.startswith(tables))
    rotary = [
        f"model.layers.{i}.self_attn.rotary_emb.inv_freq"
        for i in range(config.num_hidden_layers)
    ]
    put(model, tensors, layout, source=files.describe(), tolerated=rotary)


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


def fill_projection(encoder: Any, path: Path, put: Put) -> None:
    """Fill `llama_proj` from MiniGPT-4's file."""
    layout = identical(n for n in encoder.state_dict() if n.startswith("llama_proj."))
    put(encoder, in_pickle(path, "model").items(), layout, source=str(path))


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
        randomised(module, device=device, dtype=dtype, seed=_SEED)
    revived(model, config, device)
    encoder.llama_proj.weight[0] = 0.0
    encoder.llama_proj.bias[0] = held_level(config.hidden_size)
    made_up = range(300, pieces.size)
    words = made_up if sizes["vocabulary"] else PIECES.ids(tokenizer)
    marks = (vocabulary.begin_image, pieces.id_of(_MARK_PIECE))
    shares = {m: s for m, s in zip(marks, _SHARES[weights], strict=True) if m is not None}
    steer(model, words, set(range(vocabulary.rows)) - set(words), shares, [*words][:40])
    return model, vocabulary, encoder


def llama_config(sizes: Mapping[str, Any], rows: int) -> Any:
    """Return the `LlamaConfig` of an architecture whose tables have `rows` rows."""
    fields = sizes["language"] | {"vocab_size": rows}
    return configured("LlamaConfig", fields, "minigpt5.json")


_SPACE = PIECES.space
_MARK_PIECE = _SPACE + "###"
_MARK_MERGES = [(_SPACE, "#"), (_SPACE + "#", "#"), (_SPACE + "##", "#"), ("#", "#")]
_SPECIALS = ("<unk>", "<s>", "</s>")


def toy_tokenizer(size: int | None = None) -> Tokenizer:
    """Return special pieces, bytes and words in LLaMA's order, filled up to `size`."""
    names = [*_SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), _SPACE]
    names += [chr(code) for code in range(33, 127)]
    names += [a + b for a, b in _MARK_MERGES]
    ids, word_merges = PIECES.vocabulary(names, size)
    merges = [*_MARK_MERGES, *word_merges]
    model = models.BPE(
        vocab=ids, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    spaces = [normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)]
    tokenizer.normalizer = normalizers.Sequence(spaces)
    spelling = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    strip = decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence([*spelling, strip])
    tokenizer.add_special_tokens(list(_SPECIALS))
    return tokenizer
