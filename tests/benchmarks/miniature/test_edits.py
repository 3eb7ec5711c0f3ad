"""Artists of known sight: what each is given, and what is measured of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_helpers import Editor

from plait.benchmarks.miniature import edits
from plait.benchmarks.miniature.edits import WORDS, measure_edits
from plait.benchmarks.miniature.measures import BenchSettings

pytestmark = pytest.mark.contract

EDITOR = f"{Editor.__module__}:{Editor.__name__}"


def test_an_artist_that_sees_makes_every_change_and_one_that_does_not_only_whole_scenes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(edits, "EDITOR", EDITOR)
    monkeypatch.setattr(edits, "BEST", f"{Editor.__module__}:Blind")
    settings = BenchSettings(weights="tiny", out=tmp_path, scenes=30)
    bars = measure_edits(settings, lambda line: None).bars
    new, whole = bars[:9], bars[9:]
    assert len(whole) == 9
    seeing, blind, better = new[:3]
    assert seeing.estimate.value == 1
    # Where the item that is new is the only one, on white, there is nothing to see.
    assert (blind.estimate.value or 0) < 0.2
    assert better.estimate.value == 1 - (blind.estimate.value or 0)
    assert (better.state, better.estimate.n) == ("reached", 30)
    assert [bar.estimate.value for bar in whole[:3]] == [1, 1, 0]
    assert {bar.state for bar in whole} == {"reported"}
    # Grey levels: the image before is kept, another of the same scene is not.
    assert new[6].estimate.value == 0
    assert (whole[7].estimate.value or 0) > 1
    assert whole[8].estimate.value == whole[7].estimate.value


def test_an_edit_says_nothing_of_what_stays() -> None:
    made = edits.edits(BenchSettings(weights="tiny", out=Path(), scenes=12))
    for edit in made:
        (item,) = set(edit.after.items) - set(edit.before.items)
        new, whole = (edit.words[words] for words in WORDS)
        assert item.place in new
        assert "background" not in new
        assert all(other.place in whole for other in edit.after.items)
        assert edit.after.split == edit.before.split == "test"
