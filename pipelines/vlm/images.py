"""Images of a multimodal model of `transformers`, drawn by the class's own `generate`.

Which models can is not listed here: the class declares it (`output_modalities`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from plait.generators.base import Outcome, Result, Weights
from plait.generators.content import answer_all, prompt_and_seed
from plait.generators.decoding.sampling import Numbers, Sampler, are_numbers
from plait.generators.document import ImageRequest
from plait.generators.errors import CheckpointError
from plait.generators.images import Drawing
from plait.generators.overflow import SCORES, no_numbers
from plait.pipelines.chat.settings import GeneratedImagesSettings
from plait.pipelines.vlm.stage import device_map_of, load_pretrained


class RawImage(NamedTuple):
    """An image as a model gives it."""

    pixels: Tensor
    """(3, height, width), or (height, width, 3), as the image processor normalises."""
    sound: bool
    """Whether all scores were numbers."""


class GeneratedImages:
    """ImageRequest -> Drawing, by any class that declares images.

    Correct and slow: one image at a time, but for Emu3, which has its own way of writing
    images in `Emu3Drawer`. The model is loaded strictly.
    """

    def __init__(self, weights: Weights = "pretrained", **settings: Any) -> None:
        """Load the model; CheckpointError for a class that does not declare images."""
        self.settings = own = GeneratedImagesSettings(**settings)
        where = device_map_of(own.device)
        dtype = getattr(torch, own.dtype)
        model, processor = load_pretrained(own.model, own.revision, dtype, where)
        if "image" not in model.output_modalities:
            declared = ", ".join(model.output_modalities)
            raise CheckpointError(
                f"{own.model!r} is a {type(model).__name__}, which declares {declared} as "
                "its output and no image; use it as an LVLM: "
                f"'hf:{own.model}+T2I' draws with another model"
            )
        kind = Emu3Drawer if model.config.model_type == "emu3" else Drawer
        self.drawer = kind(model, processor, own)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """Return one image per request; a request that cannot be drawn fails alone."""
        return answer_all([prompt_and_seed(request, "") for request in inputs], self._draw)

    def _draw(self, pairs: Sequence[tuple[str, int]]) -> list[Outcome[Drawing]]:
        drawer = self.drawer
        prompts = [prompt + drawer.suffix for prompt, _ in pairs]
        seeds = [seed for _, seed in pairs]
        with torch.inference_mode():
            images = drawer.draw(prompts, seeds)
        outcomes = list[Outcome[Drawing]]()
        for prompt, seed, image in zip(prompts, seeds, images, strict=True):
            notes = {"prompt": prompt, "seed": seed, "by": drawer.by}
            if image.sound:
                drawing = Drawing(_rgb(drawer, image.pixels))
                outcomes.append(Result(drawing, {"images": 1}, notes))
            else:
                outcomes.append(no_numbers(SCORES, drawer.model.dtype, {}, notes))
        return outcomes


def _rgb(drawer: Drawer, pixels: Tensor) -> Any:
    """Return pixels as uint8 (height, width, 3), truncated as `postprocess` does.

    That method itself takes another layout and type from one image processor to the next.
    """
    channels_last = pixels if pixels.shape[-1] == 3 else pixels.permute(1, 2, 0)
    about = drawer.processor.image_processor
    mean = torch.tensor(list(about.image_mean))
    deviation = torch.tensor(list(about.image_std))
    values = (channels_last.float().cpu() * deviation + mean) * 255
    return values.nan_to_num().clamp(0, 255).to(torch.uint8).numpy()


class Drawer:
    """One image at a time, with `generation_mode="image"`, as `AnyToAnyPipeline` asks.

    The global random state has the record's seed for the while.
    """

    guidance = 5.0
    """Published scale of guidance."""
    suffix = ""
    """Put after every prompt."""

    def __init__(
        self, model: Any, processor: Any, settings: GeneratedImagesSettings
    ) -> None:
        self.model = model
        self.processor = processor
        self.settings = settings
        self.by = f"{type(model).__name__}.generate"
        """Names the program, for readers of a result."""
        if settings.guidance is not None:
            self.guidance = settings.guidance
        if settings.prompt_suffix is not None:
            self.suffix = settings.prompt_suffix

    def draw(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[RawImage]:
        """Return the image of each prompt."""
        images: list[RawImage] = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            images.append(self._draw_one(prompt, seed))
        return images

    def _draw_one(self, prompt: str, seed: int) -> RawImage:
        message = {"role": "user", "content": [{"type": "text", "text": prompt}]}
        text = self.processor.apply_chat_template(
            [message], tokenize=False, add_generation_prompt=True
        )
        inputs = self.processor(text, generation_mode="image", return_tensors="pt")
        own = self.settings
        choice: dict[str, Any] = {"do_sample": not own.greedy}
        if not own.greedy:
            choice |= {"temperature": own.temperature, "top_p": own.top_p}
            choice["top_k"] = own.top_k or 0
        devices = range(torch.cuda.device_count())
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            codes = self.model.generate(
                **inputs.to(self.model.device),
                generation_mode="image",
                guidance_scale=self.guidance,
                **choice,
            )
        return RawImage(self.model.decode_image_tokens(codes)[0], sound=True)


_SUFFIX = " masterpiece, film grained, best quality."
_NEGATIVE = (
    "lowres, bad anatomy, bad hands, text, error, missing fingers, extra digit, fewer "
    "digits, cropped, worst quality, low quality, normal quality, jpeg artifacts, "
    "signature, watermark, username, blurry."
)
"""Both of image_generation.py (baaivision/Emu3), as are guidance and top-k."""


class Emu3Drawer(Drawer):
    """Emu3 writes an image as rows of codes among its tokens, and has no mode for it.

    All prompts of a batch and their negative prompts are rows of one `generate`; that of
    transformers reads the negative prompt in a pass of its own at every step.
    """

    guidance = 3.0
    suffix = _SUFFIX

    def __init__(
        self, model: Any, processor: Any, settings: GeneratedImagesSettings
    ) -> None:
        super().__init__(model, processor, settings)
        top_k = 2048 if settings.top_k is None else settings.top_k
        choice = (settings.temperature, settings.top_p, settings.greedy)
        self.sampler = Sampler(*choice, top_k)
        negative = settings.negative_prompt
        self.negative = _NEGATIVE if negative is None else negative

    def draw(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[RawImage]:
        """Return the image of each prompt."""
        # What guidance leads away from, if it does.
        negative = [self.negative] * len(prompts) if self.guidance > 1 else []
        inputs = self.processor(
            text=[*prompts, *negative],
            return_for_image_generation=True,
            ratio=self.settings.ratio,
            image_area=self.settings.image_area,
            padding=True,
            return_tensors="pt",
        )
        height, width = map(int, inputs.pop("image_sizes")[0])
        layout = Emu3Layout.of(self.model, self.processor.tokenizer, height, width)
        codes = GuidedCodes(self.guidance, self.sampler, layout, seeds)
        self.model.generate(
            **inputs.to(self.model.device),
            max_new_tokens=layout.length,
            min_new_tokens=layout.length,
            do_sample=False,
            logits_processor=LogitsProcessorList([codes]),
        )
        written = codes.tokens
        if written.shape[1] != layout.length:
            raise ValueError(
                f"{self.by} wrote {written.shape[1]} tokens of an image; {height} rows of "
                f"{width} codes take {layout.length}"
            )
        pixels = self.model.decode_image_tokens(
            image_tokens=written, height=height, width=width
        )
        images: list[RawImage] = []
        for own, sound in zip(pixels, codes.sound.tolist(), strict=True):
            images.append(RawImage(own, sound))
        return images


@dataclass(frozen=True, slots=True)
class Emu3Layout:
    """Which tokens may stand at each place of an image."""

    height: int
    width: int
    codes: Tensor
    """Ids of all codes: (codes,)."""
    line: int
    """Ends a row."""
    closing: tuple[int, ...]
    """End of the frame, of the image and of the text."""

    @classmethod
    def of(cls, model: Any, tokenizer: Any, height: int, width: int) -> Emu3Layout:
        """Return the layout of an image of so many rows, each of `width` codes."""
        mapping = model.model.vocabulary_mapping
        ids = torch.tensor(mapping.image_tokens, device=model.device)
        marks = (tokenizer.eof_token, tokenizer.eoi_token, tokenizer.eos_token)
        closing = tuple(map(tokenizer.convert_tokens_to_ids, marks))
        return cls(height, width, ids, mapping.eol_token_id, closing)

    @property
    def length(self) -> int:
        """Tokens of an image with its marks."""
        return self.height * (self.width + 1) + len(self.closing)

    def only_token_at(self, place: int) -> int | None:
        """Return the only token that may stand there; None where any code may."""
        # A row has one token more than codes: its end.
        row_length = self.width + 1
        behind_rows = place - self.height * row_length
        if behind_rows >= 0:
            return self.closing[behind_rows]
        return self.line if (place + 1) % row_length == 0 else None


class GuidedCodes(LogitsProcessor):  # type: ignore[misc]
    """Chooses each image's next token, by all its rows, and leaves no other choice.

    Rows of scores are those of the prompts, then those that guidance leads away from.
    """

    def __init__(
        self, guidance: float, sampler: Sampler, layout: Emu3Layout, seeds: Sequence[int]
    ) -> None:
        self._guidance = guidance
        self._sampler = sampler
        self._layout = layout
        self._images = torch.arange(len(seeds), device=layout.codes.device)
        self._numbers = Numbers(seeds)
        self._chosen: list[Tensor] = []
        self.sound = torch.ones_like(self._images, dtype=torch.bool)
        """Whether each image had numbers to choose by at every step."""

    @property
    def tokens(self) -> Tensor:
        """All that was chosen: (images, tokens)."""
        return torch.stack(self._chosen, dim=1)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores (rows, vocabulary) that are 0 at the token and -inf elsewhere."""
        images = len(self._images)
        fixed = self._layout.only_token_at(len(self._chosen))
        if fixed is None:
            tokens = self._choose_codes(scores)
        else:
            tokens = torch.full((images,), fixed, device=scores.device)
        self._chosen.append(tokens)
        # All rows of an image read the same token.
        of_rows = tokens.repeat(len(scores) // images)[:, None]
        return torch.full_like(scores, -torch.inf).scatter(1, of_rows, 0.0)

    def _choose_codes(self, scores: Tensor) -> Tensor:
        """Return the next code of each image, (images,), by scores (rows, vocabulary)."""
        images = len(self._images)
        logits = scores.float().log_softmax(-1)[:, self._layout.codes]
        guided = logits[:images]
        if self._guidance > 1:
            free = logits[images:]
            guided = free + self._guidance * (guided - free)
        self.sound &= are_numbers(guided)
        draw = partial(self._numbers.draw, self._images)
        columns = self._sampler.choose(guided.nan_to_num(), draw)
        return self._layout.codes[columns]
