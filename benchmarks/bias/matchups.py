"""What judges preferred between two answers, whoever asked them and however."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.comparing.command import FOLDER, RULINGS
from benchmarks.comparing.judgements import Ruling, Side, read_rulings


@dataclass(frozen=True, slots=True, order=True)
class Judge:
    """A model under one protocol and one wording."""

    name: str
    protocol: str
    """Empty for a judge that scores single documents."""
    mode: str = ""
    wording: str = ""
    stage: str = ""
    """Digest of the model and its settings."""
    namesake: bool = field(default=False, compare=False)
    """Whether a judge of the same name has another model or other settings."""

    @property
    def told(self) -> str:
        """The name, with the stage where it takes that to tell two judges apart."""
        return f"{self.name} [settings {self.stage[:6]}]" if self.namesake else self.name

    @property
    def label(self) -> str:
        """For people."""
        if not self.protocol:
            return self.told
        return f"{self.told} ({self.protocol}, {self.mode}, wording {self.wording[:6]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matchup:
    """Two answers to one question, and by how much a judge prefers the second."""

    question: str
    repeat: int
    first: Side
    second: Side
    preference: float
    """Levels of a verdict, or points of a score; positive for the second."""

    @property
    def about(self) -> tuple[str, int, str, str]:
        """Names the two answers."""
        return self.question, self.repeat, self.first.system, self.second.system

    @property
    def flipped(self) -> "Matchup":
        """The same told the other way round."""
        return replace(
            self, first=self.second, second=self.first, preference=-self.preference
        )


Rulings = Mapping[Judge, Sequence[Ruling]]


def load(root: Path) -> dict[Judge, list[Ruling]]:
    """Preferences that comparisons of the run wrote down, by judge, each once.

    The first side of each is the one whose name sorts first. Where files tell of the same
    reply, one that could be read counts.
    """
    found: dict[Judge, dict[tuple[object, ...], Ruling]] = defaultdict(dict)
    for path in sorted((root / FOLDER).glob(f"*/{RULINGS}")):
        for ruling in map(upright, read_rulings(path)):
            if ruling.aspect != "preference":
                continue
            known = found[_judge(ruling)]
            key = (*_about(ruling), ruling.judging, ruling.swapped)
            if key not in known or known[key].preference is None:
                known[key] = ruling
    stages: dict[str, set[str]] = defaultdict(set)
    for judge in found:
        stages[judge.name].add(judge.stage)
    return {
        replace(judge, namesake=len(stages[judge.name]) > 1): list(known.values())
        for judge, known in sorted(found.items())
    }


def _judge(ruling: Ruling) -> Judge:
    return Judge(ruling.judge, ruling.protocol, ruling.mode, ruling.wording, ruling.stage)


def upright(ruling: Ruling) -> Ruling:
    """The ruling with its sides in the order of their names."""
    if ruling.first.system <= ruling.second.system:
        return ruling
    return replace(
        ruling, first=ruling.second, second=ruling.first, swapped=not ruling.swapped
    )


def _about(ruling: Ruling) -> tuple[str, int, str, str]:
    return ruling.question, ruling.repeat, ruling.first.system, ruling.second.system


def both_orders(rulings: Iterable[Ruling]) -> Iterator[tuple[Ruling, Ruling]]:
    """(as named, swapped) of each pair of answers read in both orders; once per pair."""
    found: dict[tuple[object, ...], dict[bool, Ruling]] = defaultdict(dict)
    for ruling in rulings:
        if ruling.judging == 0 and ruling.preference is not None:
            found[_about(ruling)][ruling.swapped] = ruling
    for orders in found.values():
        if len(orders) == 2:
            yield orders[False], orders[True]


def matchups(rulings: Iterable[Ruling]) -> list[Matchup]:
    """Mean preferences over both orders, so that liking for a position cancels."""
    return [
        Matchup(
            question=ruling.question,
            repeat=ruling.repeat,
            first=ruling.first,
            second=ruling.second,
            preference=sum((r.for_second or 0) for r in (ruling, swapped)) / 2,
        )
        for ruling, swapped in both_orders(rulings)
    ]


def sign(value: float) -> int:
    """-1, 0 or 1."""
    return (value > 0) - (value < 0)


def family(name: str) -> str:
    """The line of models that a name belongs to: `gpt` of `openai:gpt-4o`.

    `qwen` of `hf:Qwen/Qwen2-VL-7B`; empty where the name begins with no letter.
    """
    bare = name.rpartition("/")[2].rpartition(":")[2].lower()
    found = re.match(r"[a-z]+", bare)
    return found[0] if found else ""
