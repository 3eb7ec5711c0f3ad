"""Requests that were handed in to a provider's batch and have no record yet.

A file of the run directory stands for each batch: written before the batch is handed in,
with its id once there is one, and gone when all its requests have a record. So a driver
that ends at any moment leaves behind what the next one has to know. Standard library only:
workers import it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

from plait.generators.buckets import AnyPath, matching
from plait.generators.document import Request, Text, content_of_turns
from plait.generators.errors import UsageError
from plait.generators.files import write_whole

FOLDER = "batches"
"""Of a run directory."""
BATCH_PRICE = 0.5
"""What providers take of a request in a batch, as a part of its usual price (OpenAI and
Gemini, in their lists of prices)."""
_CHARACTERS_A_TOKEN = 3.0
"""Fewer than texts have in most languages, so that what is reserved is seldom too low."""
_TOKENS_AN_IMAGE = 1600
"""About what an image of 2048 pixels a side takes at most."""
_LONGEST_ANSWER = 4096
"""Tokens that are reserved where an answer has no limit."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Stands for an outcome that a later command collects."""

    batch: str
    """Id of the batch, by the provider."""


class Asked(NamedTuple):
    """A request that is to be answered by a batch."""

    label: str
    """Id of its query."""
    read: Callable[[], Any]
    """Returns it with its bytes, or the failure that it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedRequest:
    """One request of a batch."""

    label: str
    """Id of its query."""
    tokens: float
    """That it may take at most, as estimated."""
    cost: float | None = None
    """Likewise; None without prices."""

    @classmethod
    def from_json(cls, plain: Any) -> HandedRequest:
        """Return what a file says of a request; ValueError or TypeError for no request."""
        one = cls(**plain)
        if not isinstance(one.label, str):
            raise ValueError("the label of a request is no text")
        for amount in (one.tokens, one.cost or 0.0):
            is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not is_number or amount < 0:
                raise ValueError(f"{amount!r} is no number from 0")
        return one


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedBatch:
    """What the file of a batch says."""

    name: str
    """By which plait finds the batch at the provider."""
    stage: str
    """Digest of the stage that asks."""
    stage_name: str
    made: str
    """UTC, ISO 8601."""
    id: str | None = None
    """By the provider; None until it is known that there is one."""
    requests: Mapping[str, HandedRequest]
    """By the key of the record, those that have none yet."""

    @classmethod
    def from_json(cls, text: str) -> HandedBatch:
        """Return what a file says; ValueError or TypeError for one that is of no batch."""
        plain = json.loads(text)
        requests = {}
        for key, request in plain.pop("requests").items():
            requests[key] = HandedRequest.from_json(request)
        batch = cls(**plain, requests=requests)
        texts = (batch.name, batch.stage, batch.stage_name, batch.made, batch.id or "")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a name, stage, time or id is no text")
        return batch

    @classmethod
    def of(
        cls, stage: str, stage_name: str, requests: Mapping[str, HandedRequest]
    ) -> HandedBatch:
        """Return a batch that is to be handed in."""
        return cls(
            name=f"plait-{uuid4().hex}",
            stage=stage,
            stage_name=stage_name,
            made=datetime.now(UTC).isoformat(timespec="microseconds"),
            requests=requests,
        )

    def place(self, root: AnyPath) -> AnyPath:
        """Return its file in a run directory."""
        return root / FOLDER / f"{self.name}.json"

    def save(self, root: AnyPath) -> None:
        """Write its file, or remove that of a batch without requests; WriteError."""
        place = self.place(root)
        if not self.requests:
            place.unlink(missing_ok=True)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, json.dumps(asdict(self), indent=1, ensure_ascii=False))


def handed_batches(root: AnyPath) -> list[HandedBatch]:
    """Return all batches of a run directory, in the order in which they were made.

    UsageError for a file that is none of a batch.
    """
    batches: list[HandedBatch] = []
    for place in matching(root, f"{FOLDER}/*.json"):
        try:
            batches.append(HandedBatch.from_json(place.read_text()))
        except FileNotFoundError:
            continue  # collected meanwhile by the driver of another shard
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise UsageError(
                f"{place} does not describe a batch ({error}): put it back as it was, or "
                "remove it to have its requests handed in again"
            ) from None
    return sorted(batches, key=lambda batch: (batch.made, batch.name))


def most_usage(request: Request, longest: int | None) -> dict[str, float]:
    """Return the tokens that a request may take, estimated before it is handed in.

    The answer counts as if it reached its `longest` length.
    """
    tokens = 0.0
    for segment in content_of_turns(request.turns):
        if isinstance(segment, Text):
            tokens += len(segment.text) / _CHARACTERS_A_TOKEN
        else:
            tokens += _TOKENS_AN_IMAGE
    limits = []
    for limit in (longest, request.max_tokens):
        if limit is not None:
            limits.append(limit)
    answer = min(limits, default=_LONGEST_ANSWER)
    return {"input_tokens": tokens, "output_tokens": float(answer)}
