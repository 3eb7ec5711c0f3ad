"""What the released programs of HPSv3 and EditReward compute, for one prompt at a time."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image as Pillow


def smart_size(width: int, height: int) -> tuple[int, int]:
    """`smart_resize` of both programs, of as many pixels as 256 tokens."""
    pixels = 256 * 28 * 28
    w, h = (max(28, round(side / 28) * 28) for side in (width, height))
    beta = math.sqrt(width * height / pixels)
    if w * h > pixels:
        w, h = (math.floor(side / beta / 28) * 28 for side in (width, height))
    elif w * h < pixels:
        w, h = (math.ceil(side / beta / 28) * 28 for side in (width, height))
    return w, h


def rewards_of(
    model: Any, processor: Any, images: Sequence[Pillow.Image], text: str, head: Any
) -> list[float]:
    """The outputs of a head, layers of weight and bias, at the token of the reward."""
    (special,) = processor.tokenizer.convert_tokens_to_ids(["<|Reward|>"])
    shown = [{"type": "image", "image": image} for image in images]
    turn = {"role": "user", "content": [*shown, {"type": "text", "text": text}]}
    batch = processor(
        text=processor.apply_chat_template([turn], add_generation_prompt=True),
        images=[image.resize(smart_size(*image.size)) for image in images],
        return_tensors="pt",
    )
    ids = batch["input_ids"]
    with torch.no_grad():
        embeds = model.get_input_embeddings()(ids)
        seen = model.model.visual(batch["pixel_values"], batch["image_grid_thw"])
        mask = (ids == model.config.image_token_id)[..., None].expand_as(embeds)
        embeds = embeds.masked_scatter(mask, seen.pooler_output)
        # No positions are given, so that all tokens are numbered one by one.
        states = model.model.language_model(inputs_embeds=embeds)[0]
        (rewards,) = states[ids == special]
        for i, (weight, bias) in enumerate(head):
            rewards = weight @ (rewards if i == 0 else rewards.relu()) + bias
    found: list[float] = rewards.tolist()
    return found
