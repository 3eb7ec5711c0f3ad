"""Tiny vision-language checkpoints on disk, as they are published, and images."""

import functools
import json
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
from PIL import Image as Pillow
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    GotOcr2ImageProcessor,
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLProcessor,
    InternVLVideoProcessor,
    PreTrainedTokenizerFast,
)

from plait.generators.architectures import random_weights
from plait.generators.architectures.random_weights import tokenizer
from plait.generators.diffusion.builds import build_pipeline
from plait.generators.document import Image
from plait.generators.images import encode
from plait.generators.mini.table import SHIPPED
from plait.pipelines.presets import lvlm
from plait.pipelines.vlm.decoding import by_generate
from plait.pipelines.vlm.stage import VisionLanguageModel

TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


def picture(width: int, height: int, seed: int) -> Image:
    """Coloured noise."""
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8)
    return encode(Pillow.fromarray(pixels))


RED, GREEN, BLUE = picture(60, 40, 1), picture(230, 90, 2), picture(33, 150, 3)


class GenerateStage(VisionLanguageModel):
    """By `generate`, as models are decoded that streams do not serve."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._write = partial(by_generate, self._model, self.settings)


def save_tiny(folder: Path, name: str = "qwen2-vl-7b") -> Path:
    """The tiny form of a published model, saved with its processor."""
    model, processor = random_weights.tiny(lvlm(name).model)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@functools.cache
def checkpoint(name: str) -> Path:
    """A tiny checkpoint of this family, saved once."""
    if name == "mini":
        return SHIPPED / "qwen2-vl"
    return SAVERS[name](Path(mkdtemp(prefix="checkpoint-")) / name)


@functools.cache
def library(name: str) -> tuple[Any, Any]:
    """The model and the processor of a tiny checkpoint, by transformers alone."""
    folder = checkpoint(name)
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    return model, AutoProcessor.from_pretrained(folder)


def loaded(folder: Path | str, kind: Any = VisionLanguageModel, **settings: Any) -> Any:
    """The stage of a checkpoint in float32, or of the family's own one."""
    folder = checkpoint(folder) if isinstance(folder, str) else folder
    options = {"dtype": "float32", "device": "cpu", "max_new_tokens": 16, **settings}
    return kind(model=str(folder), **options)


shared = functools.cache(loaded)
"""A stage that several tests may call but not change."""


def seeded(kind: Any, config: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind(config)


INTERNVL_TOKENS = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}
INTERNVL_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- for part in message.content -%}
{{ '<IMG_CONTEXT>\\n' if part.type == 'image' else part.text }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""


def save_internvl(folder: Path) -> Path:
    """A toy InternVL (OpenGVLab/InternVL3-*-hf): a model that streams do not serve.

    Its tokenizer and its template both write the first token, as Llama's do.
    """
    specials = ["<s>", "<|im_start|>", "<|im_end|>", *INTERNVL_TOKENS.values()]
    core = tokenizer(specials).backend_tokenizer
    bos = ("<s>", core.token_to_id("<s>"))
    core.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[bos])
    own = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="<|im_end|>",
        extra_special_tokens=INTERNVL_TOKENS,
    )
    sizes = {n: size for n, size in TEXT.items() if n != "num_key_value_heads"}
    ids = {"vocab_size": len(own), "bos_token_id": None, "eos_token_id": own.eos_token_id}
    config = InternVLConfig(
        vision_config=sizes
        | {"hidden_size": 32, "intermediate_size": 64}
        | {"image_size": [56, 56], "patch_size": [14, 14]},
        text_config=TEXT | ids | {"model_type": "qwen2", "initializer_range": 0.4},
        image_token_id=own.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=4,
    )
    seeded(InternVLForConditionalGeneration, config).save_pretrained(folder)
    side = {"height": 56, "width": 56}
    InternVLProcessor(
        GotOcr2ImageProcessor(size=side, crop_to_patches=True, max_patches=4),
        own,
        InternVLVideoProcessor(size=side),
        image_seq_length=4,
        chat_template=INTERNVL_TEMPLATE,
    ).save_pretrained(folder)
    return folder


_DIFFUSERS = {"q_proj": "to_q", "k_proj": "to_k", "v_proj": "to_v", "o_proj": "to_out"}
_DIFFUSERS |= {"q_norm": "norm_q", "k_norm": "norm_k"}


def save_cosmos3(folder: Path) -> Path:
    """A toy Cosmos3: one checkpoint that reads by transformers and draws by diffusers.

    Tensors have the names that transformers' conversion mapping reads, and one index; the
    drawing transformer holds those of the reader's language model too.
    """
    model, processor = random_weights.tiny("nvidia/Cosmos3-Nano")
    text, tensors = model.config.get_text_config(), {}
    for name, tensor in model.state_dict().items():
        *parents, module, kind = name.removeprefix("model.").split(".")
        parents = parents[1:] if parents else parents
        tensors[".".join([*parents, _DIFFUSERS.get(module, module), kind])] = tensor
    drawn = build_pipeline("cosmos3", "tiny", torch.device("cpu"), torch.float32)
    same = ("hidden_size", "intermediate_size", "num_hidden_layers", "head_dim")
    same += ("num_attention_heads", "num_key_value_heads", "vocab_size")
    sizes = {name: getattr(text, name) for name in same} | {"rope_axes_dim": [8, 4, 4]}
    generator = seeded(
        lambda config: type(drawn.transformer).from_config(config),
        dict(drawn.transformer.config) | sizes,
    )
    of_reader = {n: t for n, t in tensors.items() if n in generator.state_dict()}
    generator.load_state_dict(of_reader, strict=False)
    drawn.register_modules(transformer=generator, text_tokenizer=processor.tokenizer)
    drawn.text_tokenizer.chat_template = processor.chat_template
    drawn.save_pretrained(folder)
    seeing = {n: t for n, t in tensors.items() if n not in of_reader}
    (folder / "vision_encoder").mkdir()
    save_file(seeing, folder / "vision_encoder" / "model.safetensors")
    places = dict.fromkeys(
        generator.state_dict(), "transformer/diffusion_pytorch_model.safetensors"
    )
    places |= dict.fromkeys(seeing, "vision_encoder/model.safetensors")
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


SAVERS = {
    "qwen2": functools.partial(save_tiny, name="qwen2-vl-72b"),
    "qwen2.5": functools.partial(save_tiny, name="qwen2.5-vl-72b"),
    "qwen3": functools.partial(save_tiny, name="qwen3-vl-32b"),
    "gemma3": functools.partial(save_tiny, name="gemma-3-27b"),
    "llava": functools.partial(save_tiny, name="llava-34b"),
    "internvl": save_internvl,
    "cosmos3": save_cosmos3,
}
FAMILIES = (*SAVERS, "mini")
