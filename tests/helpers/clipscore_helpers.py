"""Images, documents and toy CLIP checkpoints for the tests of CLIPScore."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from contents import document, query_of
from picture_helpers import png
from PIL import Image as Pillow

from plait.generators.document import Candidate, Image

LONG = " ".join(f"Step {i}: put the red lamp on table {i} and wait." for i in range(30))
"""About 400 tokens in 30 sentences."""


def pixels(seed: int, size: tuple[int, int] = (32, 32)) -> Pillow.Image:
    """Smooth random colours; `size` is (width, height)."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Pillow.fromarray(coarse).resize(size, Pillow.Resampling.BICUBIC)


@functools.cache
def picture(seed: int, size: tuple[int, int] = (32, 32)) -> Image:
    return png(pixels(seed, size))


def candidate(*segments: str | Image) -> Candidate:
    return Candidate(document(*segments))


class ClipScore:
    """`clipscore` with a stage of its own, loaded once."""

    def __init__(self, weights: Any = "tiny", **settings: Any) -> None:
        from plait.cluster.loading import load_stage
        from plait.scorers.clipscore import ClipScorer

        self.scorer = ClipScorer.of("clipscore", weights, settings)
        self.stage = load_stage(self.scorer.stage)

    def __call__(self, candidates: Sequence[Candidate]) -> list[Any]:
        """Outcomes of documents that are scored together."""
        from plait.cluster.walks import drive, together

        walks = [self.scorer.judge(query_of("?"), c.document) for c in candidates]
        return drive(together(walks), lambda jobs: self.stage([j.input for j in jobs]))

    @property
    def model(self) -> Any:
        """The CLIP that is loaded."""
        return self.stage.encoder.encode.__self__


tiny = functools.cache(ClipScore)
"""The toy, shared: tests that count or break things make their own."""


def score(stage: Any, *segments: str | Image) -> Any:
    """The score of one document."""
    return stage([candidate(*segments)])[0].value


def cosines(outcome: Any) -> list[float | None]:
    return [pair["cos"] for pair in outcome.value.parts["pairs"]]


def reference_cosine(stage: Any, text: str, image: Pillow.Image) -> float:
    """cos of the tiny model in float64, with open_clip's own tokenizer and formula."""
    import open_clip
    import torch
    from open_clip.transform import image_transform

    model = copy.deepcopy(stage.model).double()
    transform = image_transform(model.visual.image_size, is_train=False)
    with torch.no_grad():
        v = model.encode_image(transform(image)[None].double())[0].numpy()
        c = model.encode_text(open_clip.tokenize(text))[0].numpy()
    return float((v * c).sum() / np.sqrt((v * v).sum()) / np.sqrt((c * c).sum()))


def save_transformers_clip(
    folder: Path, seed: int = 0, shard: str = "1GB", **vision: Any
) -> Any:
    """A toy `transformers.CLIPModel` with CLIP's vocabulary, saved with its processor.

    Returns the model and the processor.
    """
    import torch
    from transformers import CLIPConfig, CLIPModel

    towers = {"num_hidden_layers": 2, "num_attention_heads": 2}
    text = {"hidden_size": 32, "intermediate_size": 80, **towers}
    ends = {"bos_token_id": 49406, "eos_token_id": 49407}
    sight = {"hidden_size": 48, "intermediate_size": 96, "patch_size": 8, "image_size": 32}
    config = CLIPConfig(
        projection_dim=24, text_config=text | ends, vision_config=sight | towers | vision
    )
    torch.manual_seed(seed)
    model = CLIPModel(config).eval()
    processor = clip_processor()
    model.save_pretrained(folder, max_shard_size=shard)
    processor.save_pretrained(folder)
    return model, processor


@functools.cache
def clip_processor() -> Any:
    """transformers' processor with the vocabulary that open_clip ships."""
    import open_clip
    from transformers import CLIPImageProcessor, CLIPProcessor, CLIPTokenizer

    bpe = open_clip.SimpleTokenizer()
    names = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    vocabulary = {names.get(token, token): i for token, i in bpe.encoder.items()}
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=list(bpe.bpe_ranks))
    sizes = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    return CLIPProcessor(CLIPImageProcessor(**sizes), tokenizer)
