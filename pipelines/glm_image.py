"""GLM-Image in two stages: a language model writes image codes, a transformer draws them.

The pipeline of diffusers runs both in turn and seeds the first from the first image of a
batch. Apart, each has a batch of its own, and every image its own seed in both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
import transformers
from PIL import Image as Pillow
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from plait.generators.base import Failure, Fault, Outcome, Result, Weights
from plait.generators.content import answer_all, prompt_and_seed
from plait.generators.decoding.payloads import pack, receive
from plait.generators.decoding.sampling import NO_NUMBERS, sound_tokens
from plait.generators.decoding.texts import TextTrack
from plait.generators.diffusion.builds import small_tokenizer, tiny_modules
from plait.generators.diffusion.designs import DESIGNS
from plait.generators.diffusion.drawer import Drawer
from plait.generators.diffusion.loading import folder_of, modules_of, quiet
from plait.generators.document import Image, ImageRequest, Payload
from plait.generators.errors import CheckpointError
from plait.generators.images import Drawing, ImageError, decode
from plait.generators.loading.strict import device_of
from plait.generators.overflow import SCORES, no_numbers
from plait.pipelines.presets import GlmImagePriorSettings, GlmImageSettings
from plait.pipelines.vlm.decoding import ChosenTokens, end_ids

R = TypeVar("R")
V = TypeVar("V")
_DESIGN = DESIGNS["glm-image"]
_MODEL, _PROCESSOR = _DESIGN.prior
_CODES = "prior_token_ids"
_SEEN = ("prior_token_image_ids", "source_image_grid_thw")
"""Names of a payload's tensors, which are arguments of the pipeline too: the codes of the
image, and those of the images it is drawn from with the grid of each."""


class _Read(NamedTuple):
    """A request as either stage reads it."""

    prompt: str
    seed: int
    images: list[Pillow.Image]
    """From which the image is drawn."""


def _read(
    request: ImageRequest, settings: GlmImageSettings | GlmImagePriorSettings
) -> _Read | Failure:
    """Return what is drawn; images are brought to the size of the one to be drawn."""
    bare = replace(request, payload=None, context=())
    pair = prompt_and_seed(bare, settings.prompt_prefix)
    if isinstance(pair, Failure):
        return pair
    prompt, seed = pair
    sources = [source for source in request.context if isinstance(source, Image)]
    if len(sources) < len(request.context):
        return Failure("the model draws from images; the request's context holds text")
    size = (settings.width or 0, settings.height or 0)
    try:
        images = [decode(source).resize(size) for source in sources]
    except ImageError as error:
        return Failure(str(error))
    return _Read(prompt, seed, images)


def _by(
    key: Callable[[R], Any], answer: Callable[[list[R]], list[Outcome[V]]]
) -> Callable[[Sequence[R]], list[Outcome[V]]]:
    """Return what answers together those of equal key, and keeps their order."""

    def together(read: Sequence[R]) -> list[Outcome[V]]:
        places_by_key: dict[Any, list[int]] = {}
        for place, one in enumerate(read):
            places_by_key.setdefault(key(one), []).append(place)
        outcomes = dict[int, Outcome[V]]()
        for places in places_by_key.values():
            answered = answer([read[place] for place in places])
            outcomes |= zip(places, answered, strict=True)
        return [outcomes[place] for place in range(len(read))]

    return together


class GlmImagePrior:
    """ImageRequest -> Payload: codes (positions,), one for each 16 x 16 pixels of an image.

    They are written at half as many a side, each for two by two; before an image that is
    drawn from text alone comes a preview of it. Codes are sampled as by `generate` from
    each record's own seed, so they are the pipeline's for one image of that seed, but for
    rounding.
    """

    def __init__(self, weights: Weights = "pretrained", **settings: Any) -> None:
        """Load the language model; CheckpointError where the checkpoint does not fit."""
        self.settings = GlmImagePriorSettings(**settings)
        model, self._processor = _load(self.settings, weights)
        self._model = model.to(device_of(self.settings.device))
        self._processor.tokenizer.padding_side = "left"
        self._ends = end_ids(model.generation_config)
        self._codes: int = model.config.vq_config.num_embeddings

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Payload]]:
        """Return one payload per request; one whose codes are no whole image fails."""
        read = [_read(request, self.settings) for request in inputs]
        # The processor takes prompts with equally many images.
        return answer_all(read, _by(lambda one: len(one.images), self._write))

    @torch.inference_mode()
    def _write(self, read: Sequence[_Read]) -> list[Outcome[Payload]]:
        inputs = self._encode(read)
        sources = len(read[0].images)
        grids = inputs["image_grid_thw"].view(len(read), -1, 3)
        sizes = grids[0, sources:].prod(-1).tolist()
        # The image's own grid comes first, and its codes last.
        before = sum(sizes[1:])
        limit = sum(sizes)
        tracks = [TextTrack(limit) for _ in read]
        choose = _Sampling(self._model.generation_config, [one.seed for one in read])
        chosen = ChosenTokens(choose, tracks, self._ends)
        seen = self._encode_images(inputs, grids[:, :sources])
        with quiet():
            self._model.generate(
                **inputs,
                max_new_tokens=limit,
                do_sample=False,
                logits_processor=LogitsProcessorList([chosen]),
            )
        lengths = inputs["attention_mask"].sum(1).tolist()
        pack_one = partial(self._pack, grid=grids[0, sources], before=before)
        return [*map(pack_one, read, tracks, lengths, seen)]

    def _encode(self, read: Sequence[_Read]) -> Any:
        """Return the processor's tensors of all prompts and images, on the device."""
        conversations = []
        for one in read:
            content: list[dict[str, Any]] = []
            for image in one.images:
                content.append({"type": "image", "image": image})
            content.append({"type": "text", "text": one.prompt})
            conversations.append([{"role": "user", "content": content}])
        with quiet():
            inputs = self._processor.apply_chat_template(
                conversations,
                tokenize=True,
                return_dict=True,
                processor_kwargs={
                    "padding": len(read) > 1,
                    "return_tensors": "pt",
                    "target_h": self.settings.height,
                    "target_w": self.settings.width,
                },
            )
        return inputs.to(self._model.device)

    def _encode_images(self, inputs: Any, grids: Tensor) -> list[dict[str, Tensor]]:
        """Return the codes of each record's images; `grids` are (records, images, 3)."""
        if not grids.numel():
            return [{} for _ in grids]
        flat = grids.flatten(0, 1)
        pixels = inputs["pixel_values"].to(self._model.dtype)
        # As a list: diffusers 0.42.1 joins them first, which transformers 5.23.0 refuses.
        features = self._model.get_image_features(pixels, flat).pooler_output
        codes = self._model.get_image_tokens(features).split(flat.prod(-1).tolist())
        doubled = [*map(_double, codes, flat)]
        each = grids.shape[1]
        # Codes are doubled in rows and columns, and so are their grids.
        scale = torch.tensor([1, 2, 2], device=grids.device)
        records: list[dict[str, Tensor]] = []
        for row, grid in enumerate(grids):
            own = torch.cat(doubled[row * each : (row + 1) * each])
            records.append(dict(zip(_SEEN, (own, grid * scale), strict=True)))
        return records

    def _pack(
        self,
        one: _Read,
        track: TextTrack,
        length: int,
        seen: Mapping[str, Tensor],
        *,
        grid: Tensor,
        before: int,
    ) -> Result[Payload] | Failure:
        """Return what the model wrote as codes of the image; `before` are the preview's."""
        usage = {"input_tokens": length, "output_tokens": track.tokens}
        notes = {"prompt": one.prompt, "seed": one.seed, "images": len(one.images)}
        if track.stop == NO_NUMBERS:
            return no_numbers(SCORES, self._model.dtype, usage, notes)
        if len(track.ids) < track.limit or max(track.ids) >= self._codes:
            whole = sum(code < self._codes for code in track.ids)
            reason = f"the model wrote {whole} image codes, not {track.limit}"
            return Failure(reason, Fault.ERROR, usage, notes)
        codes = _double(torch.tensor(track.ids[before:]), grid)
        return Result(pack(**{_CODES: codes}, **seen), usage, notes)


def _double(codes: Tensor, grid: Tensor) -> Tensor:
    """Return each code of a grid (1, rows, columns) four times: twice a side."""
    square = codes.view(int(grid[1]), int(grid[2]))
    return square.repeat_interleave(2, 0).repeat_interleave(2, 1).flatten()


def _load(settings: GlmImagePriorSettings, weights: Weights) -> tuple[Any, Any]:
    if weights == "tiny":
        model = tiny_modules(_DESIGN)[_MODEL]
        return model, small_tokenizer(_DESIGN.tokenizers[_PROCESSOR])
    folder = folder_of(settings.model, settings.revision, None)
    kinds = {_MODEL: transformers.GlmImageForConditionalGeneration}
    dtype = getattr(torch, settings.dtype)
    with quiet():
        model = modules_of(folder, kinds, dtype)[_MODEL]
        try:
            kind = transformers.GlmImageProcessor
            return model, kind.from_pretrained(folder / _PROCESSOR)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"checkpoint {settings.model!r}: {error}") from error


class _Sampling:
    """Samples as `generate` does by a generation config, with a generator for each row."""

    def __init__(self, config: Any, seeds: Sequence[int]) -> None:
        # What a config leaves out has these values there (transformers 5.23.0).
        self._warpers = LogitsProcessorList(
            [
                TemperatureLogitsWarper(_or(config.temperature, 1.0)),
                TopKLogitsWarper(_or(config.top_k, 50)),
                TopPLogitsWarper(_or(config.top_p, 1.0)),
            ]
        )
        self._seeds = seeds
        self._generators: list[torch.Generator] = []

    def __call__(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Return a token for each of some rows; NONE where its logits are no numbers."""
        if not self._generators:
            # Only the logits tell the device.
            for seed in self._seeds:
                generator = torch.Generator(logits.device).manual_seed(seed)
                self._generators.append(generator)
        scores = self._warpers(None, logits.float())
        # In the place of a row that is no numbers, which multinomial refuses.
        likely = scores.softmax(-1).nan_to_num(1.0)
        drawn = []
        for i, row in enumerate(rows.tolist()):
            generator = self._generators[row]
            drawn.append(torch.multinomial(likely[i : i + 1], 1, generator=generator))
        return sound_tokens(torch.cat(drawn)[:, 0], logits)


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


class _Coded(NamedTuple):
    """A request as the decoder reads it."""

    read: _Read
    conditions: dict[str, Any]
    """Arguments of the pipeline."""
    alike: Any
    """Equal for requests that may be drawn together."""


class GlmImageDecoder:
    """ImageRequest with the prior's codes -> Drawing; the prompt is read again.

    The transformer reads only what the prompt puts between quotation marks. It would attend
    to padding, so prompts are batched with those whose quoted texts are as long, and drawn
    alone where they come with images.
    """

    def __init__(self, weights: Weights = "pretrained", **settings: Any) -> None:
        """As every text-to-image model, without the prior's components."""
        self.settings = GlmImageSettings(**settings)
        self.drawer = Drawer(self.settings, weights)
        self.drawer.alone = False
        sides = (self.settings.height, self.settings.width)
        self._positions = math.prod((side or 0) // 16 for side in sides)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """Return one image per request; one without codes of the right number fails."""
        coded = [self._read_codes(i, request) for i, request in enumerate(inputs)]
        return answer_all(coded, _by(lambda one: one.alike, self._draw))

    def _read_codes(self, place: int, request: ImageRequest) -> _Coded | Failure:
        read = _read(request, self.settings)
        names = (_CODES, *(_SEEN if request.context else ()))
        tensors = receive(request, *names)
        if isinstance(read, Failure):
            return read
        if isinstance(tensors, Failure):
            return tensors
        if tensors[0].shape != (self._positions,):
            shape = tuple(tensors[0].shape)
            return Failure(f"the payload holds codes {shape}, not ({self._positions},)")
        device = device_of(self.settings.device)
        conditions: dict[str, Any] = {}
        for name, tensor in zip(names, tensors, strict=True):
            conditions[name] = tensor.to(device)
        conditions["prompt"] = read.prompt
        if read.images:
            # Its place is that of no other request: it is drawn alone.
            return _Coded(read, conditions | {"image": read.images}, place)
        quoted = self.drawer.pipeline.get_glyph_texts(read.prompt)[0]
        return _Coded(read, conditions, tuple(len(text.encode()) for text in quoted))

    def _draw(self, coded: Sequence[_Coded]) -> list[Outcome[Drawing]]:
        reads = [one.read for one in coded]
        batch: dict[str, Any] = {}
        for name in coded[0].conditions:
            batch[name] = [one.conditions[name] for one in coded]
        batch[_CODES] = torch.stack(batch[_CODES])
        outcomes = self.drawer(batch, [read.seed for read in reads])
        return [*map(self._note, outcomes, reads)]

    def _note(self, outcome: Outcome[Drawing], read: _Read) -> Outcome[Drawing]:
        """Return an outcome with what was drawn; others than results and failures as is."""
        if not isinstance(outcome, Result | Failure):
            return outcome
        quoted = self.drawer.pipeline.get_glyph_texts(read.prompt)[0]
        notes = {"prompt": read.prompt, "seed": read.seed, "quoted": quoted}
        return replace(outcome, notes={**notes, **outcome.notes})
