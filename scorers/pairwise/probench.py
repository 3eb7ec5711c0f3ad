"""ProBench: five-level verdicts on three tracks, and ratings with style held equal.

Tracks are single-round, multi-linguistic (an answer in another language than the request
is not correct) and multi-round (one answer per turn, judged together). Constants after
Yan98/ProBench_eval@c17b7ae (engine/constant.py, gen_judgement.py, show_result.py) and
section 2 of the paper.

Corrected mode fits all systems that play at once. Official mode follows
`get_battles_from_judgment` of show_result.py@c17b7ae: each system is fitted alone with the
baseline, every game twice and `>>` three times, with z-scores of style and scikit-learn's
default penalty; single games are resampled; ratings and interval ends are cut to whole
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from plait.generators.base import Result, Unscored
from plait.generators.buckets import AnyPath
from plait.generators.content import fill, history, join_texts, space_out
from plait.generators.document import Content, Document, Image, Query, Text, Turn
from plait.generators.errors import UsageError
from plait.generators.released import file_in, read_published
from plait.scorers.features import (
    NAMES,
    PUBLISHED,
    Style,
    TokenCounter,
    difference,
    gpt_tokens,
    style,
    words,
)
from plait.scorers.judging.sources import Mode
from plait.scorers.pairwise.games import (
    Aspect,
    Game,
    PairStanding,
    ParsedReply,
    Standings,
    TablePart,
    by_pair,
    count_games,
    groups,
    in_both_orders,
    plain_mean,
    rank,
)
from plait.scorers.pairwise.prompts import (
    OWN,
    as_content,
    texts,
    user_turns,
    whole,
)
from plait.scorers.pairwise.protocol import Pairwise, ProtocolSettings
from plait.scorers.pairwise.readers import level, official_forms, official_probench
from plait.scorers.statistics.estimate import Estimate, Floats
from plait.scorers.statistics.means import PERCENT, mean_by_question
from plait.scorers.statistics.ratings import (
    INITIAL,
    SCALE,
    Battle,
    bradley_terry,
    expected_score,
    online_elo,
)

TRACK = "chat_type"
"""Metadata of a query: one of `TRACKS`; by default decided by the number of user turns."""
TRACKS = ("singleround", "multi-linguistic", "multi-round")

_DIGESTS = OWN["released"]["probench"]
STRONG = 3
"""How often a verdict `>>` counts."""
_PAIR = (
    "Textual Instruction:\n<inst/>\n{question}\n</inst>\n\n"
    "Assistant A's Answer:\n<a/>\n{first}\n</a>\n\n"
    "Assistant B's Answer:\n<b/>\n{second}\n</b>"
)
"""The layout that the published prompts describe (`format_input` in gen_judgement.py)."""
_TURN = "<turn{i}/>\n{pair}\n</turn{i}>"


class ProBenchSettings(ProtocolSettings):
    """How verdicts are counted: the options of show_result.py."""

    weight: int = Field(default=STRONG, ge=1)
    """How often a verdict `>>` counts."""
    first_game_only: bool = False
    """Whether only the order counts in which the baseline is shown first; in official mode
    alone, since corrected mode holds the order of showing equal."""


USUAL = ProBenchSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProBench(Pairwise):
    """The protocol. Official mode fits each system alone with the baseline."""

    mode: Mode = "corrected"
    wording: Mapping[str, str] = field(default_factory=lambda: OWN["probench"])
    """The judge's task by track."""
    count: TokenCounter = words
    """Counts tokens; the official program's is `features.gpt_tokens()`."""
    draws: int = 300
    settings: ProBenchSettings = USUAL
    name: str = "probench"
    settings_of: ClassVar[type[ProtocolSettings]] = ProBenchSettings
    OFFICIAL_NEEDS: ClassVar[Mapping[str, Callable[[], Any]]] = {"count": gpt_tokens}
    OFFICIAL_ATTEMPTS: ClassVar[int] = 3
    """`process_item` of gen_judgement.py."""

    def __post_init__(self) -> None:
        if self.settings.first_game_only and self.mode == "corrected":
            raise UsageError(
                "first_game_only is for official mode: corrected mode holds the order of "
                "showing equal, which takes both orders"
            )

    @classmethod
    def wording_in(cls, path: AnyPath) -> Mapping[str, str]:
        """The prompts of the user's copy of `constant.py`; UsageError unless published."""
        released = read_published(file_in(path, "engine/constant.py"), _DIGESTS)
        return dict(zip(TRACKS, released.values(), strict=True))

    def track(self, query: Query) -> str:
        """Return the query's track."""
        plain = "multi-round" if len(user_turns(query)) > 1 else "singleround"
        named = query.metadata.get(TRACK, plain)
        return named if named in TRACKS else plain

    def turns(
        self, aspect: Aspect, query: Query, first: Document, second: Document
    ) -> tuple[Turn, ...]:
        """Images of the question come first officially, else where the question has them.

        A document of one answer to several turns answers the last of them, after the
        earlier ones as they were (corrected mode only). ValueError for any other number
        of answers.
        """
        track = self.track(query)
        official = self.mode == "official"
        single = len(first.answers) == len(second.answers) == 1
        if track == "multi-round" and (official or not single):
            pairs = self._rounds(query, first, second)
        elif official:
            pairs = fill(_PAIR, _as_lists(query, first, second))
        else:
            last = space_out(user_turns(query)[-1].content)
            pair = {"question": last, "first": whole(first), "second": whole(second)}
            pairs = join_texts((*history(query), *fill(_PAIR, pair)))
        _, before = self.question(query)
        system = Turn("system", as_content(self.wording[track]))
        return (system, Turn("user", join_texts((*before, *pairs))))

    def _rounds(self, query: Query, first: Document, second: Document) -> Content:
        place = texts if self.mode == "official" else space_out
        segments: list[Text | Image] = []
        for i, (turn, a, b) in enumerate(_by_turn(query, first, second)):
            pair = {"question": place(turn.content), "first": whole(a), "second": whole(b)}
            fields = {"i": as_content(str(i)), "pair": fill(_PAIR, pair)}
            segments += as_content("\n\n" if i else "")
            segments += fill(_TURN, fields)
        return join_texts(segments)

    def repeats_after(self, reply: str) -> bool:
        """Only a reply without any verdict is asked for again (`isvalid_output`)."""
        return not official_forms(reply)

    def read(self, reply: str, aspect: Aspect = "preference") -> ParsedReply:
        """Return a five-level verdict."""
        return official_probench(reply) if self.mode == "official" else level(reply)

    def style_of(self, answer: Document, *, first: bool) -> Style:
        """Return style of the pair's first or second answer.

        Officially white space around the baseline's answers counts, the model's not.
        """
        stripped = self.mode == "corrected" or not first
        parts = [own.text for own in answer.answers]
        images = sum(len(own.images) for own in answer.answers)
        return style(parts, images, count=self.count, mode=self.mode, stripped=stripped)

    def aggregate(self, games: Iterable[Game], baseline: str | None = None) -> Standings:
        """Return ratings and win rates against the baseline, overall and on every group.

        Without a baseline the first system of each pair is the baseline officially, the
        first by name otherwise.
        """
        if self.mode == "official":
            return Pairwise.aggregate(self, games, baseline)
        all_games: list[Game] = []
        for of_pair in by_pair(games, baseline).values():
            all_games += of_pair
        rows: list[PairStanding] = []
        for part, group, members in groups(all_games):
            rows += corrected_rows(
                members, baseline, part, group, self.draws, self.settings.weight
            )
        return self.standings(rows, baseline)

    def values(self, games: Sequence[Game]) -> dict[str, Estimate]:
        """Return the numbers of the pair's second system, with its first as the baseline.

        Intervals depend on the order of the games. Where a style feature does not vary or
        all games go one way the program ends in an error; here the rating has no value.
        """
        single = battles_that_count(games, self.settings, strong=1)
        online = Estimate(None, None, 0, "no game read")
        if single:  # both from 1000
            rating = online_elo(single, K)[games[0].second]
            online = Estimate(rating, None, len(single))
        ratings = _ratings(official_battles(games, self.settings))
        return ratings | _tokens(games) | {"elo_online": online}

    def counts(self, games: Sequence[Game]) -> dict[str, int]:
        """Return the battles, each as often as it counts."""
        return {"battles": len(official_battles(games, self.settings))}


def _by_turn(
    query: Query, first: Document, second: Document
) -> list[tuple[Turn, Document, Document]]:
    """Return each of the user's turns with both answers to it; ValueError for others."""
    turns = user_turns(query)
    for answer in (first, second):
        if (n := len(answer.answers)) != len(turns):
            told = f"{len(turns)} user turns and an answer of {n} turns"
            raise ValueError(f"query {query.id!r} has {told}")
    return list(zip(turns, first.answers, second.answers, strict=True))


def _as_lists(query: Query, first: Document, second: Document) -> Mapping[str, Content]:
    """Question and answers as the official program prints them: as Python lists.

    Answers with images, which it never had, are set as they are.
    """
    asked = [Document(turn.content).text for turn, _, _ in _by_turn(query, first, second)]
    fields = {"question": as_content(repr(asked))}
    for name, answer in (("first", first), ("second", second)):
        if any(own.images for own in answer.answers):
            fields[name] = whole(answer)
        else:
            fields[name] = as_content(repr([own.text for own in answer.answers]))
    return fields


def corrected_rows(
    games: Sequence[Game],
    baseline: str | None,
    part: TablePart,
    group: str,
    draws: int,
    strong: float,
) -> list[PairStanding]:
    """Return a row per system, best first, and one with the effects of order and style.

    `rating` has the baseline at 1000; `win_rate` is the rating's expected score against
    it in percent, order and style being equal; `preferred` is the observed one, over
    questions read in both orders; `plain_rating` is the rating without style.
    """
    own_games: dict[str, list[Game]] = {}
    battles: list[Battle] = []
    for game in games:
        battles += battles_of(game, strong)
        for side in {game.first, game.second}:
            own_games.setdefault(side, []).append(game)
    if not own_games:
        return []
    names = sorted(own_games)
    anchor = baseline if baseline in names else names[0]
    styled = bradley_terry(battles, anchor, NAMES, draws=draws)
    plain = bradley_terry(battles, anchor, draws=draws)
    unread = Estimate(None, None, 0, "no game read")
    rows = []
    for name in names:
        own = own_games[name]
        values = {
            "rating": styled.systems.get(name, unread),
            "plain_rating": plain.systems.get(name, unread),
        }
        if name in styled.win_rates:
            values["win_rate"] = styled.win_rates[name]
        against_anchor = []
        for game in own:
            if anchor in (game.first, game.second):
                against_anchor.append(game.versus(anchor))
        if name != anchor and against_anchor:
            values["preferred"] = _win_rate(against_anchor)
        rows.append(
            PairStanding(
                system=name,
                opponent="" if name == anchor else anchor,
                part=part,
                group=group,
                values=values,
                counts=count_games(own),
            )
        )
    rows.sort(key=lambda row: (rank(row.values["rating"]), row.system))
    return [*rows, PairStanding(system="", part=part, group=group, values=styled.effects)]


def _win_rate(games: Iterable[Game]) -> Estimate:
    """Return how often the second system is preferred, in percent, ties being half."""
    questions = []
    wins = []
    for question, preferences in in_both_orders(games):
        won = 0.0
        for preference in preferences:
            won += 0.5 if preference == 0 else float(preference > 0)
        questions.append(question)
        # Of the two orders.
        wins.append(100 * won / 2)
    return mean_by_question(questions, wins, PERCENT)


def battles_of(game: Game, strong: float) -> list[Battle]:
    """Return one battle per order that was read; a tie is half a win of either side.

    A verdict `>>` has the weight `strong`.
    """
    if game.judgement is None:
        return []
    battles = []
    for swapped, sign in ((False, 1), (True, -1)):
        if (verdict := game.judgement.verdict(swapped)) is None:
            continue
        preference = sign * verdict.preference
        battles.append(
            Battle(
                question=game.question,
                first=game.first,
                second=game.second,
                score=0.5 if preference == 0 else float(preference > 0),
                weight=strong if abs(preference) == 2 else 1,
                order=sign,
                style=_differences(game, NAMES) or (0.0,) * len(NAMES),
            )
        )
    return battles


def _differences(game: Game, names: Sequence[str]) -> tuple[float, ...]:
    one, other = game.styles
    return () if one is None or other is None else difference(one, other, names)


BASELINE_RATING = 1114
"""The baseline's rating (`fit_bt`)."""
ROUNDS = 100
SEED = 42
K = 32
"""Of the online update in section 2 of the paper; the program has none."""


def battles_that_count(
    games: Iterable[Game], settings: ProBenchSettings, strong: float
) -> list[Battle]:
    """Return a battle for each order that was read and that `settings` count."""
    battles = []
    for game in games:
        for battle in battles_of(game, strong):
            if battle.order > 0 or not settings.first_game_only:
                battles.append(battle)
    return battles


def official_battles(
    games: Iterable[Game], settings: ProBenchSettings = USUAL
) -> list[Battle]:
    """Return battles with the published features, each as often as it counts."""
    battles = []
    for game in games:
        gaps = _differences(game, PUBLISHED)
        for battle in battles_that_count([game], settings, settings.weight):
            battles += [replace(battle, style=gaps)] * int(battle.weight)
    return battles


def _ratings(battles: Sequence[Battle]) -> dict[str, Estimate]:
    """Return rating, win rate and effects of style, cut and rounded as they are printed."""

    def without_value(reason: str) -> dict[str, Estimate]:
        return dict.fromkeys(("rating", "win_rate"), Estimate(None, None, 0, reason))

    n = len(battles)
    if n == 0:
        return without_value("no game read")
    x, y = matrices(battles)
    if not np.isfinite(x).all():
        flat = []
        for feature, column in zip(PUBLISHED, x[:, 2:].T, strict=True):
            if np.isnan(column).any():
                flat.append(feature)
        return without_value(f"no spread in style: {', '.join(flat)}")
    if len(set(y)) < 2:
        return without_value("all games go one way")
    coefficients = _fit(x, y)
    rating = int(_rating(coefficients))
    samples = _resample(x, y, np.array([battle.score == 0.5 for battle in battles]))
    reason = "a resampling's games all go one way"
    ends = None
    if samples is not None:
        low, high = np.percentile(samples, [2.5, 97.5])
        reason = ""
        ends = (float(int(low)), float(int(high)))
    # Of the rating that is cut, as there.
    win_rate = round(100 * expected_score(rating, BASELINE_RATING), 2)
    values = {
        "rating": Estimate(float(rating), ends, n, reason),
        "win_rate": Estimate(win_rate, None, n),
    }
    for feature, coefficient in zip(PUBLISHED, coefficients[2:], strict=True):
        values[f"style.{feature}"] = Estimate(round(float(coefficient), 3), None, n)
    return values


def matrices(battles: Sequence[Battle]) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return (2n, 2 + features) and (2n,): `construct_style_matrices` for two systems.

    NaN where a feature does not vary. A tie is a win in the first copy of the games and a
    loss in the second.
    """
    sides = np.tile([math.log(10), -math.log(10)], (len(battles), 1))
    # One feature a row, as there, so that sums round alike.
    gaps = np.tile(np.array([battle.style for battle in battles]).T, 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = ((gaps.T - gaps.mean(1)) / gaps.std(1)).astype(np.float64)
    score = np.array([battle.score for battle in battles])
    y = np.concatenate([score > 0, score == 1]).astype(np.int64)
    return np.column_stack([np.concatenate([sides, sides]), z]), y


def _fit(x: Floats, y: npt.NDArray[np.int64]) -> Floats:
    from sklearn.linear_model import LogisticRegression

    return np.asarray(LogisticRegression(fit_intercept=False).fit(x, y).coef_[0])


def _rating(coefficients: Floats) -> float:
    """Return the second system's rating, moved so that the first has the baseline's."""
    of_baseline, own = SCALE * coefficients[:2] + INITIAL
    return float(own + (BASELINE_RATING - of_baseline))


def _resample(
    x: Floats, y: npt.NDArray[np.int64], tied: npt.NDArray[np.bool_]
) -> list[float] | None:
    """Return ratings of 100 resamplings of the games; None where one cannot be fitted."""
    random = np.random.RandomState(SEED)
    n = len(tied)
    ratings = []
    for _ in range(ROUNDS):
        games = random.choice(n, size=n, replace=True)
        decided = games[~tied[games]]
        ties = games[tied[games]]
        rows = np.concatenate([decided, decided, ties, ties + n])
        if len(set(y[rows])) < 2:
            return None
        ratings.append(_rating(_fit(x[rows], y[rows])))
    return ratings


def _tokens(games: Sequence[Game]) -> dict[str, Estimate]:
    """Return mean tokens of the system's judged answers, and of all of the baseline's.

    `get_files` of show_result.py: a file of judgements counts, readable or not, while the
    baseline's answers count on every item of the data.
    """
    tokens: dict[str, list[int]] = {"tokens": [], "tokens_of_opponent": []}
    for game in games:
        of_baseline, own = game.styles
        if own is not None and _has_reply(game):
            tokens["tokens"].append(own.tokens)
        if of_baseline is not None:
            tokens["tokens_of_opponent"].append(of_baseline.tokens)
    return {name: plain_mean(counts, "") for name, counts in tokens.items() if counts}


def _has_reply(game: Game) -> bool:
    """Return whether the judge has replied in either order, readable or not."""
    readings = () if game.judgement is None else game.judgement.readings
    return any(isinstance(reading.outcome, Result | Unscored) for reading in readings)
