"""The text encoders and checkers of the published text-to-image models (`parts`)."""

from __future__ import annotations

from dataclasses import replace

from generators.diffusion.parts import TINY_VOCABULARY, ModuleDesign

# Where CLIP pools; `generators.diffusion.builds` gives its special tokens these ids.
_CLIP_IDS = {"bos_token_id": 512, "eos_token_id": 513, "pad_token_id": 513}

_TINY_ENCODER = {
    "vocab_size": TINY_VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "projection_dim": 32,
}

# openai/clip-vit-large-patch14, text tower.
CLIP_L = ModuleDesign(
    "CLIPTextModel",
    {
        "vocab_size": 49408,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "projection_dim": 768,
        "hidden_act": "quick_gelu",
        **_CLIP_IDS,
    },
    _TINY_ENCODER,
)

# laion/CLIP-ViT-H-14-laion2B-s32B-b79K, text tower without its last layer, as
# Stable Diffusion 2 reads it (`FrozenOpenCLIPEmbedder` of stabilityai/stablediffusion).
CLIP_H = ModuleDesign(
    "CLIPTextModel",
    {
        "vocab_size": 49408,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 23,
        "projection_dim": 512,
        "hidden_act": "gelu",
        **_CLIP_IDS,
    },
    _TINY_ENCODER,
)

# laion/CLIP-ViT-bigG-14-laion2B-39B-b160k, text tower.
CLIP_BIG_G = ModuleDesign(
    "CLIPTextModelWithProjection",
    {
        "vocab_size": 49408,
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_attention_heads": 20,
        "num_hidden_layers": 32,
        "projection_dim": 1280,
        "hidden_act": "gelu",
        **_CLIP_IDS,
    },
    _TINY_ENCODER,
)

# google/t5-v1_1-xxl, encoder.
T5_XXL = ModuleDesign(
    "T5EncoderModel",
    {
        "vocab_size": 32128,
        "d_model": 4096,
        "d_kv": 64,
        "d_ff": 10240,
        "num_layers": 24,
        "num_heads": 64,
        "feed_forward_proj": "gated-gelu",
    },
    {
        "vocab_size": TINY_VOCABULARY,
        "d_model": 64,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 4,
    },
)

# CompVis/stable-diffusion-safety-checker, on the vision tower of CLIP ViT-L/14.
SAFETY_CHECKER = ModuleDesign(
    "StableDiffusionSafetyChecker",
    {
        "vision_config": {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "patch_size": 14,
            "image_size": 224,
        },
        "projection_dim": 768,
    },
    {
        "vision_config": {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "patch_size": 16,
            "image_size": 64,
        },
        "projection_dim": 32,
    },
)

_TINY_LLM = {
    "vocab_size": TINY_VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    # The usual 0.02 would leave a prompt almost no trace in two layers.
    "initializer_range": 0.2,
}

# Qwen/Qwen3-4B, as the text encoders of FLUX.2-klein-4B and Z-Image-Turbo.
QWEN3_4B = ModuleDesign(
    "Qwen3ForCausalLM",
    {
        "vocab_size": 151936,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "tie_word_embeddings": True,
    },
    # FLUX.2-klein reads the states after the layers 9, 18 and 27.
    {**_TINY_LLM, "num_hidden_layers": 28},
)
QWEN3_4B_STATES = replace(
    QWEN3_4B, name="Qwen3Model", tiny={**QWEN3_4B.tiny, "num_hidden_layers": 3}
)
"""Without its output layer; Z-Image reads the states before its last layer."""

# Qwen/Qwen2.5-VL-7B-Instruct, of which Qwen-Image reads the last states.
QWEN25_VL_7B = ModuleDesign(
    "Qwen2_5_VLForConditionalGeneration",
    {
        "text_config": {
            "vocab_size": 152064,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "max_position_embeddings": 128000,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1000000.0,
                "mrope_section": [16, 24, 24],
            },
        },
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": 3584,
            "patch_size": 14,
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
        },
        "tie_word_embeddings": False,
    },
    {
        "text_config": {
            "vocab_size": TINY_VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "initializer_range": 0.2,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1000000.0,
                "mrope_section": [2, 1, 1],
            },
        },
        "vision_config": {
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_heads": 2,
            "out_hidden_size": 32,
            "fullatt_block_indexes": [0],
        },
    },
)

# google/gemma-2-2b-it without its output layer, as SANA ships it.
GEMMA2_2B = ModuleDesign(
    "Gemma2Model",
    {
        "vocab_size": 256000,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
    },
    {
        **_TINY_LLM,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
    },
)
