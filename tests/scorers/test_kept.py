"""Likeness of an edit and its original outside a mask."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from picture_helpers import flat, png, smooth
from PIL import Image as Pillow
from scorer_helpers import STAGES, made

from plait.benchmarks.tasks.task_set import load
from plait.cluster.walks import drive
from plait.generators.base import Failure, NotApplicable, Outcome, Result, Unscored
from plait.generators.document import Document, Image, Malformed, Query, Score, Text, Turn
from plait.generators.images import decode
from plait.scorers.kept import KEPT, MASK, Kept, mask_of, mask_text

pytestmark = [pytest.mark.contract, pytest.mark.models]

NAMES = ("kept-ssim", "kept-lpips", "kept-dino")
SIZE = (96, 80)
BEFORE = smooth(1, *SIZE)
INSIDE = (20, 10, 60, 50)
"""Left, top, right and bottom of the region to edit."""


def mask(box: tuple[int, int, int, int] = INSIDE) -> str:
    drawn = Pillow.new("L", SIZE, 0)
    drawn.paste(255, box)
    return mask_text(png(drawn))


def changed(box: tuple[int, int, int, int], colour: str = "red") -> Image:
    drawn = decode(BEFORE)
    drawn.paste(colour, box)
    return png(drawn)


QUERY = Query(
    id="e",
    category="",
    field="",
    turns=(Turn("user", (BEFORE, Text("Make it red."))),),
    metadata={MASK: mask()},
)


def scored(name: str, edited: Image, query: Query = QUERY) -> Outcome[Score]:
    return drive(made(name).judge(query, Document((edited,))), STAGES.outcomes)


def value(name: str, edited: Image) -> float:
    outcome = scored(name, edited)
    assert isinstance(outcome, Result)
    return outcome.value.value


@pytest.mark.parametrize("name", NAMES)
def test_what_changes_inside_the_mask_alone_costs_nothing(name: str) -> None:
    best = 0.0 if name == "kept-lpips" else 1.0
    assert value(name, changed(INSIDE)) == pytest.approx(best, abs=1e-6)
    beyond = changed((0, 0, 90, 70))
    worse = value(name, beyond)
    assert worse > best if name == "kept-lpips" else worse < best
    # The colour inside does not matter then, either.
    again = decode(beyond)
    again.paste("blue", INSIDE)
    assert value(name, png(again)) == worse


def test_kept_ssim_and_lpips_are_those_of_the_edit_with_the_region_put_back() -> None:
    edited = np.asarray(decode(smooth(2, *SIZE))).copy()
    left, top, right, bottom = INSIDE
    before = np.asarray(decode(BEFORE))
    edited[top:bottom, left:right] = before[top:bottom, left:right]
    composed = Document((png(Pillow.fromarray(edited)),))
    truth = replace(QUERY, reference=Document((BEFORE,)))
    for name in ("ssim", "lpips"):
        plain = drive(made(name).judge(truth, composed), STAGES.outcomes)
        assert isinstance(plain, Result)
        assert value(f"kept-{name}", smooth(2, *SIZE)) == plain.value.value


def test_an_edit_of_another_size_is_compared_in_that_of_the_original() -> None:
    small = Pillow.fromarray(np.asarray(decode(BEFORE))).resize((48, 40))
    assert value("kept-ssim", png(small)) > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_what_has_no_mask_or_no_image_has_no_value(name: str) -> None:
    for metadata in ({}, {MASK: "region one"}, {MASK: ""}):
        without = replace(QUERY, metadata=metadata)
        assert isinstance(scored(name, BEFORE, without), NotApplicable)
    broken = {MASK: base64.b64encode(b"no image").decode()}
    assert isinstance(scored(name, BEFORE, replace(QUERY, metadata=broken)), Failure)
    whole = {MASK: mask((0, 0, *SIZE))}
    assert isinstance(scored(name, BEFORE, replace(QUERY, metadata=whole)), Unscored)
    several = Document((BEFORE, BEFORE))
    walk = made(name).judge(QUERY, several)
    assert isinstance(drive(walk, STAGES.outcomes), Unscored)
    assert made(name).stages[0] is KEPT
    assert Kept()([]) == []


def test_a_mask_is_a_column_of_own_data(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(BEFORE.read())
    drawn = Pillow.new("L", SIZE, 127)
    drawn.paste(128, INSIDE)
    drawn.save(tmp_path / "m.png")
    (tmp_path / "b.png").write_bytes(flat())
    rows: list[dict[str, Any]] = [
        {"id": "1", "question": "Red.", "image": "a.png", "edit_mask": "m.png"},
        {"id": "2", "question": "Red.", "image": "a.png"},
        {"id": "3", "question": "Red.", "image": "a.png", "edit_mask": "none.png"},
        {"id": "4", "question": "Red.", "image": "a.png", "edit_mask": ["m.png", "b.png"]},
    ]
    (tmp_path / "edits.json").write_text(json.dumps(rows))
    task = load(f"rows:{tmp_path / 'edits.json'}", cache=tmp_path / "c")
    one, plain, lost, several = task.samples
    assert isinstance(one, Query)
    shown = mask_of(one)
    assert shown is not None
    found = Pillow.open(io.BytesIO(shown.read()))
    assert found.mode == "1"
    assert found.getbbox() == INSIDE
    assert isinstance(plain, Query)
    assert MASK not in plain.metadata
    assert isinstance(lost, Malformed)
    assert "missing picture" in lost.reason
    assert isinstance(several, Malformed)
