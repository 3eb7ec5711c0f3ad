"""How the answers that people rated were chosen: what a correction by them depends on.

`plait annotate` draws at random and notes how in its key; `--collect` writes it as
`drawn.json` beside the ratings. It holds for that very file: one that was changed since, or
comes from elsewhere, says nothing of how its answers were chosen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plait.benchmarks.results.table import json_text
from plait.benchmarks.studies.annotations import Unit
from plait.generators.errors import UsageError

DRAWN = "drawn.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A draw at random without replacement, of answers or of pairs of answers."""

    items: int
    """Each counted once, though raters see some twice. Gold items are not among them."""
    of: int
    """Answers, or pairs, that could be drawn."""
    seed: int
    systems: tuple[str, ...]
    """Whose answers could be drawn."""
    pairs: bool
    gold: tuple[Unit, ...] = ()
    """Chosen by hand, which could not be drawn."""

    @property
    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"gold": [list(unit) for unit in self.gold]}

    @classmethod
    def of_json(cls, plain: Mapping[str, Any]) -> Draw:
        """Return the draw that was made plain data."""
        return cls(
            items=plain["items"],
            of=plain["of"],
            seed=plain["seed"],
            systems=tuple(plain["systems"]),
            pairs=plain["pairs"],
            gold=tuple(Unit(*unit) for unit in plain["gold"]),
        )

    def __str__(self) -> str:
        what = "pairs of answers" if self.pairs else "answers"
        return (
            f"drawn at random by plait annotate: {self.items:,} of {self.of:,} {what}, "
            f"seed {self.seed}"
        )


def draw_text(key: Mapping[str, Any], file: str, content: str) -> str | None:
    """Return what `drawn.json` says of a file of ratings with that content.

    None where the key of the page, of an earlier version, does not say how it was drawn.
    """
    if "drawn" not in key:
        return None
    as_written = content.encode("utf-8", "backslashreplace")
    return json_text({"file": file, "sha256": _digest(as_written), **key["drawn"]})


def read_draw(ratings: Path, *, stated: bool = False) -> Draw | None:
    """Return how the answers in a file of ratings were drawn, where that is known.

    UsageError where `drawn.json` cannot be read, or the file was changed since; None where
    it is `stated` otherwise how they were chosen.
    """
    path = ratings.parent / DRAWN
    try:
        plain = json.loads(path.read_text("utf-8"))
        if plain["file"] != ratings.name:
            return None
        digest = plain["sha256"]
        draw = Draw.of_json(plain)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise UsageError(f"{path} does not say how answers were drawn: {error!r}") from None
    if ratings.is_file() and _digest(ratings.read_bytes()) != digest:
        if stated:
            return None
        raise UsageError(
            f"{ratings} was changed since plait annotate --collect wrote it, so {path} "
            "does not say how its answers were chosen; collect again, or state it with "
            "--drawn random or --strata COLUMN"
        )
    return draw


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
