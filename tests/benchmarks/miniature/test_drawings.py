"""Artists with planted defects are measured by exactly what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_helpers import Painter

from plait.benchmarks.miniature import drawings
from plait.benchmarks.miniature.drawings import T2I_AIMS, DrawnScene, bars_of, measure_t2is
from plait.benchmarks.miniature.measures import Bar, BenchSettings
from plait.benchmarks.tasks.mmie.prompts import prompts
from plait.scorers.truth.reading import ItemReading, Reading
from plait.scorers.truth.scene import SceneItem

pytestmark = pytest.mark.contract

PAINTER = f"{Painter.__module__}:{Painter.__name__}"
RED = SceneItem("top left", "small", "red", "circle")
BLUE = SceneItem("bottom right", "large", "blue", "star")


def settings(tmp_path: Path, **model: str) -> BenchSettings:
    return BenchSettings(
        weights="tiny", models={PAINTER: model}, out=tmp_path, scenes=12, queries=3
    )


def bars(monkeypatch: pytest.MonkeyPatch, asked: BenchSettings) -> dict[str, Bar]:
    monkeypatch.setattr(drawings, "T2IS", (PAINTER,))
    monkeypatch.setattr(drawings, "WEAKER", "no-such-artist")
    part = measure_t2is(asked, lambda line: None)
    return {bar.name.removeprefix(f"{PAINTER}: "): bar for bar in part.bars}


def test_an_artist_that_draws_what_it_is_told_reaches_every_bar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = bars(monkeypatch, settings(tmp_path))
    colours = made["right colour at the right place"]
    assert (colours.estimate.value, colours.state) == (1.0, "reached")
    # Of 12 scenes six hold two objects, and two hold one, three and four each.
    assert colours.estimate.n == 6 * 2 + 2 * (1 + 3 + 4)
    assert made["whole scenes of two objects"].estimate.n == 6
    assert made["whole scenes of two objects"].state == "reached"
    assert made["no-such-artist"].state == "not there"


def test_defects_spoil_what_they_touch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mirrored = bars(monkeypatch, settings(tmp_path, defect="mirrored"))
    assert mirrored["right colour at the right place"].state == "not reached"
    assert mirrored["whole scenes of two objects"].estimate.value == 0
    sized = bars(monkeypatch, settings(tmp_path, defect="size"))
    assert sized["right colour at the right place"].estimate.value == 1
    assert (sized["whole scenes of two objects"].estimate.value or 0) < 1


def test_what_is_not_read_is_a_miss_and_what_is_added_is_wrong() -> None:
    whole = Reading.of("white", map(ItemReading.of, (RED, BLUE)))
    more = Reading.of(
        "white", [*whole.items, ItemReading("top right", "small", "red", "star")]
    )
    unclear = Reading.of(
        "white", [ItemReading.of(RED), ItemReading("bottom right", None, "blue", "star")]
    )
    drawn = [
        DrawnScene(str(i), (RED, BLUE), read)
        for i, read in enumerate((whole, more, unclear, None))
    ]
    assert [d.whole for d in drawn] == [1, 0, 0, 0]
    assert [sum(d.colours) for d in drawn] == [2, 2, 2, 0]
    colours, two = bars_of("x", drawn, T2I_AIMS)
    assert colours.estimate.value == 6 / 8
    assert two.estimate.value == 1 / 4
    assert colours.remark == "1 of 4 unreadable: misses"


def test_intervals_of_shares_stay_between_0_and_1() -> None:
    """Of scenes of different sizes a few of whose colours are wrong."""
    right = [ItemReading.of(item) for item in (RED, BLUE)]
    wrong = ItemReading(BLUE.place, BLUE.size, "green", BLUE.shape)
    drawn = []
    for number in range(60):
        items = (RED,) if number % 3 == 0 else (RED, BLUE)
        seen = right[: len(items)]
        if number % 15 == 1:
            seen = [right[0], wrong] if number > 1 else []
        drawn.append(DrawnScene(str(number), items, Reading.of("white", seen)))
    for bar in bars_of("x", drawn, T2I_AIMS):
        if bar.estimate.ci95 is not None:
            low, high = bar.estimate.ci95
            assert 0 <= low < (bar.estimate.value or 0) < high <= 1, bar.name
    colours, two, *_ = bars_of("x", drawn, T2I_AIMS)
    assert colours.estimate.ci95 is not None
    assert two.estimate.ci95 is not None


@pytest.mark.models
def test_a_system_is_asked_in_the_words_of_a_run(tmp_path: Path) -> None:
    system = BenchSettings(weights="tiny", out=tmp_path).system("anole")
    assert system.prompt == prompts()
