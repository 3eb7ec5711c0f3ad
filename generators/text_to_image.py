"""A text-to-image model alone: what is asked is what it draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from plait.generators.base import Skip, StageSpec, Walk
from plait.generators.document import (
    AnswerForm,
    Content,
    Draft,
    ImageRequest,
    Query,
    content_of_turns,
    images_in,
    texts_in,
)
from plait.generators.rendering import Rendering
from plait.generators.staged import AnswerState, StagedSystem
from plait.generators.system import Limits, Role, Variant


@dataclass(frozen=True, kw_only=True)
class TextToImageAlone(StagedSystem):
    """Draws one image for each turn, from its text; where it edits, from its images too."""

    rendering: Rendering

    variant: ClassVar[Variant] = "plain"

    @property
    def edits(self) -> bool:
        """Whether it draws from the query's images too."""
        return self.rendering.input_images > 0

    @property
    def reads_history(self) -> bool:
        """Whether it edits: what it drew before is then what it goes on from."""
        return self.edits

    @property
    def roles(self) -> Mapping[Role, StageSpec]:
        """The stages that draw."""
        return self.rendering.roles

    @property
    def limits(self) -> Limits:
        """One image for a turn."""
        rendering = self.rendering
        return Limits(
            tries=rendering.tries, looks=rendering.looks, in_turn=rendering.draws_in_turn
        )

    @property
    def opening(self) -> tuple[Any, ...]:
        """Its first stage, and whether it is shown the query's images."""
        return self.stages[0].digest, self.variant, self.edits

    def answer_form(self, query: Query) -> AnswerForm | None:
        """Return one image for each turn; None where it skips the query."""
        if self._reason_to_skip(query, images=bool(images_in(query.question))):
            return None
        return AnswerForm(text=False, images=self.most_images(query))

    def reply_to(self, query: Query, state: AnswerState) -> Walk[Content]:
        """Walk to the image of the last turn."""
        turns = state.repetition.prompt(query, self.variant)
        images = images_in(content_of_turns(turns))
        if reason := self._reason_to_skip(query, images=bool(images)):
            return Skip(reason)
        prompt = "".join(texts_in(turns[-1].content)).strip()
        draft = Draft((ImageRequest(prompt=prompt),))
        # As the query has them, without any that the wording adds.
        seen = images_in(content_of_turns(query.turns))
        return (yield from self.fill(draft, query, state, seen=seen))

    def _reason_to_skip(self, query: Query, *, images: bool) -> str:
        """Say why a query is skipped that shows `images` or none; empty where it is not."""
        if not query.wants_images:
            return "a text-to-image model alone draws, and the query asks for text"
        if self.edits:
            return _reason_not_to_edit(query, self.rendering.input_images)
        if images:
            return "a text-to-image model alone reads text; the query has images"
        return ""


def _reason_not_to_edit(query: Query, most: int) -> str:
    """Say why a query is skipped by what draws from at most so many images of a turn.

    Its first turn must show an image; later ones may be about the answer before them.
    """
    shown: list[int] = []
    for opening in query.openings:
        shown.append(len(images_in(content_of_turns(opening))))
    if not shown or shown[0] == 0:
        return "there is no image to edit: the query begins without one"
    if max(shown) > most:
        return f"the query shows {max(shown)} images at once; input_images is {most}"
    return ""
