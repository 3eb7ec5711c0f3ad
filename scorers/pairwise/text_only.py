"""Creation-MMBench-TO: questions whose pictures are replaced by a description.

Systems are asked the text-only sample; judges are shown the original one. The two lines
around a description are Figure 30 of the paper's appendix.
"""

from __future__ import annotations

from dataclasses import replace

from generators.base import Job, Result, StageSpec, Walk
from generators.content import joined
from generators.document import Request, Sample, Text, Turn
from scorers.pairwise.filling import pictures, spaced
from scorers.pairwise.wording import DESCRIBE

DESCRIPTION = "image_description"
"""Metadata of a sample: what its pictures show."""
_BEFORE = (
    "This question does not provide images, only descriptions of images by a large "
    "language model. Please answer based on the descriptions.\n"
    "Description of the image: "
)


def text_only(sample: Sample, description: str | None = None) -> Sample:
    """`sample` without pictures and with `description` after its last user turn's text.

    The description is taken from the sample's metadata where none is given. Raises
    ValueError where a sample with pictures has none.
    """
    if not pictures(sample.question):
        return sample
    description = description or sample.metadata.get(DESCRIPTION)
    if not description:
        raise ValueError(f"sample {sample.id!r} has pictures and no {DESCRIPTION!r}")
    last = max(i for i, t in enumerate(sample.turns) if t.role == "user")
    turns = [
        _described(t, description if i == last else "") for i, t in enumerate(sample.turns)
    ]
    return replace(sample, turns=tuple(turns))


def _described(turn: Turn, description: str) -> Turn:
    kept = spaced(tuple(s for s in turn.content if isinstance(s, Text)))
    added = f"\n{_BEFORE}{description}" if description else ""
    return Turn(turn.role, joined((*kept, Text(added))))


def describe(sample: Sample, chat: StageSpec, seed: int | None = None) -> Walk[str]:
    """Walk to a description of the sample's pictures, asking the stage `chat`."""
    content = (*pictures(sample.question), Text(DESCRIBE))
    request = Request((Turn("user", content),), seed if chat.seeded else None)
    outcome = (yield [Job(chat, request, sample.id)])[0]
    if not isinstance(outcome, Result):
        return outcome
    return Result(outcome.value.text)
