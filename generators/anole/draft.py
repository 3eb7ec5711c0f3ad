"""The drafting stage of Anole: a question in, text and the VQ codes of images out.

Records that write text and records that draw share every forward pass; finished ones
leave. A record's text keeps its cache through an image; the two guidance streams of an
image are open from its first code to its last. Upstream runs one record at a time and
rebuilds its cache at each switch (`Generator`, chameleon.py of GAIR-NLP/anole).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

import torch
from torch import Tensor

from plait.generators.anole.codec import encoder_input
from plait.generators.anole.models import load_codec, load_language
from plait.generators.anole.settings import AnoleDraftSettings
from plait.generators.anole.vocabulary import AnoleVocabulary
from plait.generators.base import Weights
from plait.generators.decoding.drafting import (
    InterleavedDraft,
    NativePrompt,
    Piece,
    Segment,
    Stop,
    Track,
    pieces_of,
)
from plait.generators.decoding.payloads import pack
from plait.generators.decoding.rules import Move, Rules
from plait.generators.decoding.sampling import (
    NONE,
    Numbers,
    Sampler,
    are_numbers,
    mark_seen,
    penalise,
    seen_ids,
)
from plait.generators.decoding.streams import Stream, Streams
from plait.generators.document import Image, ImageRequest, Request, Text


class TokenMode(StrEnum):
    """What the next token of a record is."""

    TEXT = "text"
    IMAGE = "image"
    CLOSING = "closing"
    """The end-of-image token, which is set, not sampled."""


class AnoleTrack(Track):
    """The tokens of one record, and what may come next.

    Follows the `TextDecoder` and `ImageDecoder` of GAIR-NLP/anole: an image, once begun,
    is always finished; the text budget counts from the last image; the end of the
    sequence is recognised in text only.
    """

    def __init__(
        self,
        prompt: NativePrompt,
        context: int,
        vocabulary: AnoleVocabulary,
        settings: AnoleDraftSettings,
        image_tokens: int,
    ) -> None:
        """Take, besides, the number of codes of one image."""
        super().__init__(prompt, context)
        self.vocabulary = vocabulary
        self.settings = settings
        self.image_tokens = image_tokens
        self.mode = TokenMode.TEXT
        self.images = 0
        self.runs: list[tuple[TokenMode, list[int]]] = []
        """Text and whole images in order, without their marks."""
        self._begin_text()

    @property
    def tokens(self) -> list[int]:
        """Prompt and answer."""
        return self.prompt.ids + self.ids

    @property
    def may_begin_image(self) -> bool:
        """Whether an image and its two marks still fit, and the answer may hold it."""
        fits = self.length < self.context - (self.image_tokens + 2)
        return fits and self.images < self.settings.max_images

    def take(self, token: int) -> None:
        """Append the next token and update the mode."""
        self.ids.append(token)
        if self.mode is TokenMode.CLOSING:
            self._begin_text()
        elif self.mode is TokenMode.IMAGE:
            self.runs[-1][1].append(token)
            if len(self.runs[-1][1]) == self.image_tokens:
                self.mode = TokenMode.CLOSING
        elif token == self.vocabulary.begin_image:
            self.mode = TokenMode.IMAGE
            self.runs.append((self.mode, []))
            self.images += 1
        else:
            self.runs[-1][1].append(token)
            self._stop_at_limit()
            if token == self.vocabulary.eos:
                self.stop = Stop.END

    def guidance_prompts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the guiding contexts of a new image: the earlier images, and nothing."""
        vocabulary = self.vocabulary
        images = tuple(token for token in self.tokens if token in vocabulary.guiding)
        nothing = (vocabulary.bos, vocabulary.begin_image)
        return images, nothing

    def _begin_text(self) -> None:
        """Begin a run of text, with a budget of its own."""
        self.mode = TokenMode.TEXT
        self.runs.append((self.mode, []))
        self._run_end = self.length + self.settings.max_text_tokens
        self._stop_at_limit()

    def _stop_at_limit(self) -> None:
        if self.length >= self.context:
            self.stop = Stop.CONTEXT
        elif self.length >= self._run_end:
            self.stop = Stop.TEXT


def guided_logits(
    full: Tensor, images: Tensor, free: Tensor, *, text: float, image: float
) -> Tensor:
    """Return logits guided by the text and by earlier images (arXiv:2211.09800).

    `full` are the logits given the whole context, `images` given its images alone,
    `free` given neither; all of one shape.
    """
    return free + image * (images - free) + text * (full - images)


class AnoleDraft(InterleavedDraft[AnoleTrack]):
    """Writes interleaved answers; takes the fields of `AnoleDraftSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = own = AnoleDraftSettings(**settings)
        self.language = load_language(weights, own)
        self.codec = load_codec(weights, own)
        self.vocabulary = ids = self.language.vocabulary
        self.image_tokens = self.codec.side**2
        self.each = self.image_tokens + 2
        self.leading = (ids.bos,)
        self._use(self.language.model.model, own.context)
        about = (self.context, ids, own, self.image_tokens)
        self.track = lambda prompt: AnoleTrack(prompt, *about)
        self.text = Sampler(own.text_temperature, own.text_top_p, own.text_greedy)
        self.image = Sampler(own.image_temperature, own.image_top_p, own.image_greedy)

    def _parts(self, request: Request) -> list[Piece]:
        """Return the content of all turns; who says what is not marked."""
        parts: list[Piece] = []
        for turn in request.turns:
            if parts and turn.content:
                parts.append(self.settings.turn_separator)
            parts += pieces_of(turn.content)
        return parts

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        encode = self.language.tokenizer.encode
        return [encode(text, add_special_tokens=False).ids for text in texts]

    def _read(self, image: Image) -> list[int]:
        """Return the ids of an image: its codes, row by row, between two marks."""
        codes = self.codec.encode(encoder_input(image, self.codec.resolution))
        tokens = self.vocabulary.tokens(codes.ravel().tolist())
        return [self.vocabulary.begin_image, *tokens, self.vocabulary.end_image]

    def _rules(self, prompts: Sequence[NativePrompt], streams: Streams) -> AnoleRules:
        return AnoleRules(self, prompts, streams)

    def logits(self, states: Tensor) -> Tensor:
        """Return float32 logits (..., vocabulary) of states (..., width)."""
        # The model's own `forward` forbids image tokens, so its parts are called.
        logits: Tensor = self.language.model.lm_head(states)
        return logits.float()

    def _details(self, track: AnoleTrack) -> tuple[dict[str, float], dict[str, Any]]:
        return {"image_tokens": track.images * self.image_tokens}, {}

    def _segments(self, track: AnoleTrack) -> list[Segment]:
        segments: list[Segment] = []
        for mode, ids in track.runs:
            if mode is TokenMode.IMAGE:
                segments.append(self._image_request(ids))
                continue
            text = self.language.tokenizer.decode(ids, skip_special_tokens=True)
            if text.strip():
                segments.append(Text(text))
        return segments

    def _image_request(self, ids: Sequence[int]) -> ImageRequest:
        """Return the request for an image of these token ids: its codes (side, side)."""
        codes = torch.tensor(self.vocabulary.codes(ids), dtype=torch.int32)
        grid = codes.view(self.codec.side, self.codec.side)
        return ImageRequest(payload=pack(codes=grid))


class AnoleRules(Rules):
    """What `AnoleTrack` takes next, for the records of a batch.

    A record pauses where an image begins and where it is whole: its guides are opened and
    closed there. So records that draw are those with guides, and the others write text.
    """

    def __init__(
        self, draft: AnoleDraft, prompts: Sequence[NativePrompt], streams: Streams
    ) -> None:
        super().__init__(len(prompts), streams.device)
        self._draft = draft
        self._settings = own = draft.settings
        self._vocabulary = ids = draft.vocabulary
        self._prompts = prompts
        self._streams = streams
        self._numbers = Numbers([prompt.seed for prompt in prompts])
        # Text is chosen among these ids alone, an image's codes among those.
        text = sorted((ids.eos, *ids.text, ids.begin_image))
        self._text_ids = torch.tensor(text, device=self.device)
        self._begin_column = text.index(ids.begin_image)
        """Of `_text_ids`."""
        self._image_ids = torch.tensor(sorted(ids.image), device=self.device)
        of_prompts = [prompt.ids for prompt in prompts]
        self._seen = seen_ids(of_prompts, len(draft.table), self.device)
        lengths = [prompt.length for prompt in prompts]
        self._length = self.count(lengths)
        """Positions of prompt and answer."""
        self._text_end = self.count([length + own.max_text_tokens for length in lengths])
        """The length at which the text that is being written ends."""
        self._codes = self.count()
        """Codes of the image that is being drawn."""
        self._forced = self.count(NONE)
        """The token that must come next, if any."""
        room = draft.context - (draft.image_tokens + 2)
        self._image_room = self.count(room if own.max_images else 0)
        """Lengths below it leave room for an image."""

    def move(self, states: Tensor, at: Tensor, going: Tensor) -> Move:
        """Return the next codes of records with guides, or the next tokens of others."""
        # Records with as many streams move together: all of these draw, or all write.
        if len(states) > 1:
            return self._draw(states, at, going)
        return self._write(states[0], at, going)

    def _write(self, state: Tensor, at: Tensor, going: Tensor) -> Move:
        """Return the next tokens by states (records, width) of records that write text."""
        tokens, sound = self._choose_text(state, at, going)
        length = self._note(at, tokens, going & sound)
        begins = tokens == self._vocabulary.begin_image
        full = (length >= self._draft.context) | (length >= self._text_end[at])
        # An image that has begun is finished, whatever the limits.
        ends = ~begins & (full | (tokens == self._vocabulary.eos))
        return Move(tokens, tokens, ends, ~sound, pauses=begins)

    def _draw(self, states: Tensor, at: Tensor, going: Tensor) -> Move:
        """Return the next codes by states (streams, records, width) of images."""
        tokens, sound = self._choose_code(states, at, going)
        used = going & sound
        self._note(at, tokens, used)
        codes = self._codes[at] + used
        self._codes[at] = codes
        whole = codes == self._draft.image_tokens
        return Move(tokens, tokens, torch.zeros_like(whole), ~sound, pauses=whole)

    def _note(self, at: Tensor, tokens: Tensor, used: Tensor) -> Tensor:
        """Note the tokens (records,) that are used, and return the lengths with them."""
        length = self._length[at] + used
        self._length[at] = length
        mark_seen(self._seen, at, tokens, used)
        return length

    def _choose_text(
        self, state: Tensor, at: Tensor, going: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return tokens (records,), and which were chosen by numbers or forced."""
        logits = self._draft.logits(state)[:, self._text_ids]
        banned = self._length[at] >= self._image_room[at]
        logits[:, self._begin_column].masked_fill_(banned, -torch.inf)
        seen = self._seen[at][:, self._text_ids]
        penalised = penalise(logits, seen, self._settings.repetition_penalty)
        forced = self._forced[at]
        is_free = forced == NONE
        self._forced[at] = forced.where(~going, NONE)
        # A forced token takes no number of its record's.
        draw = partial(self._numbers.draw, at, going & is_free)
        columns = self._draft.text.choose(penalised, draw)
        tokens = self._text_ids[columns].where(is_free, forced)
        return tokens, are_numbers(penalised) | ~is_free

    def _choose_code(
        self, states: Tensor, at: Tensor, going: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return image tokens (records,), and which were chosen by numbers."""
        full, images, free = self._draft.logits(states)[..., self._image_ids]
        guided = guided_logits(
            full,
            images,
            free,
            text=self._settings.guidance_text,
            image=self._settings.guidance_image,
        )
        draw = partial(self._numbers.draw, at, going)
        columns = self._draft.image.choose(guided, draw)
        return self._image_ids[columns], are_numbers(guided)

    def embed(self, ids: Tensor) -> Tensor:
        """Return embeddings (records, width) of ids."""
        return self._draft.embed_tokens(ids)

    def resume(self, paused: Mapping[int, list[int]]) -> dict[int, tuple[Stream, ...]]:
        """Open the guides of images that begin; close those that are whole."""
        begun: dict[int, AnoleTrack] = {}
        for record, tokens in paused.items():
            if tokens[-1] == self._vocabulary.begin_image:
                begun[record] = self._begin_image(record, tokens)
            else:
                self._close_image(record, tokens)
        return self._open_guides(begun)

    def _begin_image(self, record: int, tokens: Sequence[int]) -> AnoleTrack:
        """Have a record draw, and return its answer so far."""
        track = self._draft.track(self._prompts[record])
        for token in tokens:
            track.take(token)
        self._codes[record] = 0
        if track.images == self._settings.max_images:
            # No later image has room.
            self._image_room[record] = 0
        return track

    def _close_image(self, record: int, tokens: Sequence[int]) -> None:
        """Have a record write the mark after its image, then text."""
        self._forced[record] = self._vocabulary.end_image
        length = self._prompts[record].length + len(tokens) + 1
        self._text_end[record] = length + self._settings.max_text_tokens

    def _open_guides(
        self, tracks: Mapping[int, AnoleTrack]
    ) -> dict[int, tuple[Stream, ...]]:
        """Open both guides of each record's new image, together for all of them.

        One stream serves as both where the two contexts are equal.
        """
        contexts = {record: track.guidance_prompts() for record, track in tracks.items()}
        unique: list[tuple[int, tuple[int, ...]]] = []
        for record, (images, nothing) in contexts.items():
            unique.append((record, images))
            if nothing != images:
                unique.append((record, nothing))
        embeddings = [self._draft.embeddings(context) for _, context in unique]
        opened = self._streams.open(embeddings)
        streams = dict(zip(unique, opened, strict=True))
        guides: dict[int, tuple[Stream, ...]] = {}
        for record, (images, nothing) in contexts.items():
            guides[record] = (streams[record, images], streams[record, nothing])
        return guides
