"""Where one record stands in the interleaved loop. Plain Python, no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from generators.anole.vocab import Vocabulary


class Stop(StrEnum):
    """Why an answer ends where it does."""

    END = "end of sequence"
    CONTEXT = "context full"
    BUDGET = "text budget reached"


class Mode(StrEnum):
    """What the next token of a record is."""

    TEXT = "text"
    IMAGE = "image"
    CLOSING = "closing"
    """The end-of-image token, which is set, not sampled."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an answer and its parts may be, in tokens."""

    context: int
    image_tokens: int
    """Codes of one picture."""
    max_text_tokens: int
    """Of one run of text; it starts afresh after each picture."""
    max_images: int

    @property
    def picture(self) -> int:
        """Tokens one picture takes in a context, with its two marks."""
        return self.image_tokens + 2


class Track:
    """The tokens of one record, and what may come next.

    Follows the `TextDecoder` and `ImageDecoder` of GAIR-NLP/anole: a picture, once begun,
    is always finished; the text budget counts from the last picture; the end of the
    sequence is only looked for in text.
    """

    def __init__(
        self, prompt: Sequence[int], vocabulary: Vocabulary, limits: Limits
    ) -> None:
        self.vocabulary = vocabulary
        self.limits = limits
        self.ids = list(prompt)
        self.prompt_length = len(self.ids)
        self.mode = Mode.TEXT
        self.images = 0
        self.stop: Stop | None = None
        self._codes = 0
        self._begin_run()

    @property
    def generated(self) -> list[int]:
        """Tokens after the prompt."""
        return self.ids[self.prompt_length :]

    @property
    def may_begin_image(self) -> bool:
        """Whether a whole picture still fits, and the answer may hold one more."""
        fits = len(self.ids) < self.limits.context - self.limits.picture
        return fits and self.images < self.limits.max_images

    def take(self, token: int) -> None:
        """Append the next token and move on."""
        self.ids.append(token)
        match self.mode:
            case Mode.TEXT:
                self._take_text(token)
            case Mode.IMAGE:
                self._codes += 1
                if self._codes == self.limits.image_tokens:
                    self.mode = Mode.CLOSING
            case Mode.CLOSING:
                self.mode = Mode.TEXT
                self._begin_run()

    def guidance_prompts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Contexts of the picture begun: with its pictures only, and with nothing."""
        vocabulary = self.vocabulary
        pictures = tuple(i for i in self.ids if i in vocabulary.guiding)
        return pictures, (vocabulary.bos, vocabulary.begin_image)

    def _take_text(self, token: int) -> None:
        if token == self.vocabulary.begin_image:
            self.mode, self._codes = Mode.IMAGE, 0
            self.images += 1
        elif token == self.vocabulary.eos:
            self.stop = Stop.END
        else:
            self._stop_at_limit()

    def _begin_run(self) -> None:
        self._run_end = len(self.ids) + self.limits.max_text_tokens
        self._stop_at_limit()

    def _stop_at_limit(self) -> None:
        if len(self.ids) >= self.limits.context:
            self.stop = Stop.CONTEXT
        elif len(self.ids) >= self._run_end:
            self.stop = Stop.BUDGET


def split(
    tokens: Sequence[int], vocabulary: Vocabulary
) -> list[tuple[Mode, tuple[int, ...]]]:
    """Generated tokens as runs of text and whole pictures, marks left out."""
    parts: list[tuple[Mode, tuple[int, ...]]] = []
    run: list[int] = []
    mode = Mode.TEXT
    marks = {vocabulary.begin_image: Mode.IMAGE, vocabulary.end_image: Mode.TEXT}
    for token in tokens:
        if token not in marks:
            run.append(token)
            continue
        parts.append((mode, tuple(run)))
        run, mode = [], marks[token]
    parts.append((mode, tuple(run)))
    return [(kind, ids) for kind, ids in parts if ids]
