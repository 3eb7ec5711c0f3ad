"""The drafting stage of GILL: a question in, text and the states of images out.

Upstream runs one record and recomputes its whole sequence, keeping the states of all
layers, for every token (`GILLModel.generate`, gill/models.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import takewhile
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
    pieces_of,
)
from plait.generators.decoding.payloads import pack
from plait.generators.decoding.rules import Move, Rules
from plait.generators.decoding.sampling import (
    NO_NUMBERS,
    NONE,
    Numbers,
    Sampler,
    are_numbers,
)
from plait.generators.decoding.streams import Streams
from plait.generators.document import Image, ImageRequest, Request, Text, Turn
from plait.generators.gill.models import GillTokens, load_models
from plait.generators.gill.settings import GillDraftSettings


def pieces(turns: Sequence[Turn], settings: GillDraftSettings, vokens: str) -> list[Piece]:
    """Return text and images of a prompt, each text to be tokenized separately.

    A user's turn is `Q: ...`, newline, `A:`, after its leading images; an earlier
    answer is followed by a newline; a system turn is left as it is
    (`generate_dialogue`, GILL_Inference_Examples.ipynb). `vokens` are the names of all
    image tokens.
    """
    prompt: list[Piece] = []
    for turn in turns:
        content = pieces_of(turn.content)
        match turn.role:
            case "user":
                prompt += _question(content, settings.question, settings.answer)
            case "assistant":
                if settings.history_images == "vokens":
                    content = [_spell_images(content, vokens)]
                prompt += _with_end(content, settings.answer_end)
            case "system":
                prompt += content
    return [piece for piece in prompt if piece != ""]


def _spell_images(content: Iterable[Piece], vokens: str) -> str:
    """Return one text, with the names of the image tokens in the place of each image."""
    text = ""
    for piece in content:
        text += piece if isinstance(piece, str) else f" {vokens}"
    return text


def _question(content: list[Piece], before: str, after: str) -> list[Piece]:
    """Return a user's turn: leading images, then its text between two marks."""
    images = list(takewhile(lambda piece: not isinstance(piece, str), content))
    first, *others = content[len(images) :] or [""]
    return _with_end([*images, f"{before}{first}", *others], after)


def _with_end(content: list[Piece], end: str) -> list[Piece]:
    """Return the content with `end` joined to its last text, or after its last image."""
    if content and isinstance(content[-1], str):
        return [*content[:-1], content[-1] + end]
    return [*content, end]


class GillTrack(Track):
    """The answer of one record, and what may come next.

    After [IMG0] the other image tokens are forced. The states of all of them, each read
    one step after its token was fed, are the image. Upstream cuts an answer afterwards,
    at full length: at the newline that ends it, and after its last image. Here it stops
    as soon as the cut is certain.
    """

    def __init__(
        self,
        prompt: NativePrompt,
        context: int,
        tokens: GillTokens,
        settings: GillDraftSettings,
    ) -> None:
        super().__init__(prompt, context)
        self.tokens = tokens
        self.settings = settings
        self.images: list[Tensor] = []
        """States (vokens, width) of each finished image."""
        self.steps = 0
        """Sampled tokens; an image counts as one."""
        self._states: list[Tensor] = []

    def read(self, state: Tensor) -> None:
        """Collect the model's state (width,) at the last token."""
        if not self.ids or self.ids[-1] not in self.tokens.vokens:
            return
        self._states.append(state)
        if len(self._states) == len(self.tokens.vokens):
            self.images.append(torch.stack(self._states))
            self._states = []
            self._stop_at_limits()
            last = len(self.images) >= self.settings.max_num_rets
            if last and not self.settings.trailing_text:
                self.stop = Stop.IMAGES

    def take(self, token: int) -> None:
        """Append the next token."""
        if self._ends(token):
            self.stop = Stop.LINE
            return
        self.ids.append(token)
        if self._states:
            # Forced, within an image that was counted when it began.
            return
        self.steps += 1
        # An image that has begun is finished before the limits count.
        if token != self.tokens.vokens[0]:
            self._stop_at_limits()

    def _ends(self, token: int) -> bool:
        """Return whether this token is a newline that ends the answer."""
        if token != self.tokens.newline or self.settings.newline == "never":
            return False
        if self.settings.newline == "upstream":
            return bool(self.ids) and self.ids[0] != token
        return any(earlier != token for earlier in self.ids)

    def _stop_at_limits(self) -> None:
        if self.steps >= self.settings.num_words:
            self.stop = Stop.WORDS
        elif self.length >= self.context:
            self.stop = Stop.CONTEXT


class GillDraft(InterleavedDraft[GillTrack]):
    """Writes interleaved answers; takes the fields of `GillDraftSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = own = GillDraftSettings(**settings)
        decoder, self.tokens, self.vision = load_models(weights, own)
        self.each = self.vision.tokens
        self._use(decoder)
        about = (self.context, self.tokens, own)
        self.track = lambda prompt: GillTrack(prompt, *about)
        greedy = own.temperature == 0
        self.sampler = Sampler(own.temperature or 1.0, own.top_p, greedy)
        self.scales = (own.ret_scale_factor, own.gen_scale_factor)
        """Each above 1 makes the logit of [IMG0] its absolute value times the scale."""

    def _parts(self, request: Request) -> list[Piece]:
        return pieces(request.turns, self.settings, self.tokens.voken_names)

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return ids of each text; the first, or every one, begins with the BOS."""
        tokenized: list[list[int]] = []
        for text in texts:
            begins = self.settings.always_add_bos or not tokenized
            bos = [self.tokens.bos] if begins else []
            tokenized.append(bos + self.tokens.encode(text))
        return tokenized

    def _read(self, image: Image) -> Tensor:
        return self.vision.pixels(image, self.settings.resize)

    def _encode(self, pixels: Tensor) -> Tensor:
        return self.vision(pixels)

    def _rules(self, prompts: Sequence[NativePrompt], streams: Streams) -> GillRules:
        return GillRules(self, prompts, streams.device)

    def _track_of(
        self, record: int, prompt: NativePrompt, written: Written, rules: Rules
    ) -> GillTrack:
        assert isinstance(rules, GillRules)
        track = self.track(prompt)
        states = iter(rules.states[record])
        for token in written.tokens:
            track.take(token)
            if token in self.tokens.vokens and track.stop is None:
                track.read(next(states))
        if written.broken:
            track.stop = NO_NUMBERS
        return track

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits (rows, ids) in float32 of states (rows, width)."""
        return (hidden @ self.table.T).float()

    def _segments(self, track: GillTrack) -> list[Segment]:
        settings = self.settings
        tokens = self.tokens
        vokens = self.embeddings(tokens.vokens).float()
        runs = self._runs(track, settings.show_vokens)
        segments: list[Segment] = []
        # One run more than images: the text after the last one.
        for run, states in zip(runs, track.images, strict=False):
            text = self._cut(tokens.decode(run))
            text = f"{text} {tokens.voken_names}" if settings.show_vokens else text
            # The mapper reads the sums of states and embeddings (`TextFcLayer`).
            payload = pack(states=states.float() + vokens)
            segments += [*_text_segments(text), ImageRequest(payload=payload)]
        if settings.trailing_text or not track.images:
            segments += _text_segments(self._cut(tokens.decode(runs[-1])))
        return segments

    def _details(self, track: GillTrack) -> tuple[dict[str, float], dict[str, Any]]:
        """Note the whole answer for people, with a mark for each image."""
        runs = self._runs(track, named=False)
        return {}, {"written": self.mark.join(self.tokens.decode(run) for run in runs)}

    def _cut(self, text: str) -> str:
        return first_sentence(text) if self.settings.truncate_caption else text

    def _runs(self, track: GillTrack, named: bool) -> list[list[int]]:
        """Return ids before each image, and after the last.

        `named` runs begin with the tokens of the image before them, all but [IMG0].
        """
        first, *others = self.tokens.vokens
        runs: list[list[int]] = [[]]
        for token in track.ids:
            if token == first:
                runs.append([])
            elif named or token not in others:
                runs[-1].append(token)
        return runs


class GillRules(Rules):
    """What `GillTrack` takes next, for the records of a batch.

    A record writes text, whose tokens are sampled, or is within an image, whose tokens
    after [IMG0] are forced. The state at each image token is kept for the renderer.
    """

    def __init__(
        self, draft: GillDraft, prompts: Sequence[NativePrompt], device: torch.device
    ) -> None:
        super().__init__(len(prompts), device)
        self._draft = draft
        self._settings = own = draft.settings
        self._numbers = Numbers([prompt.seed for prompt in prompts])
        self._vokens = torch.tensor(draft.tokens.vokens, device=device)
        self._length = self.count([prompt.length for prompt in prompts])
        """Positions of prompt and answer."""
        self._steps = self.count()
        """Sampled tokens; an image counts as one."""
        self._place = self.count()
        """How many tokens of the current image have been fed; 0 in text."""
        self._images = self.count()
        """Whole ones."""
        self._may_end = torch.zeros_like(self.goes_on)
        """Whether a newline ends the answer, by the tokens before it."""
        self._has_begun = torch.zeros_like(self.goes_on)
        # One place more than images have: for the states of records that write text.
        places = own.max_num_rets * len(self._vokens) + 1
        width = draft.table.shape[1]
        self.states = draft.table.new_zeros(len(prompts), places, width)
        """Of the tokens of all images, in order: (records, places, width)."""

    def move(self, states: Tensor, at: Tensor, going: Tensor) -> Move:
        """Return the tokens after these states, which belong to the tokens before.

        All that is worked with has an entry for each record: (records,).
        """
        (state,) = states
        place = self._place[at]
        images = self._images[at]
        length = self._length[at]
        steps = self._steps[at]
        vokens = len(self._vokens)

        # An image token was read: its state is the image's, and the last one's the last.
        in_image = going & (place > 0)
        self._keep(state, at, images * vokens + place - 1, in_image)
        whole = in_image & (place == vokens)
        images = images + whole
        ends_with_image = whole & self._is_at_limit(length, steps)
        if not self._settings.trailing_text:
            ends_with_image |= whole & (images >= self._settings.max_num_rets)

        # What comes next: the next token of the image, or a sampled one.
        forced = in_image & ~whole
        samples = going & ~forced & ~ends_with_image
        sampled, sound = self._sample(state, at, samples, images)
        tokens = self._vokens[place.clamp(max=vokens - 1)].where(forced, sampled)
        begins = samples & (tokens == self._vokens[0])

        # The newline that ends an answer is no part of it.
        is_newline = tokens == self._draft.tokens.newline
        ends_line = samples & is_newline & self._may_end[at]
        wrote = going & ~ends_with_image & ~ends_line
        self._note_words(at, wrote & ~is_newline)

        length = length + wrote
        steps = steps + (wrote & samples)
        self._images[at] = images
        self._place[at] = (place + 1).where(forced, begins.long()).where(going, place)
        self._length[at] = length
        self._steps[at] = steps
        # An image that begins here is finished first.
        ends_full = wrote & samples & ~begins & self._is_at_limit(length, steps)
        ends = ends_with_image | ends_line | ends_full
        written = tokens.where(~ends_with_image, NONE)
        return Move(written, tokens, ends, samples & ~sound)

    def _keep(self, state: Tensor, at: Tensor, places: Tensor, kept: Tensor) -> None:
        """Keep the states (records, width) of some records, by their places."""
        # All records are written, to the spare place where nothing is to be kept: choosing
        # among them would make the device wait for the host.
        spare = self.states.shape[1] - 1
        self.states[at, places.where(kept, spare)] = state

    def _is_at_limit(self, length: Tensor, steps: Tensor) -> Tensor:
        is_full = length >= self._draft.context
        return torch.logical_or(steps >= self._settings.num_words, is_full)

    def _note_words(self, at: Tensor, words: Tensor) -> None:
        """Note whether a newline will end the answer, after tokens that are none."""
        if self._settings.newline == "never":
            return
        if self._settings.newline == "upstream":
            # Only the first token counts.
            words = words & ~self._has_begun[at]
            self._has_begun[at] = True
        self._may_end[at] = self._may_end[at] | words

    def _sample(
        self, state: Tensor, at: Tensor, samples: Tensor, images: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return tokens (records,) by states (records, width), and which are by numbers.

        The first image token is scaled or forbidden, and the others never chosen.
        """
        first = self._draft.tokens.vokens[0]
        logits = self._draft.logits(state)
        # The ids of an image's tokens follow one another.
        logits[:, first + 1 : first + len(self._vokens)] = -torch.inf
        for scale in self._draft.scales:
            if scale > 1:
                logits[:, first] = logits[:, first].abs() * scale
        fits = self._length[at] + len(self._vokens) <= self._draft.context
        late = self._steps[at] >= self._settings.min_word_tokens
        may_begin = fits & late & (images < self._settings.max_num_rets)
        logits[:, first].masked_fill_(~may_begin, -torch.inf)
        draw = partial(self._numbers.draw, at, samples)
        return self._draft.sampler.choose(logits, draw), are_numbers(logits)

    def embed(self, ids: Tensor) -> Tensor:
        """Return embeddings (records, width) of ids."""
        return self._draft.embed_tokens(ids)


def first_sentence(text: str) -> str:
    """Return the first non-empty line, else the text up to its first full stop.

    Each with the character that ends it (`truncate_caption`, gill/utils.py).
    """
    text = text.strip("\n")
    end = "\n" if "\n" in text else "."
    before, mark, _ = text.partition(end)
    return before + mark


def _text_segments(text: str) -> list[Text]:
    return [Text(text)] if text.strip() else []
