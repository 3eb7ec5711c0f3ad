"""Prompts of the judge: tiles and how many fit the context, and the chat template."""

from __future__ import annotations

import pytest
from contents import turn_of
from hypothesis import given
from hypothesis import strategies as st
from internvl_helpers import picture

from plait.scorers.internvl.prompts import Budget, budget_of
from plait.scorers.internvl.settings import MmieScoreSettings
from plait.scorers.internvl.tokenizer import (
    CONTROLS,
    IMAGE_TOKEN,
    conversation,
    toy_tokenizer,
    with_control_tokens,
)

pytestmark = pytest.mark.models

WIKIHOW, SQUARE, LARGE = (460, 345), (512, 512), (1024, 1024)


def budget(sizes, words, positions=131_072, **overrides) -> Budget:
    settings = MmieScoreSettings(**overrides)
    fixed = {"new_tokens": 1024, "side": 448, "tile_tokens": 256}
    return budget_of(sizes, words, settings, positions=positions, **fixed)


def test_three_wikihow_pictures_as_the_official_scorer_reads_them():
    """The case of MMIE's issue 8: 10,825 tokens for a context of 4,096."""
    official = budget([WIKIHOW] * 3, 841, fit_context=False)
    assert official.tiles == (13, 13, 13)
    assert official.prompt == 3 * 13 * 256 + 841 == 10_825
    assert official.reply == 1024


def test_the_same_pictures_made_to_fit():
    """4,096 - 512 - 841 leave ten tiles. A grid of 4:3 takes 13, of 3:2 it takes 7."""
    fitted = budget([WIKIHOW] * 3, 841)
    assert fitted.tiles == (1, 1, 1)
    assert fitted.max_tiles == 5
    assert fitted.prompt == 3 * 256 + 841 == 1609
    assert fitted.reply == 1024
    single = budget([WIKIHOW], 841)
    assert single.tiles == (7,)
    assert single.max_tiles == 11
    assert budget([WIKIHOW], 841, reply_room=1).reply == 1024
    assert budget([WIKIHOW], 841, reply_room=1, context=2700).reply == 2700 - 2633


def test_a_reply_ends_with_the_model():
    assert budget([], 900, positions=1000, fit_context=False).reply == 100
    assert budget([], 900, positions=1000).reply == 100
    assert budget([], 900, positions=900).reply == 0
    assert budget([], 900, positions=800).reply < 1


@given(
    st.lists(st.tuples(st.integers(1, 2000), st.integers(1, 2000)), max_size=6),
    st.integers(1, 5000),
)
def test_whatever_fits_stays_within_the_context(sizes, words):
    got = budget(sizes, words)
    assert got.prompt == words + 256 * sum(got.tiles)
    if words + 256 * len(sizes) <= 4096 - 512:
        assert got.prompt + got.reply <= 4096
        assert got.reply >= 512
    else:
        assert got.max_tiles == 1


IMAGE = picture(0, 30, 20)
TOKENIZER, _, _ = toy_tokenizer()
NAMES = [control.name for control in CONTROLS]
SPELT = st.lists(
    st.sampled_from([*NAMES, "<image>", "<s>", "</s>", "a", " ", "\n", "\u00e9"]),
    max_size=8,
).map("".join)


@given(SPELT, SPELT)
def test_texts_never_become_control_tokens(before, after):
    parts = with_control_tokens(conversation([turn_of(before, IMAGE, after)], "s"))
    ids = TOKENIZER.encode(parts)
    controls = [TOKENIZER.id(part) for part in parts if not isinstance(part, str)]
    added = {TOKENIZER.id(control) for control in CONTROLS}
    assert [i for i in ids if i in added] == controls
    assert ids.count(TOKENIZER.id(IMAGE_TOKEN)) == 1
