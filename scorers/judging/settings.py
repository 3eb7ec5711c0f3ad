"""Settings of a rubric judge; with its texts, everything that makes or reads a request."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from scorers.judging.rubric import DEFAULT_MODE, Mode, RubricSource, parse_rubric


class JudgeSettings(BaseModel):
    """What a judge is asked and how its reply is read.

    None of it enters a key by itself: the request, which is the chat stage's input, does.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rubric: str = "own"
    """`own`, our wording with a verdict for each criterion, or `official:PATH`: the
    user's copy of prompts.py (github.com/Lillianwei-h/MMIE), or the folder it lies in."""
    mode: Mode = DEFAULT_MODE
    """`official` flattens, cuts, drops and reads as the released scorer does; `corrected`
    keeps the document's order and all its pictures, and drops nothing silently."""
    retries: int | None = Field(default=None, ge=0, le=5)
    """How often a judge whose reply cannot be read is asked for its verdict again; by
    default once, and never in official mode."""
    max_images: int | None = Field(default=None, ge=1)
    """Most pictures shown, those of the question first; the places of all others are
    marked in the text. By default all are shown."""
    seed: int = Field(default=0, ge=0)
    """Where the chat stage draws its text at random: another seed, another judgement."""

    @field_validator("rubric")
    @classmethod
    def _valid(cls, rubric: str) -> str:
        return str(parse_rubric(rubric))

    @model_validator(mode="after")
    def _as_released(self) -> Self:
        if self.mode == "corrected":
            return self
        if self.source.path is None:
            raise ValueError(
                "mode 'official' needs the released rubrics: rubric 'official:PATH' with "
                "your copy of prompts.py from github.com/Lillianwei-h/MMIE"
            )
        if self.retries:
            raise ValueError("mode 'official' asks once, so retries must be 0")
        if self.max_images is not None:
            raise ValueError("mode 'official' has its own limit; leave max_images out")
        return self

    @property
    def source(self) -> RubricSource:
        """Where the wording comes from."""
        return parse_rubric(self.rubric)

    @property
    def most_retries(self) -> int:
        """Follow-up questions after replies that cannot be read."""
        if self.retries is not None:
            return self.retries
        return 1 if self.mode == "corrected" else 0
