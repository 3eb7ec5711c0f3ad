"""ProBench's ratings in corrected mode: one fit of all systems that play."""

from __future__ import annotations

from collections.abc import Sequence

from scorers.features import NAMES, Style, difference
from scorers.pairwise.counts import counted, in_both_orders
from scorers.pairwise.protocol import Game
from scorers.pairwise.table import Part, Row
from scorers.statistics.battles import Battle
from scorers.statistics.bradley_terry import Ratings, bradley_terry
from scorers.statistics.estimate import Estimate
from scorers.statistics.means import mean_by_question


def corrected_rows(
    games: Sequence[Game],
    baseline: str | None,
    part: Part,
    group: str,
    *,
    strong: float,
    draws: int,
) -> list[Row]:
    """A row per system, best first, and one with the effects of order and style.

    `rating` has the baseline at 1000; `win_rate` is the rating's expected score against
    it in percent, order and style being equal; `preferred` is the observed one, over
    questions read in both orders; `plain_rating` is the rating without style.
    """
    names = sorted({name for g in games for name in (g.first, g.second)})
    if not names:
        return []
    anchor = baseline if baseline in names else names[0]
    battles = [b for g in games for b in battles_of(g, strong)]
    styled = bradley_terry(battles, anchor, NAMES, draws=draws)
    plain = bradley_terry(battles, anchor, draws=draws)
    rows = []
    for name in names:
        values = _values(name, styled, plain, _told_by(name, anchor, games))
        own = [g for g in games if name in (g.first, g.second)]
        rows.append(
            Row(
                system=name,
                opponent="" if name == anchor else anchor,
                part=part,
                group=group,
                values=values,
                counts=counted(own),
            )
        )
    rows.sort(key=lambda row: (-_rating(row), row.system))
    return [*rows, Row(system="", part=part, group=group, values=styled.effects)]


def battles_of(game: Game, strong: float) -> list[Battle]:
    """One battle per order that was read; a tie is half a win of either side."""
    found: list[Battle] = []
    if game.judgement is None:
        return found
    for swapped, sign in ((False, 1), (True, -1)):
        verdict = game.judgement.verdict(swapped)
        if verdict is None:
            continue
        preference = sign * verdict.preference
        found.append(
            Battle(
                question=game.question,
                first=game.first,
                second=game.second,
                score=0.5 if preference == 0 else float(preference > 0),
                weight=strong if abs(preference) == 2 else 1,
                order=sign,
                style=_differences(game.judgement.styles),
            )
        )
    return found


def _differences(styles: tuple[Style, Style] | None) -> tuple[float, ...]:
    return difference(*styles) if styles else (0.0,) * len(NAMES)


def _values(
    name: str, styled: Ratings, plain: Ratings, met: Sequence[Game]
) -> dict[str, Estimate]:
    unread = Estimate(None, None, 0, "no game read")
    values = {
        "rating": styled.systems.get(name, unread),
        "plain_rating": plain.systems.get(name, unread),
    }
    if name in styled.win_rates:
        values["win_rate"] = styled.win_rates[name]
    if met:
        values["preferred"] = _preferred(met)
    return values


def _told_by(name: str, anchor: str, games: Sequence[Game]) -> list[Game]:
    """The games of `name` against the anchor, the anchor being the first."""
    met = (g.versus(anchor) for g in games if {g.first, g.second} == {name, anchor})
    return list(met) if name != anchor else []


def _preferred(games: Sequence[Game]) -> Estimate:
    both = in_both_orders(games)
    shares = [100 * sum((v > 0) + (v == 0) / 2 for v in values) / 2 for _, values in both]
    return mean_by_question([question for question, _ in both], shares)


def _rating(row: Row) -> float:
    value = row.values["rating"].value
    return float("-inf") if value is None else value
