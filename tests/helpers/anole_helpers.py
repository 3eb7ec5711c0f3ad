"""Anole's checkpoints and prompts on which `anole_upstream.npz` holds results.

The arrays were made by the original program (GAIR-NLP/anole@af563fa) on the files that
`checkpoint` writes, in float32 on a CPU. Patched there: the number of codes (64 for
1024, side 8 for 32, 64 pixels for 512), cuda and bfloat16, no CUDA graphs, plain torch
for the three xformers functions, and the random number of each sampled token, which is
found as the first id whose cumulative probability exceeds it.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from frozen import (
    Draws,
    Shape,
    State,
    every,
    picture,
    random_state,
    save_shards,
    write_json,
)
from picture_helpers import png
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from plait.generators.anole.models import AnoleLanguage, random_language
from plait.generators.architectures import config_of
from plait.generators.document import Image, Text

VQ = dict(config_of("anole", tiny=True)["vq"])


@functools.cache
def language() -> AnoleLanguage:
    return random_language("tiny", torch.device("cpu"), torch.float32)


def taming_shapes(config: dict[str, Any]) -> dict[str, Shape]:
    """Names and shapes of a taming-transformers VQModel, written down from its source."""
    shapes: dict[str, Shape] = {}
    base, z, e = config["base_channels"], config["latent_channels"], config["embed_dim"]
    widths = [base * m for m in config["channel_multiplier"]]

    def conv(name: str, inputs: int, outputs: int, kernel: int = 3) -> None:
        shapes[f"{name}.weight"] = (outputs, inputs, kernel, kernel)
        shapes[f"{name}.bias"] = (outputs,)

    def norm(name: str, width: int) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (width,)

    def resnet(name: str, inputs: int, outputs: int) -> None:
        norm(f"{name}.norm1", inputs)
        conv(f"{name}.conv1", inputs, outputs)
        norm(f"{name}.norm2", outputs)
        conv(f"{name}.conv2", outputs, outputs)
        if inputs != outputs:
            conv(f"{name}.nin_shortcut", inputs, outputs, 1)

    def middle(side: str, width: int) -> None:
        resnet(f"{side}.mid.block_1", width, width)
        resnet(f"{side}.mid.block_2", width, width)
        norm(f"{side}.mid.attn_1.norm", width)
        for name in ("q", "k", "v", "proj_out"):
            conv(f"{side}.mid.attn_1.{name}", width, width, 1)

    conv("encoder.conv_in", config["in_channels"], base)
    width = base
    for level, out in enumerate(widths):
        for block in range(config["num_res_blocks"]):
            resnet(f"encoder.down.{level}.block.{block}", width, out)
            width = out
        if level < len(widths) - 1:
            conv(f"encoder.down.{level}.downsample.conv", out, out)
    middle("encoder", width)
    norm("encoder.norm_out", width)
    conv("encoder.conv_out", width, z)

    conv("decoder.conv_in", z, width)
    middle("decoder", width)
    for level in reversed(range(len(widths))):
        for block in range(config["num_res_blocks"] + 1):
            resnet(f"decoder.up.{level}.block.{block}", width, widths[level])
            width = widths[level]
        if level:
            conv(f"decoder.up.{level}.upsample.conv", width, width)
    norm("decoder.norm_out", width)
    conv("decoder.conv_out", width, 3)

    conv("quant_conv", z, e, 1)
    conv("post_quant_conv", e, z, 1)
    shapes["quantize.embedding.weight"] = (config["num_embeddings"], e)
    return shapes


def taming_tensors(config: dict[str, Any] = VQ) -> State:
    return random_state(taming_shapes(config).items(), 8)


def save_hf(
    folder: Path, source: AnoleLanguage, taming: State, vq: dict[str, Any] = VQ
) -> Path:
    """The layout of leloy/Anole-7b-v0.1-hf: two shards, an index, config, tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    vqmodel = {f"model.vqmodel.{name}": value for name, value in taming.items()}
    save_shards(folder, every(source.model.state_dict() | vqmodel, 2))
    source.tokenizer.save(str(folder / "tokenizer.json"))
    sized = source.model.config
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    keys += ("num_attention_heads", "num_key_value_heads", "max_position_embeddings")
    config = {k: getattr(sized, k) for k in keys} | {
        "architectures": ["ChameleonForConditionalGeneration"],
        "model_type": "chameleon",
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "swin_norm": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "vocabulary_map": source.tokenizer.get_vocab(with_added_tokens=True),
        "vq_config": dict(vq) | {"model_type": "chameleon_vqgan", "dropout": 0.0},
    }
    write_json(folder / "config.json", config)
    return folder


def checkpoint(folder: Path) -> Path:
    """The layout of GAIR/Anole-7b-v0.1."""
    model, tokens = folder / "models" / "7b", folder / "tokenizer"
    model.mkdir(parents=True)
    tokens.mkdir()
    torch.save(state(), model / "consolidated.pth")
    sizes = {"dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "multiple_of": 64}
    sizes |= {"ffn_dim_multiplier": 0.75, "norm_eps": 1e-5, "rope_theta": 10000.0}
    sizes |= {"qk_normalization": True, "swin_norm": False}
    write_json(model / "params.json", {"model": sizes, "model_parallel_size": 1})
    rows = tokenizer().get_vocab_size()
    write_json(model / "consolidate_params.json", {"vocab_size": rows})
    tokenizer().save(str(tokens / "text_tokenizer.json"))
    logged = {"loss.logvar": torch.zeros(1)}
    lightning = {"state_dict": taming_tensors() | logged, "global_step": 7}
    torch.save(lightning, tokens / "vqgan.ckpt")
    kept = ("resolution", "in_channels", "num_res_blocks")
    vq = {name: VQ[name] for name in kept} | {"out_ch": 3, "attn_resolutions": []}
    vq |= {"double_z": VQ["double_latent"], "z_channels": VQ["latent_channels"]}
    vq |= {"ch": VQ["base_channels"], "ch_mult": VQ["channel_multiplier"]}
    about = {"embed_dim": VQ["embed_dim"], "n_embed": VQ["num_embeddings"], "ddconfig": vq}
    about["lossconfig"] = {"target": "a.module.that.is.not.There"}
    write_json(tokens / "vqgan.yaml", {"model": {"target": "taming", "params": about}})
    return folder


RUNS = [
    {"seed": 3},
    {"seed": 4},
    {"seed": 5, "context": 300},
    {"seed": 6, "max_text_tokens": 12},
    {"seed": 22, "context": 165},
    {"seed": 0, "text_greedy": True, "image_greedy": True, "context": 420},
]
"""Settings of the runs for each prompt."""

HEADS, WIDTH, HIDDEN, LAYERS = 4, 64, 128, 2


def tokenizer() -> Tokenizer:
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    digits = ["".join("ABCDEFGHIJ"[int(d)] for d in str(c)) for c in range(128)]
    names += [f"IMGIMG{d}Z" for d in digits]
    names += ["<eoss>", "<racm3:break>", "<reserved08706>"]
    names += sorted(pre_tokenizers.ByteLevel.alphabet())
    model = models.BPE(vocab={n: i for i, n in enumerate(names)}, merges=[])
    made = Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([n for n in names if n.startswith("<") and len(n) > 1])
    return made


def state() -> dict[str, Any]:
    """A language model in Meta's layout that begins images and ends now and then."""
    normal, vocab = Draws(7).normal, tokenizer().get_vocab()
    made: dict[str, Any] = {"tok_embeddings.weight": normal(len(vocab), WIDTH, scale=1.0)}
    made["tok_embeddings.weight"][:, 0] = 4.0
    for layer in range(LAYERS):
        weights = {f"attention.w{n}": normal(WIDTH, WIDTH) for n in "qkvo"}
        weights["feed_forward.w1"] = normal(HIDDEN, WIDTH)
        weights["feed_forward.w2"] = normal(WIDTH, HIDDEN)
        weights["feed_forward.w3"] = normal(HIDDEN, WIDTH)
        weights["attention.wo"][0] = weights["feed_forward.w2"][0] = 0.0
        size = WIDTH // HEADS
        for name in ("attention.q_normalization", "attention.k_normalization"):
            weights[name] = 1 + normal(size, scale=0.3)
            made[f"layers.{layer}.{name}.bias"] = normal(size, scale=0.3)
        for name in ("attention_norm", "ffn_norm"):
            weights[name] = 1 + normal(WIDTH, scale=0.2)
            weights[name][0] = 0.0
        made |= {f"layers.{layer}.{n}.weight": w for n, w in weights.items()}
    made["norm.weight"] = 1 + normal(WIDTH, scale=0.2)
    made["norm.weight"][0] = 1.0
    made["output.weight"] = normal(len(vocab), WIDTH)
    made["output.weight"][:, 0] = 0.0
    for name, bias in (("<racm3:break>", 1.45), ("</s>", 0.9)):
        made["output.weight"][vocab[name]] = 0.0
        made["output.weight"][vocab[name], 0] = bias
    made["rope.freqs"] = torch.zeros(8)
    return made


PICTURES = {
    "wide": (100, 66, "RGB"),
    "tall": (53, 131, "RGB"),
    "clear": (90, 77, "RGBA"),
    "even": (64, 64, "RGB"),
}


def contents() -> list[list[Text | Image]]:
    """The prompts: text alone, text around two images, an image alone."""
    images = {name: png(picture(*about)) for name, about in PICTURES.items()}
    return [
        [Text("A bird in the house.")],
        [Text("First"), images["wide"], Text(" and then"), images["clear"], Text("go on")],
        [images["tall"]],
    ]


def codes() -> np.ndarray:
    """Codes of two images to be drawn: (2, 8, 8)."""
    return np.random.RandomState(9).randint(0, 128, (2, 8, 8)).astype(np.int32)
