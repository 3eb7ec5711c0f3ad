"""Token ids by name, never by position."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generators.anole.vocab import Vocabulary, image_name
from generators.errors import CheckpointError

NAMES = ["<s>", "<pad>", "</s>", "<unk>", "<eoss>", "<racm3:break>", "<reserved08706>"]
CODES = [f"IMGIMG{letters}Z" for letters in ("A", "B", "C", "D")]
WORDS = ["<", "hello", "<div", "</", "Z", "IMG"]


def vocabulary(order: list[str]) -> Vocabulary:
    return Vocabulary.of({name: i for i, name in enumerate(order)})


def test_names_of_codes_spell_their_digits():
    assert image_name(53) == "IMGIMGFDZ"
    assert image_name(0) == "IMGIMGAZ"
    assert image_name(8191) == "IMGIMGIBJBZ"


@given(st.permutations([*NAMES, *CODES, *WORDS]))
def test_ids_follow_names_in_any_order(order):
    made = vocabulary(order)
    assert order[made.bos] == "<s>"
    assert order[made.eos] == "</s>"
    assert order[made.begin_image] == "<racm3:break>"
    assert order[made.end_image] == "<eoss>"
    assert [order[i] for i in made.image] == CODES
    assert made.codes(made.tokens([3, 0, 2])) == [3, 0, 2]
    # Every name that starts with "<" is left out, except "<" itself.
    assert {order[i] for i in made.text} == {"<", "hello", "Z", "IMG"}
    assert list(made.text) == sorted(made.text)


def test_guiding_ids():
    order = [*NAMES, *CODES, *WORDS]
    kept = {order[i] for i in vocabulary(order).guiding}
    assert kept == {*CODES, "<s>", "<racm3:break>", "<eoss>"}


def test_missing_names_are_told():
    order = [n for n in [*NAMES, *CODES] if n not in ("<s>", "<eoss>")]
    with pytest.raises(CheckpointError, match="lacks <s>, <eoss>"):
        vocabulary(order)


@pytest.mark.parametrize("lost", [CODES[:1], CODES[2:3], CODES])
def test_gaps_between_codes_are_refused(lost):
    with pytest.raises(CheckpointError, match=r"image tokens but not IMGIMG[A-D]Z"):
        vocabulary([*NAMES, *(c for c in CODES if c not in lost)])
