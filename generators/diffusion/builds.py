"""Pipelines without a checkpoint: full size with random values, or toy size and seeded.

They read text with small tokenizers, because published vocabularies are not available
without a download.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import diffusers
import torch
import transformers
from accelerate import init_empty_weights
from diffusers.pipelines.stable_diffusion.safety_checker import (
    StableDiffusionSafetyChecker,
)
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel

from plait.generators.diffusion.designs import (
    DESIGNS,
    Architecture,
    PipelineDesign,
    TokenizerKind,
)
from plait.generators.loading.strict import assign

SEED = 20241014

_FLOAT32 = {"T5EncoderModel": {"wo"}}
"""Submodules that transformers keeps in float32 beside float16 ones."""


def build_pipeline(
    architecture: Architecture,
    weights: Literal["dummy", "tiny"],
    device: torch.device,
    dtype: torch.dtype,
    without: Collection[str] = (),
) -> Any:
    """Return the pipeline of an architecture with `dummy` or `tiny` weights on `device`.

    It lacks the components `without`.

    Dummy values are sampled on the device in `dtype`, tensor by tensor, so the device
    holds no second copy. Tiny values are sampled on the CPU in float32, so they are the
    same everywhere.
    """
    design = DESIGNS[architecture]
    parts: dict[str, Any] = {"scheduler": _scheduler(design.scheduler)}
    # All toy modules are sampled in a row, so none changes where another is left out.
    tiny = tiny_modules(design) if weights == "tiny" else {}
    for name in design.modules:
        if name in without:
            continue
        if name in tiny:
            parts[name] = tiny[name].to(device)
        else:
            parts[name] = materialise(empty_module(design, name), device, dtype)
    for name, tokenizer in design.tokenizers.items():
        if name not in without:
            parts[name] = small_tokenizer(tokenizer)
    if "safety_checker" in parts:
        side = parts["safety_checker"].config.vision_config.image_size
        parts["feature_extractor"] = transformers.CLIPImageProcessor(
            size={"shortest_edge": side}, crop_size=side
        )
    return assemble(design, parts)


def assemble(design: PipelineDesign, parts: Mapping[str, Any]) -> Any:
    """Return the pipeline made of `parts`; components that it lacks are None."""
    kind = getattr(diffusers, design.pipeline)
    absent: dict[str, None] = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.default is parameter.empty:
            absent[name] = None
    return kind(**{**absent, **design.arguments, **parts})


def tiny_modules(design: PipelineDesign) -> dict[str, torch.nn.Module]:
    """Return the modules at toy size, float32 on the CPU, always with the same values."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return {name: _instance(design, name, tiny=True).eval() for name in design.modules}


def empty_module(design: PipelineDesign, name: str) -> torch.nn.Module:
    """Return a full-size module, its parameters on the meta device and its buffers real."""
    with init_empty_weights(include_buffers=False):
        module = _instance(design, name, tiny=False)
    return _tied(module)


def materialise(
    module: torch.nn.Module, device: torch.device, dtype: torch.dtype
) -> torch.nn.Module:
    """Return `module` with random values on `device` in the place of meta parameters."""
    generator = torch.Generator(device).manual_seed(SEED)
    exact = _FLOAT32.get(type(module).__name__, set()) if dtype == torch.float16 else set()
    for name, meta in list(module.named_parameters()):
        precision = torch.float32 if exact & set(name.split(".")) else dtype
        value = torch.empty(meta.shape, device=device, dtype=precision)
        _fill(name, value, generator)
        assign(module, name, value)
    for name, buffer in list(module.named_buffers()):
        precision = dtype if buffer.is_floating_point() else buffer.dtype
        assign(module, name, buffer.to(device, precision))
    return _tied(module).eval()


def _tied(module: torch.nn.Module) -> torch.nn.Module:
    """Return `module` with one tensor where several layers share it."""
    if isinstance(module, transformers.PreTrainedModel):
        module.tie_weights()
    return module


def _fill(name: str, value: torch.Tensor, generator: torch.Generator) -> None:
    """Sample matrices and convolutions with unit gain; norms are 1 and biases 0.

    `*_weights` are the safety checker's thresholds on a cosine: at 1 it blocks nothing.
    """
    if value.ndim >= 2:
        fan_in = math.prod(value.shape[1:])
        value.normal_(0.0, fan_in**-0.5, generator=generator)
    else:
        value.fill_(1.0 if name.endswith(("weight", "weights")) else 0.0)


def _instance(design: PipelineDesign, name: str, tiny: bool) -> torch.nn.Module:
    kind = module_class(design.modules[name][0])
    config = dict(design.config(name, tiny))
    if not issubclass(kind, transformers.PreTrainedModel):
        return kind(**config)  # type: ignore[no-any-return]
    if kind.config_class is transformers.CLIPTextConfig:
        config |= CLIP_IDS
    if kind.config_class is transformers.Qwen2_5_VLConfig:
        config |= QWEN_VL_IDS
    module = kind(kind.config_class(**config))
    if kind is transformers.GlmImageForConditionalGeneration:
        _sample_codes(module)
    return module  # type: ignore[no-any-return]


def _sample_codes(prior: Any) -> None:
    """Sample as GLM-Image's deployment in vLLM-Omni (deploy/glm_image.yaml), codes alone.

    Random weights would end an image early.
    """
    codes = prior.config.vq_config.num_embeddings
    words = prior.lm_head.out_features
    prior.generation_config.update(
        do_sample=True,
        temperature=0.9,
        top_p=0.75,
        top_k=words,
        suppress_tokens=list(range(codes, words)),
    )


def module_class(name: str) -> Any:
    """Return the class of that name in diffusers or transformers."""
    if name == "StableDiffusionSafetyChecker":
        return StableDiffusionSafetyChecker
    return getattr(diffusers if hasattr(diffusers, name) else transformers, name)


def _scheduler(config: Mapping[str, Any]) -> Any:
    return getattr(diffusers, config["_class_name"]).from_config(dict(config))


CLIP_IDS = {"bos_token_id": 512, "eos_token_id": 513, "pad_token_id": 513}
"""Where a CLIP pools that reads by the small tokenizer."""
_QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>"]
_QWEN += ["<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
QWEN_VL_IDS = {"vision_start_token_id": 259, "vision_end_token_id": 260} | {
    "image_token_id": 261,
    "video_token_id": 262,
}
"""Of the marks around an image in the small tokenizer."""
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
_CHAT = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""


def small_tokenizer(kind: TokenizerKind) -> Any:
    """Return a tokenizer of the published class with one token for each character.

    Its special tokens and its length (`model_max_length`) are those of the published files.
    """
    letters = sorted(ByteLevel.alphabet())
    if kind == "clip":
        ends = [letter + "</w>" for letter in letters]
        # CLIP pools at the largest id when its config has the old end token.
        vocabulary = _number([*letters, *ends, "<|startoftext|>", "<|endoftext|>"])
        return transformers.CLIPTokenizer(vocabulary, [], model_max_length=77)
    if kind == "t5":
        special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -10.0)]
        ascii_pieces = [(piece, -2.0) for piece in (_SPACE, *map(chr, range(33, 127)))]
        pieces = [*special, *ascii_pieces]
        return transformers.T5Tokenizer(pieces, extra_ids=0, model_max_length=512)
    if kind == "qwen":
        return transformers.Qwen2Tokenizer(
            vocab=_number([*letters, *_QWEN]),
            merges=[],
            eos_token="<|im_end|>",
            extra_special_tokens=_QWEN[1:],
            chat_template=_CHAT,
            model_max_length=131072,
        )
    if kind == "byt5":
        return transformers.ByT5Tokenizer()
    if kind == "glm-image":
        return _glm_image_processor(letters)
    if kind == "qwen-vl":
        videos = transformers.Qwen2VLVideoProcessor()
        images = transformers.Qwen2VLImageProcessor()
        tokens = small_tokenizer("qwen")
        return transformers.Qwen2VLProcessor(images, tokens, videos)
    if kind == "pixtral":
        return _pixtral_processor(letters)
    special_tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    octets = [f"<0x{byte:02X}>" for byte in range(256)]
    return transformers.GemmaTokenizer(
        vocab=_number([*special_tokens, *octets, _SPACE]),
        merges=[],
        add_bos_token=True,
        model_max_length=8192,
    )


_PIXTRAL = ["<s>", "</s>", "<pad>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]"]
_PIXTRAL += ["[/SYSTEM_PROMPT]", "[IMG]", "[IMG_BREAK]", "[IMG_END]"]
_PIXTRAL_CHAT = """{{- '<s>' -}}
{%- for message in messages -%}
{%- set mark = 'SYSTEM_PROMPT' if message.role == 'system' else 'INST' -%}
{{ '[' + mark + ']' }}
{%- for part in message.content -%}
{{ '[IMG]' if part.type == 'image' else part.text }}
{%- endfor -%}
{{ '[/' + mark + ']' }}
{%- endfor -%}"""


def _pixtral_processor(letters: Sequence[str]) -> Any:
    """Return the processor of Mistral Small, which reads FLUX.2's prompts, at toy size."""
    core = Tokenizer(models.BPE(vocab=_number(letters), merges=[]))
    core.pre_tokenizer = ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(_PIXTRAL)
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        padding_side="left",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        extra_special_tokens=_PIXTRAL[3:],
    )
    images = transformers.PixtralImageProcessor()
    return transformers.PixtralProcessor(images, words, chat_template=_PIXTRAL_CHAT)


_GLM_IMAGE_CHAT = """{%- for message in messages -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}<|dit_token_64|><|image|><|dit_token_65|>
{%- else -%}{{ part.text }}
{%- endif -%}
{%- endfor -%}
{%- endfor -%}"""


def _glm_image_processor(letters: Sequence[str]) -> Any:
    """Return the processor of GLM-Image's prior at toy size.

    As in the published one, image codes have the first ids, then an image's start and end.
    """
    codes = [f"<|dit_token_{i}|>" for i in range(66)]
    core = Tokenizer(models.BPE(vocab=_number([*codes, *letters]), merges=[]))
    core.pre_tokenizer = ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    grid = ["<|image|>", "<sop>", "<eop>", "<|endoftext|>"]
    core.add_special_tokens([*codes[64:], *grid])
    roles = ("image_token", "grid_bos_token", "grid_eos_token")
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        padding_side="left",
        bos_token=codes[64],
        eos_token=codes[65],
        pad_token=grid[3],
        extra_special_tokens=dict(zip(roles, grid, strict=False)),
    )
    images = transformers.GlmImageImageProcessor(
        patch_size=16, merge_size=1, temporal_patch_size=1, min_pixels=1024, max_pixels=4096
    )
    return transformers.GlmImageProcessor(images, words, chat_template=_GLM_IMAGE_CHAT)


def _number(tokens: Sequence[str]) -> dict[str, int]:
    return {token: i for i, token in enumerate(tokens)}
