"""Settings of a rubric judge; with its texts, everything that makes or reads a request."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Mode = Literal["corrected", "official"]
OFFICIAL = "official:"
"""Prefix of `rubric` before the path of the released prompts.py."""


class JudgeSettings(BaseModel):
    """What a judge is asked and how its reply is read.

    None of it enters a key by itself: the request, which is the chat stage's input, does.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rubric: str = "own"
    """`own`, our wording with a verdict for each criterion, or `official:PATH`: the
    user's copy of prompts.py (github.com/Lillianwei-h/MMIE), or the folder it lies in."""
    mode: Mode = "corrected"
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
    def _known(cls, rubric: str) -> str:
        if rubric != "own" and not rubric.removeprefix(OFFICIAL).strip():
            raise ValueError("official: must be followed by the path of prompts.py")
        if rubric != "own" and not rubric.startswith(OFFICIAL):
            raise ValueError("a rubric is 'own' or 'official:PATH'")
        return rubric

    @model_validator(mode="after")
    def _as_released(self) -> Self:
        if self.mode == "corrected":
            return self
        if self.official_path is None:
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
    def official_path(self) -> str | None:
        """Where the released prompts.py lies; None for our own rubrics."""
        return None if self.rubric == "own" else self.rubric.removeprefix(OFFICIAL)

    @property
    def most_retries(self) -> int:
        """Follow-up questions after replies that cannot be read."""
        if self.retries is not None:
            return self.retries
        return 1 if self.mode == "corrected" else 0
