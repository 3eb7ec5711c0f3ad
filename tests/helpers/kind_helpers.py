"""A stage of each kind without a model, and records of it that an earlier version made.

`data/former_records/` has a part for each kind, named by it. plait at faec6352, which did
not know the kinds `transform` and `logprobs`, wrote them by `encode` and `Store.commit`:
under the kind in `FORMER`, for the inputs that stand beside `EXAMPLES`.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paths import DATA

from plait.generators.base import Kind, Outcome, Placement, Result, StageInput, StageSpec
from plait.generators.document import (
    Candidate,
    Document,
    Draft,
    Embedding,
    Image,
    ImageRequest,
    LogprobsRequest,
    Payload,
    Request,
    Score,
    Text,
    TransformRequest,
    Turn,
    WindowedText,
)
from plait.generators.logprobs import AnswerTokens, Logprobs

FORMER = {Kind.TRANSFORM: Kind.RENDER, Kind.LOGPROBS: Kind.SCORE}
"""The kind that a stage had before its own was told apart."""
RED = Image.of(b"\x89PNG red")
BLUE = Image.of(b"\x89PNG blue")
WORDS = (Text("Is it red?"),)
YES_OR_NO = Logprobs(
    {
        "Yes": AnswerTokens((7,), (-0.25,)),
        "No, not at all": AnswerTokens((8, 2), (-1.5, -0.125)),
    }
)

Examples = Sequence[tuple[StageInput, Any]]
EXAMPLES: dict[Kind, Examples] = {
    Kind.DRAFT: [
        (Request((Turn("user", (*WORDS, RED)),), 3), Draft((Text("Yes."), RED))),
    ],
    Kind.CONDITION: [
        (ImageRequest("red", context=(RED,), seed=3), Payload.of(b"conditioning")),
    ],
    Kind.RENDER: [(ImageRequest("red", seed=3), RED)],
    # ImageRequest(context=(RED,)), ImageRequest(context=(RED, BLUE))
    Kind.TRANSFORM: [
        (TransformRequest(RED), BLUE),
        (TransformRequest(RED, (BLUE,)), RED),
    ],
    Kind.SCORE: [
        (Candidate(Document((*WORDS, RED)), WORDS), Score(0.5, {"pairs": [0.5]})),
    ],
    # Candidate(Document((RED,)), WORDS, answers=("Yes", "No, not at all"))
    Kind.LOGPROBS: [
        (LogprobsRequest((RED,), WORDS, (*YES_OR_NO.answers,)), YES_OR_NO),
    ],
    # Candidate(Document((RED,))), Candidate(Document(WORDS)), and the latter with
    # question=(Text(""),) and with question=(Text("A photo of"),)
    Kind.EMBED: [
        (RED, Embedding(bytes(4))),
        (WORDS[0], Embedding(bytes(8))),
        (WindowedText(WORDS[0].text, ""), Embedding(bytes(12))),
        (WindowedText(WORDS[0].text, "A photo of"), Embedding(bytes(16))),
    ],
}
"""What stages of each kind are given, and what this one gives of it."""


def spec_of(kind: Kind) -> StageSpec:
    return StageSpec(
        name=kind,
        kind=kind,
        keyed_as=FORMER.get(kind),
        target="kind_helpers:Giver",
        stage=f"given-{kind}",
        options={"kind": kind.value},
        placement=Placement(num_cpus=0.1, batch_size=4),
    )


class Giver:
    """Gives what stands beside its input among the examples of a kind."""

    def __init__(self, kind: str) -> None:
        self.kind = Kind(kind)

    def __call__(self, inputs: Sequence[StageInput]) -> list[Outcome[Any]]:
        return [Result(self._value(given)) for given in inputs]

    def _value(self, given: StageInput) -> Any:
        return next(value for own, value in EXAMPLES[self.kind] if own == given)


def copy_former_part(kind: Kind, root: Path) -> Path:
    """Put the part of an earlier version where a store in `root` looks for it."""
    part = DATA / "former_records" / f"{kind}.parquet"
    digest = hashlib.sha256(part.read_bytes()).hexdigest()
    folder = root / "stages" / spec_of(kind).folder
    folder.mkdir(parents=True)
    return Path(shutil.copy(part, folder / f"part-{digest}.parquet"))
