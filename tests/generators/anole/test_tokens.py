"""Token ids by name, never by position; the state of one record, token by token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generators.anole.settings import AnoleDraftSettings
from generators.anole.tokens import AnoleTrack, AnoleVocabulary, TokenMode, image_name
from generators.decoding.drafting import NativePrompt, Stop
from generators.errors import CheckpointError

NAMES = ["<s>", "<pad>", "</s>", "<unk>", "<eoss>", "<racm3:break>", "<reserved08706>"]
CODES = [f"IMGIMG{letters}Z" for letters in ("A", "B", "C", "D")]
WORDS = ["<", "hello", "<div", "</", "Z", "IMG"]


def vocabulary(order: list[str]) -> AnoleVocabulary:
    return AnoleVocabulary.of({name: i for i, name in enumerate(order)})


def test_names_of_codes_spell_their_digits():
    assert image_name(53) == "IMGIMGFDZ"
    assert image_name(0) == "IMGIMGAZ"
    assert image_name(8191) == "IMGIMGIBJBZ"


@given(st.permutations([*NAMES, *CODES, *WORDS]))
def test_ids_follow_names_in_any_order(order):
    reordered = vocabulary(order)
    assert order[reordered.bos] == "<s>"
    assert order[reordered.eos] == "</s>"
    assert order[reordered.begin_image] == "<racm3:break>"
    assert order[reordered.end_image] == "<eoss>"
    assert [order[i] for i in reordered.image] == CODES
    assert reordered.codes(reordered.tokens([3, 0, 2])) == [3, 0, 2]
    # Every name that starts with "<" is left out, except "<" itself.
    assert {order[i] for i in reordered.text} == {"<", "hello", "Z", "IMG"}
    assert list(reordered.text) == sorted(reordered.text)


def test_guiding_ids():
    order = [*NAMES, *CODES, *WORDS]
    guiding = {order[i] for i in vocabulary(order).guiding}
    assert guiding == {*CODES, "<s>", "<racm3:break>", "<eoss>"}


def test_missing_names_are_listed():
    order = [n for n in [*NAMES, *CODES] if n not in ("<s>", "<eoss>")]
    with pytest.raises(CheckpointError, match="lacks <s>, <eoss>"):
        vocabulary(order)


@pytest.mark.parametrize("lost", [CODES[:1], CODES[2:3], CODES])
def test_gaps_between_codes_are_refused(lost):
    with pytest.raises(CheckpointError, match=r"image tokens but not IMGIMG[A-D]Z"):
        vocabulary([*NAMES, *(c for c in CODES if c not in lost)])


V = AnoleVocabulary(bos=0, eos=2, begin_image=9, end_image=8, text=(20, 21), image=(4, 5))


def test_an_answer_is_runs_of_text_and_whole_images():
    prompt = NativePrompt(([0, 20, 9, 4, 4, 4, 8],), "", 7, 1, 0)
    track = AnoleTrack(prompt, 100, V, AnoleDraftSettings(max_images=2), 3)
    for token in (20, 21, 9, 4, 5, 4, 8, 9, 5, 5, 5, 8, 21, 2):
        assert track.stop is None
        track.take(token)
    assert track.stop is Stop.END
    assert [(mode, ids) for mode, ids in track.runs if ids] == [
        (TokenMode.TEXT, [20, 21]),
        (TokenMode.IMAGE, [4, 5, 4]),
        (TokenMode.IMAGE, [5, 5, 5]),
        (TokenMode.TEXT, [21, 2]),
    ]
    assert track.guidance_prompts()[0] == (
        *(0, 9, 4, 4, 4, 8),
        *(9, 4, 5, 4, 8, 9, 5, 5, 5, 8),
    )
    assert not track.may_begin_image
