"""A tiny Janus checkpoint in transformers' layout, random to the last bias."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import torch
from frozen import filled, write_json
from paths import DATA
from tokenizers import processors
from transformers import (
    GenerationConfig,
    JanusForConditionalGeneration,
    JanusImageProcessorPil,
    JanusProcessor,
    PreTrainedTokenizerFast,
)

from plait.generators.architectures import config_of
from plait.generators.janus import models

# As deepseek-community/Janus-Pro-1B has it.
CHAT_TEMPLATE = (DATA / "janus_chat_template.jinja").read_text().rstrip("\n")


def processor() -> Any:
    core = models.toy_tokenizer(None)
    bos = (models.BOS, core.token_to_id(models.BOS))
    core.post_processor = processors.TemplateProcessing(f"{models.BOS} $A", None, [bos])
    marks = {"image": models.IMAGE, "boi": models.BEGIN_IMAGE, "eoi": models.END_IMAGE}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=models.BOS,
        eos_token=models.EOS,
        pad_token=models.PAD,
        padding_side="left",
        extra_special_tokens={f"{name}_token": token for name, token in marks.items()},
    )
    halves = [0.5, 0.5, 0.5]
    images = JanusImageProcessorPil(
        size={"height": 64, "width": 64}, image_mean=halves, image_std=halves
    )
    return JanusProcessor(
        images,
        tokenizer,
        chat_template=CHAT_TEMPLATE,
        use_default_system_prompt=True,
        num_image_tokens=64,
    )


@functools.cache
@torch.inference_mode(False)  # whoever asks first, weights of which gradients may be taken
def model(tied: bool = False) -> Any:
    sizes = config_of("janus-pro-1b", tiny=True) | {"tie_word_embeddings": tied}
    words = models.toy_tokenizer(None)
    made = JanusForConditionalGeneration(models.random_config(sizes, words))
    made.generation_config = GenerationConfig(
        pad_token_id=words.token_to_id(models.PAD),
        bos_token_id=words.token_to_id(models.BOS),
        eos_token_id=words.token_to_id(models.EOS),
        generation_kwargs={"boi_token_id": words.token_to_id(models.BEGIN_IMAGE)},
    )
    return filled(made, 27)


def checkpoint(folder: Path, tied: bool = False) -> Path:
    """Write it in two shards, with its processor."""
    model(tied).save_pretrained(folder, max_shard_size="2500KB")
    processor().save_pretrained(folder)
    if not tied:
        # transformers 4 kept the images' part in a file of its own.
        path = folder / "processor_config.json"
        whole = json.loads(path.read_text())
        write_json(folder / "preprocessor_config.json", whole.pop("image_processor"))
        write_json(path, whole)
    return folder
