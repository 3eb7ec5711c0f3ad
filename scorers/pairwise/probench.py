"""ProBench: five-level verdicts on three tracks, and ratings with style held equal.

Tracks are single-round, multi-linguistic (an answer in another language than the request
is not correct) and multi-round (one answer per turn, judged together). Constants after
Yan98/ProBench_eval@c17b7ae (engine/constant.py, gen_judgement.py, show_result.py) and
section 2 of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from generators.content import filled, joined
from generators.document import Content, Document, Sample, Turn
from scorers.features import Style, TokenCounter, style, words
from scorers.judging.sources import Mode, checked, constants
from scorers.pairwise import prompts
from scorers.pairwise.games import (
    Aspect,
    Game,
    PairQuestion,
    ParsedReply,
    Standings,
    by_pair,
    groups,
)
from scorers.pairwise.probench_ratings import corrected_rows, official_row
from scorers.pairwise.prompts import (
    as_content,
    history,
    pictures,
    spaced,
    texts,
    user_turns,
    whole,
)
from scorers.pairwise.protocol import DualEvaluation, both_orders
from scorers.pairwise.readers import level, official_forms, official_probench

TRACK = "chat_type"
"""Metadata of a sample: one of `TRACKS`; by default decided by the number of user turns."""
TRACKS = ("singleround", "multi-linguistic", "multi-round")

_DIGESTS = {
    "singleround_system_prompt": (
        "59341618cb7521fcb057cc0c0161c51849e1731171a1c8ab0ea8dc27cb6bf812"
    ),
    "multilinguistic_system_prompt": (
        "c2b12505f8dd44a8cf2a38880d7f932af727783c23c33aa354e3914f6ab5b065"
    ),
    "multiround_system_prompt": (
        "e6323e7f8265855de0ab84707bfdfc8bfd809ba78a9ea8023134213c9062065c"
    ),
}
_PAIR = (
    "Textual Instruction:\n<inst/>\n{question}\n</inst>\n\n"
    "Assistant A's Answer:\n<a/>\n{first}\n</a>\n\n"
    "Assistant B's Answer:\n<b/>\n{second}\n</b>"
)
"""The layout that the published prompts describe (`format_input` in gen_judgement.py)."""
_TURN = "<turn{i}/>\n{pair}\n</turn{i}>"


def _own_wording() -> Mapping[str, str]:
    return prompts.LIKERT


@dataclass(frozen=True, slots=True, kw_only=True)
class ProBench(DualEvaluation):
    """The protocol. Official mode fits each system alone with the baseline."""

    mode: Mode = "corrected"
    wording: Mapping[str, str] = field(default_factory=_own_wording)
    """The judge's task by track."""
    count: TokenCounter = words
    """Counts tokens; the official program's is `features.gpt_tokens()`."""
    strong: int = 3
    """How often a verdict `>>` counts."""
    first_order_only: bool = False
    """Whether to leave out the games that show the pair's second answer first."""
    draws: int = 300
    name: str = "probench"

    @classmethod
    def published(cls, path: Path) -> Mapping[str, str]:
        """The prompts of the user's copy of `constant.py`; UsageError unless published."""
        released = checked(constants(path, "engine/constant.py"), _DIGESTS, path)
        return dict(zip(TRACKS, (released[name] for name in _DIGESTS), strict=True))

    def track(self, sample: Sample) -> str:
        """The sample's track."""
        plain = "multi-round" if len(user_turns(sample)) > 1 else "singleround"
        named = sample.metadata.get(TRACK, plain)
        return named if named in TRACKS else plain

    def requests(
        self, sample: Sample, first: Document, second: Document
    ) -> tuple[PairQuestion, ...]:
        """Both orders of showing.

        The pictures of the question come first officially, else where it has them. A
        document of one answer to several turns answers the last of them, after the
        earlier ones as they were (corrected mode only). ValueError for any other number
        of answers.
        """
        return tuple(
            PairQuestion("preference", swapped, self._turns(sample, a, b))
            for swapped, a, b in both_orders(first, second)
            if not (swapped and self.first_order_only)
        )

    def _turns(self, sample: Sample, first: Document, second: Document) -> tuple[Turn, ...]:
        track = self.track(sample)
        if track == "multi-round" and not self._last_alone(sample, first, second):
            pairs = self._rounds(sample, first, second)
        elif self.mode == "official":
            _matching(sample, first, second)
            pairs = filled(_PAIR, _listed(sample, first, second))
        else:
            last = spaced(user_turns(sample)[-1].content)
            pair = {"question": last, "first": whole(first), "second": whole(second)}
            pairs = joined((*history(sample), *filled(_PAIR, pair)))
        before = pictures(sample.question) if self.mode == "official" else ()
        system = Turn("system", as_content(self.wording[track]))
        return (system, Turn("user", joined((*before, *pairs))))

    def _last_alone(self, sample: Sample, first: Document, second: Document) -> bool:
        single = len(first.answers) == len(second.answers) == 1
        return single and self.mode == "corrected"

    def _rounds(self, sample: Sample, first: Document, second: Document) -> Content:
        _matching(sample, first, second)
        place = texts if self.mode == "official" else spaced
        rounds: list[Content] = []
        turns = zip(user_turns(sample), first.answers, second.answers, strict=True)
        for i, (turn, a, b) in enumerate(turns):
            pair = {"question": place(turn.content), "first": whole(a), "second": whole(b)}
            fields = {"i": as_content(str(i)), "pair": filled(_PAIR, pair)}
            rounds += [as_content("\n\n" if i else ""), filled(_TURN, fields)]
        return joined(s for content in rounds for s in content)

    @property
    def attempts(self) -> int:
        """Three officially (`process_item` of gen_judgement.py)."""
        return 3 if self.mode == "official" else 2

    def repeats_after(self, reply: str) -> bool:
        """Only a reply without any verdict is asked for again (`isvalid_output`)."""
        return not official_forms(reply)

    def read(self, reply: str, aspect: Aspect = "preference") -> ParsedReply:
        """A five-level verdict."""
        return official_probench(reply) if self.mode == "official" else level(reply)

    def style_of(self, answer: Document, *, first: bool) -> Style:
        """Style of the pair's first or second answer.

        Officially white space around the baseline's answers counts, the model's not.
        """
        stripped = self.mode == "corrected" or not first
        parts = [d.text for d in answer.answers]
        images = sum(len(d.images) for d in answer.answers)
        return style(parts, images, count=self.count, mode=self.mode, stripped=stripped)

    def aggregate(self, games: Iterable[Game], baseline: str | None = None) -> Standings:
        """Ratings and win rates against the baseline, overall and on every group.

        Without a baseline the first system of each pair is the baseline officially, the
        first by name otherwise.
        """
        pairs = by_pair(games, baseline)
        if self.mode == "official":
            rows = [
                official_row(pair, part, group, members, self.strong)
                for pair, own in pairs.items()
                for part, group, members in groups(own)
            ]
        else:
            all_games = [g for own in pairs.values() for g in own]
            rows = [
                row
                for part, group, members in groups(all_games)
                for row in corrected_rows(
                    members, baseline, part, group, strong=self.strong, draws=self.draws
                )
            ]
        return Standings(
            protocol=self.name, mode=self.mode, baseline=baseline, rows=tuple(rows)
        )


def _matching(sample: Sample, first: Document, second: Document) -> None:
    turns = len(user_turns(sample))
    for answer in (first, second):
        if (n := len(answer.answers)) != turns:
            raise ValueError(
                f"sample {sample.id!r} has {turns} user turns and an answer of {n} turns"
            )


def _listed(sample: Sample, first: Document, second: Document) -> Mapping[str, Content]:
    """Question and answers as the official program prints them: as Python lists.

    Answers with pictures, which it never had, are set as they are.
    """
    fields = {
        "question": as_content(repr([Document(t.content).text for t in user_turns(sample)]))
    }
    for name, answer in (("first", first), ("second", second)):
        plain = not any(d.images for d in answer.answers)
        as_list = as_content(repr([d.text for d in answer.answers]))
        fields[name] = as_list if plain else whole(answer)
    return fields
