"""The mini artists' text encoder: a small CLIP text tower with a tokenizer of its own.

It is trained before the U-Net, by a head that asks it what stands where: a U-Net alone
teaches it places only after thousands of steps. Then it stays as it is, so that prompts are
encoded once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers.pre_tokenizers import ByteLevel
from torch import nn
from transformers import AutoTokenizer, CLIPTextConfig, CLIPTextModel

from benchmarks.miniature.training.artist.captions import caption
from benchmarks.miniature.training.labels import LOOKS, labels_of
from benchmarks.miniature.training.loop import Trainer, TrainingPlan
from generators.diffusion.tokenizers import small_tokenizer
from scorers.truth.scene import (
    BACKGROUNDS,
    PLACES,
    Scene,
    Split,
    random_scene,
)

LENGTH = 64
"""Tokens of a prompt with start and end: two steps of two items each fit."""
_VOCABULARY = 1000
_TEXTS = 4000
READING = TrainingPlan(steps=800, rate=2e-3, warmup=50, average=0.99, seed=2)
BATCH = 64

WIDTH = 96


def prompt_tokenizer() -> Any:
    """A CLIP tokenizer in which each word of the captions is one token.

    Other text is spelled out in bytes.
    """
    rng = random.Random(21)
    scenes = [random_scene(rng, "train") for _ in range(_TEXTS)]
    texts = [caption(s, rng, rng.choice(scenes)) for s in scenes]
    trained = small_tokenizer("clip").train_new_from_iterator(
        texts, _VOCABULARY, initial_alphabet=ByteLevel.alphabet()
    )
    trained.model_max_length = LENGTH
    return trained


def stored_tokenizer(folder: Path) -> Any:
    """The tokenizer in `folder`, made and written there if there is none.

    Training one numbers some tokens at random, so that an encoder must keep its own.
    """
    if not folder.exists():
        prompt_tokenizer().save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def text_encoder(tokenizer: Any) -> CLIPTextModel:
    """The untrained text tower."""
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=3,
        num_attention_heads=4,
        projection_dim=WIDTH,
        max_position_embeddings=LENGTH,
        hidden_act="gelu",
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return CLIPTextModel(config)


def token_ids(tokenizer: Any, texts: Sequence[str]) -> torch.Tensor:
    """int64 (texts, LENGTH), padded and cut as the pipelines of diffusers do."""
    ids: torch.Tensor = tokenizer(
        list(texts),
        padding="max_length",
        max_length=LENGTH,
        truncation=True,
        return_tensors="pt",
    ).input_ids
    return ids


class SceneHead(nn.Module):
    """Tells what a prompt says of each place, from the vectors of its tokens."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.questions = nn.Parameter(torch.randn(len(PLACES) + 1, width) * width**-0.5)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        outputs = sum(len(names) + 1 for names in LOOKS)
        self.item = nn.Linear(width, outputs)
        self.background = nn.Linear(width, len(BACKGROUNDS))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (prompts, places, attributes) and (prompts, backgrounds) of `tokens`."""
        questions = self.questions.expand(len(tokens), -1, -1)
        answers = self.attention(questions, tokens, tokens, need_weights=False)[0]
        return self.item(answers[:, :-1]), self.background(answers[:, -1])

    def share_right(self, tokens: torch.Tensor, truth: torch.Tensor) -> float:
        """Share of prompts of which everything is told right."""
        items, backgrounds = self(tokens)
        parts = items.split([len(names) + 1 for names in LOOKS], dim=-1)
        told = torch.cat(
            [*(p.argmax(-1) for p in parts), backgrounds.argmax(-1)[:, None]], 1
        )
        return float((told == truth).all(1).float().mean())

    def loss(self, tokens: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
        """Cross entropy, of all attributes together, against `truth_of` the scenes."""
        items, backgrounds = self(tokens)
        total = nn.functional.cross_entropy(backgrounds.float(), truth[:, -1])
        parts = items.float().split([len(names) + 1 for names in LOOKS], dim=-1)
        for k, logits in enumerate(parts):
            wanted = truth[:, k * len(PLACES) : (k + 1) * len(PLACES)]
            total = total + nn.functional.cross_entropy(
                logits.flatten(0, 1), wanted.flatten()
            )
        return total


def truth_of(scenes: Sequence[Scene]) -> torch.Tensor:
    """int64 (scenes, 3 x places + 1): colours, shapes, sizes by place, background.

    0 stands for an empty place.
    """
    labels = torch.tensor([labels_of(scene) for scene in scenes])
    by_look = labels[:, :-1].reshape(-1, len(PLACES), len(LOOKS)).transpose(1, 2)
    return torch.cat([by_look.flatten(1), labels[:, -1:]], dim=1)


def captioned(
    count: int, rng: random.Random, split: Split
) -> tuple[list[str], list[Scene]]:
    """Prompts and, in the same order, what each asks for."""
    scenes = [random_scene(rng, split) for _ in range(count)]
    earlier = [random_scene(rng, split, most=2) for _ in range(count)]
    texts = [caption(s, rng, e) for s, e in zip(scenes, earlier, strict=True)]
    return texts, scenes


def train_text_encoder(
    tokenizer: Any, state: Path, plan: TrainingPlan = READING
) -> tuple[CLIPTextModel, Trainer]:
    """The trained text tower with averaged weights; goes on where `state` stopped."""
    torch.manual_seed(plan.seed)
    encoder, head = text_encoder(tokenizer), SceneHead()

    def loss(step: int) -> torch.Tensor:
        texts, scenes = captioned(BATCH, random.Random(f"{plan.seed} {step}"), "train")
        ids = token_ids(tokenizer, texts)
        longest = int((ids != tokenizer.pad_token_id).sum(1).max()) + 1
        tokens = encoder(ids[:, :longest]).last_hidden_state
        return head.loss(tokens, truth_of(scenes))

    @torch.no_grad()
    def look(step: int) -> str:
        texts, scenes = captioned(256, random.Random(22), "test")
        tokens = encoder(token_ids(tokenizer, texts)).last_hidden_state
        right = head.share_right(tokens, truth_of(scenes))
        return f"{100 * right:.1f} % of test prompts read right"

    trainer = Trainer({"text_encoder": encoder, "head": head}, loss, state, plan)
    trainer.run(100, look)
    trainer.__enter__()
    return encoder, trainer


def prompt_ids(tokenizer: Any, scenes: Sequence[Scene], seed: int) -> torch.Tensor:
    """int64 (2 x scenes, LENGTH): two prompts of each scene, in a row."""
    rng = random.Random(seed)
    pairs = [(s, random_scene(rng, "train", most=2)) for s in scenes for _ in range(2)]
    return token_ids(tokenizer, [caption(s, rng, earlier) for s, earlier in pairs])


@torch.no_grad()
def encoded_prompts(
    tokenizer: Any, encoder: nn.Module, scenes: Sequence[Scene], seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors of `prompt_ids` and of the empty prompt.

    bfloat16 (2 x scenes, LENGTH, width) and float32 (LENGTH, width).
    """
    parts = torch.split(prompt_ids(tokenizer, scenes, seed), 200)
    vectors = [encoder(ids).last_hidden_state.bfloat16() for ids in parts]
    empty: torch.Tensor = encoder(token_ids(tokenizer, [""])).last_hidden_state[0]
    return torch.cat(vectors), empty
