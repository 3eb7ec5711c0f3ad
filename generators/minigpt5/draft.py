"""The drafting stage of MiniGPT-5: a question in, text and the states of images out.

Upstream runs one record at a time and feeds the eight vokens of an image in one pass, as
is done here where all records are inside an image. Fed one by one they have the same
states, because no voken attends to a later one: records that write text and records inside
an image share every step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from plait.generators.base import Weights
from plait.generators.decoding.batch_writer import Written
from plait.generators.decoding.drafting import (
    InterleavedDraft,
    NativePrompt,
    Piece,
    Segment,
    Stop,
    Track,
    merge_texts,
    pieces_of,
)
from plait.generators.decoding.payloads import pack
from plait.generators.decoding.rules import Move, Rules, Run
from plait.generators.decoding.sampling import (
    NO_NUMBERS,
    NONE,
    Numbers,
    Sampler,
    are_numbers,
    mark_seen,
    penalise,
    seen_ids,
)
from plait.generators.decoding.streams import Streams
from plait.generators.document import Image, ImageRequest, Request, Text, Turn
from plait.generators.minigpt5.models import VOKENS, MiniGPT5Vocabulary, load_models
from plait.generators.minigpt5.settings import MiniGPT5DraftSettings
from plait.generators.minigpt5.vision import encoder_pixels


def prompt_parts(request: Request, settings: MiniGPT5DraftSettings) -> list[Piece]:
    """Return the prompt: no two texts are adjacent, and none is empty.

    System turns follow the model's system prompt; the request comes after the last human
    turn; a conversation that ends with the assistant is continued.
    """
    wording = settings.wording
    separator = settings.turn_separator
    parts: list[Piece] = [wording.system]
    dialogue: list[Turn] = []
    last_asked = -1
    for turn in request.turns:
        if turn.role == "system":
            parts += [separator, *_content(turn, settings)]
            continue
        if turn.role == "user":
            last_asked = len(dialogue)
        dialogue.append(turn)
    for place, turn in enumerate(dialogue):
        if place > 0:
            parts.append(separator)
        is_asked = turn.role == "user"
        parts.append(wording.human if is_asked else settings.assistant + separator)
        parts += _content(turn, settings)
        if place == last_asked:
            if turn.content and isinstance(turn.content[-1], Image):
                parts.append(wording.after_last_image)
            parts.append(wording.request)
    if not dialogue or dialogue[-1].role == "user":
        parts.append(settings.assistant)
    return _strip(parts)


def _content(turn: Turn, settings: MiniGPT5DraftSettings) -> list[Piece]:
    """Return texts and images of a turn, each image between its two marks."""
    parts: list[Piece] = []
    for part in pieces_of(turn.content):
        if isinstance(part, Image):
            parts += [settings.before_image, part, settings.after_image]
        else:
            parts.append(part)
    return parts


def _strip(parts: Iterable[Piece]) -> list[Piece]:
    """Return the parts with adjoining texts joined, and without empty ones.

    White space beside an image is stripped, as upstream's tokenizer does beside
    `<ImageHere>`.
    """
    joined = merge_texts(parts)
    last = len(joined) - 1
    stripped: list[Piece] = []
    for place, part in enumerate(joined):
        # Texts are joined: beside one there are only images.
        if isinstance(part, str):
            if place > 0:
                part = part.lstrip()
            if place < last:
                part = part.rstrip()
        if part != "":
            stripped.append(part)
    return stripped


class MiniGPT5Track(Track):
    """The sampled ids of one record, and the states of its images.

    `[IMG0]` among the ids represents its image, as in upstream's sequences.
    """

    def __init__(
        self,
        prompt: NativePrompt,
        context: int,
        vocabulary: MiniGPT5Vocabulary,
        settings: MiniGPT5DraftSettings,
    ) -> None:
        super().__init__(prompt, context)
        self.vocabulary = vocabulary
        self.settings = settings
        self.images: list[list[Tensor]] = []
        """States of each image: one before `[IMG0]`, then those at `[IMG0..6]`."""

    @property
    def length(self) -> int:
        """Positions of prompt and answer; an image among the ids takes eight."""
        return super().length + (VOKENS - 1) * len(self.images)

    @property
    def drawing(self) -> bool:
        """Whether the current image still lacks states."""
        return bool(self.images) and len(self.images[-1]) < VOKENS

    @property
    def may_begin_image(self) -> bool:
        """Whether a whole image still fits, and the answer may hold one more."""
        fits = self.length + VOKENS <= self.context
        return fits and len(self.images) < self.settings.max_images

    @property
    def must_begin_image(self) -> bool:
        """Whether nothing but an image may come next."""
        return self.settings.force_image and not self.images and self.may_begin_image

    def take(self, token: int) -> None:
        """Append an id; of an image that begins, the state before it is collected next."""
        self.ids.append(token)
        if token == self.vocabulary.begin_image:
            self.images.append([])
        else:
            self._stop_at_limits()

    def collect(self, states: Iterable[Tensor]) -> None:
        """Give the current image the states (width,) that it lacks."""
        for state in states:
            if not self.drawing:
                return
            self.images[-1].append(state)
            if not self.drawing:
                self._stop_at_limits()

    def _stop_at_limits(self) -> None:
        if self.vocabulary.mark_length(self.ids):
            self.stop = Stop.MARK
        elif self.ids[-1] == self.settings.end_id:
            self.stop = Stop.END
        elif len(self.ids) >= self.settings.max_new_tokens:
            self.stop = Stop.TOKENS
        elif self.length >= self.context:
            self.stop = Stop.CONTEXT

    def parts(self) -> list[str | Tensor]:
        """Return unstripped text, and states (vokens, width) of the images, in order."""
        parts: list[str | Tensor] = []
        run: list[int] = []
        images = iter(self.images)
        end = len(self.ids) - self.vocabulary.mark_length(self.ids)
        for token in self.ids[:end]:
            if token != self.vocabulary.begin_image:
                run.append(token)
                continue
            parts += [self.vocabulary.text(run), torch.stack(next(images))]
            run = []
        return [*parts, self.vocabulary.text(run)]


class MiniGPT5Draft(InterleavedDraft[MiniGPT5Track]):
    """Writes interleaved answers; takes the fields of `MiniGPT5DraftSettings`."""

    mark = "<ImageHere>"

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = own = MiniGPT5DraftSettings(**settings)
        self.model, self.vocabulary, self.encoder = load_models(weights, own)
        self.each = self.encoder.query_tokens.shape[1]
        self.leading = (self.vocabulary.bos,)
        self._use(self.model.model, own.context)
        about = (self.context, self.vocabulary, own)
        self.track = lambda prompt: MiniGPT5Track(prompt, *about)
        self.sampler = Sampler(own.temperature, own.top_p, own.greedy, own.top_k)

    def _parts(self, request: Request) -> list[Piece]:
        return prompt_parts(request, self.settings)

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.vocabulary.tokenizer.encode(text) for text in texts]

    def _read(self, image: Image) -> Tensor:
        return encoder_pixels(image, self.encoder.side, self.settings.fit)

    def _encode(self, pixels: Tensor) -> Tensor:
        vectors: Tensor = self.encoder(pixels)
        return vectors

    def _rules(self, prompts: Sequence[NativePrompt], streams: Streams) -> MiniGPT5Rules:
        return MiniGPT5Rules(self, prompts, streams.device)

    def _track_of(
        self, record: int, prompt: NativePrompt, written: Written, rules: Rules
    ) -> MiniGPT5Track:
        assert isinstance(rules, MiniGPT5Rules)
        track = self.track(prompt)
        images = iter(torch.split(rules.states[record], VOKENS))
        for token in written.tokens:
            track.take(token)
            if token == self.vocabulary.begin_image:
                track.collect(next(images))
        if written.broken:
            track.stop = NO_NUMBERS
        return track

    def _segments(self, track: MiniGPT5Track) -> list[Segment]:
        parts = track.parts()
        if self.settings.spell_leading_id and isinstance(parts[0], str):
            parts[0] = "<unk>" + parts[0]
        segments: list[Segment] = []
        for part in parts:
            if isinstance(part, Tensor):
                segments.append(ImageRequest(payload=pack(states=part.float())))
            elif part.strip():
                segments.append(Text(part.strip()))
        return segments

    def _details(self, track: MiniGPT5Track) -> tuple[dict[str, float], dict[str, Any]]:
        """Note how often added ids were sampled that are neither text nor images."""
        begin = self.vocabulary.begin_image
        size = self.vocabulary.tokenizer.size
        others: Counter[str] = Counter()
        for token in sorted(track.ids):
            if token >= size and token != begin:
                others[self.vocabulary.name_of_added(token)] += 1
        return {}, {"left out": dict(others)} if others else {}


class MiniGPT5Rules(Rules):
    """What `MiniGPT5Track` takes next, for the records of a batch.

    A record writes text, whose ids are sampled, or is within an image: after a sampled
    `[IMG0]` the other vokens are fed, and the states at them kept for the renderer.
    """

    def __init__(
        self, draft: MiniGPT5Draft, prompts: Sequence[NativePrompt], device: torch.device
    ) -> None:
        super().__init__(len(prompts), device)
        self._draft = draft
        self._settings = own = draft.settings
        self._numbers = Numbers([prompt.seed for prompt in prompts])
        self._vokens = torch.tensor(draft.vocabulary.vokens, device=device)
        self.run = Run(draft.vocabulary.begin_image, VOKENS)
        # Upstream's leading id is penalised like what is generated.
        leading = [[own.leading_id]] * len(prompts)
        self._seen = seen_ids(leading, len(draft.table), device)
        self._length = self.count([prompt.length for prompt in prompts])
        """Positions of prompt and answer; an image takes eight."""
        self._written = self.count()
        """Sampled ids; an image is one."""
        self._place = self.count()
        """How many vokens of the current image have been fed; 0 in text."""
        self._images = self.count()
        """Those that have begun."""
        self._is_last = torch.zeros_like(self.goes_on)
        """Whether the current image ends the answer."""
        marks = draft.vocabulary.stops
        self._marks = [torch.tensor(mark, device=device) for mark in marks]
        self._latest = self.count(NONE)[:, None].repeat(1, max(map(len, marks)))
        """The last ids, as many as a mark may have: (records, ids)."""
        # One image more than an answer has: for the states of records that write text.
        places = (min(own.max_images, own.max_new_tokens) + 1) * VOKENS
        width = draft.table.shape[1]
        self.states = draft.table.new_zeros(len(prompts), places, width)
        """Of all images, in order: (records, places, width)."""

    def move(self, states: Tensor, at: Tensor, going: Tensor) -> Move:
        """Return the next ids of records that write; in images, only what is fed.

        All that is worked with has an entry for each record: (records,).
        """
        (state,) = states
        place = self._place[at]
        drawing = going & (place > 0) & (place < VOKENS)
        # Its last voken has no state of the image, and need not be computed.
        ends_with_image = going & (place >= VOKENS - 1) & self._is_last[at]
        samples = going & ~drawing & ~ends_with_image
        sampled, sound = self._sample(state, at, samples)
        begins = samples & (sampled == self._vokens[0])
        self._collect(state, at, drawing, begins)
        mark_seen(self._seen, at, sampled, samples)
        self._place[at] = (place + 1).where(drawing, begins.long()).where(going, place)

        # An image that begins is finished, also where its `[IMG0]` reaches a limit.
        reaches_end = self._note_sampled(at, sampled, samples, begins)
        self._is_last[at] = reaches_end
        ends = ends_with_image | (samples & ~begins & reaches_end)
        written = sampled.where(samples, NONE)
        fed = self._vokens[place.clamp(max=VOKENS - 1)].where(drawing, sampled)
        return Move(written, fed, ends, samples & ~sound)

    def _note_sampled(
        self, at: Tensor, sampled: Tensor, samples: Tensor, begins: Tensor
    ) -> Tensor:
        """Count what was sampled, and return which answers it ends: (records,)."""
        written = self._written[at] + samples
        self._written[at] = written
        length = self._length[at] + samples + begins * (VOKENS - 1)
        self._length[at] = length
        before = self._latest[at]
        latest = torch.cat([before[:, 1:], sampled[:, None]], dim=1)
        latest = latest.where(samples[:, None], before)
        self._latest[at] = latest
        ends: Tensor = latest[:, -1] == self._settings.end_id
        ends = ends | (written >= self._settings.max_new_tokens)
        ends = ends | (length >= self._draft.context)
        for mark in self._marks:
            ends = ends | (latest[:, -len(mark) :] == mark).all(dim=-1)
        return ends

    def _collect(self, state: Tensor, at: Tensor, drawing: Tensor, begins: Tensor) -> None:
        """Keep the state before an image, and those at its vokens but the last."""
        images = self._images[at]
        place = (images - 1) * VOKENS + self._place[at]
        place = (images * VOKENS).where(begins, place)
        # Records that write text are written too, where no image is: choosing among them
        # would make the device wait for the host.
        spare = self.states.shape[1] - 1
        self.states[at, place.where(begins | drawing, spare)] = state
        self._images[at] = images + begins

    def _sample(self, state: Tensor, at: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids (records,) by states (records, width), and which are by numbers."""
        begin = self._draft.vocabulary.begin_image
        logits = self._draft.model.lm_head(state).float()
        penalty = self._settings.repetition_penalty
        logits = penalise(logits, self._seen[at], penalty)
        images = self._images[at]
        fits = self._length[at] + VOKENS <= self._draft.context
        may_begin = fits & (images < self._settings.max_images)
        if self._settings.force_image:
            must_begin = may_begin & (images == 0)
            logits[:, :begin].masked_fill_(must_begin[:, None], -torch.inf)
            logits[:, begin + 1 :].masked_fill_(must_begin[:, None], -torch.inf)
        logits[:, begin].masked_fill_(~may_begin, -torch.inf)
        draw = partial(self._numbers.draw, at, samples)
        return self._draft.sampler.choose(logits, draw), are_numbers(logits)

    def rest(self, at: Tensor, tokens: int) -> Tensor:
        """Return embeddings (records, tokens, width) of the next vokens of images."""
        places = self._place[at][:, None] + torch.arange(tokens, device=self.device)
        return self._draft.table[self._vokens[places]]

    def pass_by(self, states: Tensor, at: Tensor) -> None:
        """Keep the states (records, tokens, width) at vokens before an image's last one."""
        place = self._place[at]
        tokens = states.shape[1]
        first = (self._images[at] - 1) * VOKENS + place
        places = first[:, None] + torch.arange(tokens, device=self.device)
        self.states[at[:, None], places] = states
        self._place[at] = place + tokens

    def embed(self, ids: Tensor) -> Tensor:
        """Return embeddings (records, width) of ids."""
        return self._draft.embed_tokens(ids)
