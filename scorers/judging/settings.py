"""What all settings of judges that ask a chat model have: wording, mode and seed."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from plait.generators.base import StageSpec
from plait.scorers.base import Scorer
from plait.scorers.judging.sources import (
    DEFAULT_MODE,
    PLAIT,
    Mode,
    RubricSource,
    parse_rubric,
)


class AskingSettings(BaseModel):
    """Settings of a judge that asks a chat model.

    None of it enters a key by itself: the request, which is the chat stage's input, does.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rubric: str = PLAIT
    """`plait`, our wording; `official:PATH`: the user's copy of the released file, or the
    folder with it; or, for a judge by a rubric, `PATH.toml`: one of the user's own."""
    mode: Mode = DEFAULT_MODE
    """`official` asks and reads as the released program does, quirks included; `corrected`
    shows the answer whole and drops nothing silently."""
    seed: int = Field(default=0, ge=0)
    """Of the chat stage's sampling, where it samples: another seed, another judgement."""

    @field_validator("rubric")
    @classmethod
    def _valid(cls, rubric: str) -> str:
        return str(parse_rubric(rubric))

    @property
    def source(self) -> RubricSource:
        """Where the wording comes from."""
        return parse_rubric(self.rubric)

    def judge(self, name: str, stage: StageSpec) -> Scorer:
        """Return the judge `name` that asks `stage`; UsageError where it cannot be."""
        raise NotImplementedError
