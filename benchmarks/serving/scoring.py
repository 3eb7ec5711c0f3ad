"""Scores: a request as queries and documents, and outcomes as the reply to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from plait.benchmarks.runs.answers import ScorerVerdict
from plait.benchmarks.serving.chats import decode_image, turns_of
from plait.benchmarks.serving.refusals import RequestRefused
from plait.benchmarks.serving.schemas import (
    ScoreBatch,
    ScoredContent,
    ScoreItem,
    ScoreRequest,
    TextPart,
)
from plait.generators.base import Failure, Fault, Outcome, Walk
from plait.generators.document import Content, Document, Query, Score, Text, Turn
from plait.generators.keys import digest
from plait.generators.names import unknown
from plait.scorers.base import Scorer, admit
from plait.scorers.judging.judge import ChatJudge

Scorers = Mapping[str, Scorer]


class ReadItem(NamedTuple):
    """What is scored."""

    query: Query
    document: Document


@dataclass(frozen=True, kw_only=True)
class AskedScore:
    """One score that a request asks for."""

    scorer: Scorer
    item: ReadItem | Failure
    """What is scored, or why that cannot be read."""

    def walk(self) -> Walk[Score]:
        """Walk to the outcome: that of the same answer in a run."""
        if isinstance(self.item, Failure):
            return self.item
        return (yield from self.scorer.judge(*self.item))

    def reply(self, outcome: Outcome[Score]) -> dict[str, Any]:
        """Return what is told of an outcome; `value` is null unless it is scored."""
        verdict = ScorerVerdict.of(admit(outcome, self.scorer.scale))
        return {
            "scorer": self.scorer.name,
            "digest": digest_of(self.scorer),
            "outcome": verdict.outcome,
            "value": verdict.value,
            "reason": verdict.reason,
            "fault": verdict.fault,
            "parts": _plain(verdict.parts),
        }


def _plain(parts: Mapping[str, Any]) -> Any:
    """Return the parts of a score as JSON has them: without numbers that are not finite."""
    return json.loads(json.dumps(parts, default=str), parse_constant=lambda _: None)


def digest_of(scorer: Scorer) -> str:
    """Return what names a scorer's records: in a run, the digest of its stage.

    Of a scorer with several stages it is a digest of theirs, in chain order.
    """
    digests = [stage.digest for stage in scorer.stages]
    return digests[0] if len(digests) == 1 else digest(digests)


def facts_of(scorer: Scorer) -> dict[str, Any]:
    """Return what `GET /scorers` tells of a scorer."""
    return {
        "name": scorer.name,
        "scale": scorer.scale,
        "direction": scorer.direction,
        "unit": scorer.unit,
        "licence": scorer.licence,
        "manner": scorer.manner,
        "images_only": scorer.images_only,
        "digest": digest_of(scorer),
        "stages": {stage.name: stage.digest for stage in scorer.stages},
    }


def scorers_asked(body: ScoreRequest | ScoreBatch, served: Scorers) -> list[Scorer]:
    """Return the scorer of each item; RequestRefused where it is not served."""
    if isinstance(body, ScoreRequest):
        return [_scorer(body.scorer, served, "scorer")]
    asked = []
    for number, item in enumerate(body.items):
        if item.scorer is None:
            asked.append(_scorer(body.scorer, served, "scorer"))
        else:
            asked.append(_scorer(item.scorer, served, f"items[{number}].scorer"))
    return asked


def _scorer(name: str | None, served: Scorers, where: str) -> Scorer:
    if not served:
        reason = "no scorer is served here: start the server with --scorer NAME"
        raise RequestRefused("scorer_not_found", reason, where)
    if name is None:
        if len(served) > 1:
            reason = f"{where}: several are served; name one of {', '.join(served)}"
            raise RequestRefused("missing", reason, where)
        return next(iter(served.values()))
    if name not in served:
        raise RequestRefused(
            "scorer_not_found", str(unknown("scorer", name, served)), where
        )
    return served[name]


def read_items(body: ScoreRequest | ScoreBatch, scorers: list[Scorer]) -> list[AskedScore]:
    """Return what is asked for, each with its scorer.

    An item of a batch with an image that cannot be read is a failure of its own; a request
    of one such item is a RequestRefused. Decodes all images once: call it outside the event
    loop.
    """
    if isinstance(body, ScoreRequest):
        return [_request_of(body, scorers[0], body.seed, "")]
    asked = []
    for number, (item, scorer) in enumerate(zip(body.items, scorers, strict=True)):
        seed = body.seed if item.seed is None else item.seed
        try:
            one = _request_of(item, scorer, seed, f"items[{number}].")
        except RequestRefused as refused:
            failure = Failure(str(refused.detail), Fault.BAD_INPUT)
            one = AskedScore(scorer=scorer, item=failure)
        asked.append(one)
    return asked


def _request_of(
    item: ScoreItem, scorer: Scorer, seed: int | None, where: str
) -> AskedScore:
    if item.messages is not None:
        turns = turns_of(item.messages, f"{where}messages")
    else:
        turns = (Turn("user", _content(item.query, f"{where}query")),)
    truth = None
    if item.reference is not None:
        truth = Document(_content(item.reference, f"{where}reference"))
    query = Query(
        id=item.id,
        category=item.category,
        field=item.field,
        turns=turns,
        reference=truth,
        criteria=item.criteria,
        wants_images=item.wants_images,
        metadata=item.metadata,
    )
    document = Document(_content(item.answer, f"{where}answer"))
    return AskedScore(scorer=_with_seed(scorer, seed), item=ReadItem(query, document))


def _with_seed(scorer: Scorer, seed: int | None) -> Scorer:
    """Return the scorer with a seed of its own sampling; others have none to change."""
    if seed is None or not isinstance(scorer, ChatJudge):
        return scorer
    return replace(scorer, seed=seed)


def _content(content: ScoredContent | None, where: str) -> Content:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),)
    parts: list[Any] = []
    for number, part in enumerate(content):
        if isinstance(part, TextPart):
            parts.append(Text(part.text))
        else:
            parts.append(decode_image(part.image_url.url, f"{where}[{number}]"))
    return tuple(parts)
