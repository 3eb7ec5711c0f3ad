"""The drafting stage of BAGEL: a conversation in, text out."""

from __future__ import annotations

from typing import Any

from plait.generators.bagel.contexts import (
    ImagePiece,
    Piece,
    TextPiece,
    length_of,
    see,
    typical,
)
from plait.generators.bagel.models import START, load
from plait.generators.bagel.settings import BagelDraftSettings, terms_of
from plait.generators.bagel.writing import (
    THINK_AND_ANSWER,
    BagelPrompt,
    BagelWriting,
    display,
)
from plait.generators.base import Failure, Fault, Result, Skip, Weights
from plait.generators.content import unanswerable
from plait.generators.decoding.drafting import (
    Drafting,
    LimitedTrack,
    NativePrompt,
    too_long,
)
from plait.generators.document import Content, Draft, Request, Text, Turn
from plait.generators.images import ImageError, decode
from plait.generators.rounds import continue_turns
from plait.generators.thoughts import separate


class BagelDraft(BagelWriting, Drafting[LimitedTrack]):
    """Writes answers; takes the fields of `BagelDraftSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = own = BagelDraftSettings(**settings)
        self.write_with(load(own, weights, False, True), own, own.max_new_tokens)

    def prompt(self, request: Request) -> BagelPrompt | Skip | Failure:
        """Return the request as the model reads it, or why it cannot be answered."""
        if failure := unanswerable(request, self.settings.is_seeded()):
            return failure
        terms = self._terms(request)
        try:
            pieces = tuple(map(self._piece, terms))
        except ImageError as error:
            return Failure(str(error))
        # One more for the mark that the answer begins with.
        length = length_of(pieces) + 1
        of_images = [len(piece) for piece in pieces if isinstance(piece, ImagePiece)]
        images = len(of_images)
        each = typical(of_images, self.bagel.size.seen.across**2 + 2)
        if skip := too_long(length, images, each, self.context):
            return skip
        shown = display(terms) + START
        return BagelPrompt((), shown, length, images, request.seed or 0, pieces)

    def _terms(self, request: Request) -> Content:
        turns, answer = continue_turns(request.turns, "answer", self.settings.feed_images)
        first = (Text(THINK_AND_ANSWER),) if self.settings.think else ()
        return (*first, *terms_of([*turns, Turn("assistant", answer)]))

    def _piece(self, term: Any) -> Piece:
        if isinstance(term, Text):
            return TextPiece(self.bagel.encode(term.text))
        # Upstream scales it for the autoencoder first, also where it is only seen.
        return see(self.bagel.size.drawn.resize(decode(term)), self.bagel)

    def result(self, prompt: NativePrompt, track: LimitedTrack) -> Result[Draft] | Failure:
        """Return the result of a finished answer; a thought is noted, not answered."""
        made = super().result(prompt, track)
        reply = separate(self.text_of(track))
        if not isinstance(made, Result):
            return made
        notes = dict(made.notes)
        if reply.thought:
            notes["thought"] = reply.thought
        if reply.loss:
            reason = f"{reply.loss} ({track.stop}); raise max_new_tokens"
            return Failure(reason, Fault.ERROR, made.usage, notes)
        return Result(made.value, made.usage, notes)

    def _segments(self, track: LimitedTrack) -> list[Text]:
        text = separate(self.text_of(track)).text.strip()
        return [Text(text)] if text else []
