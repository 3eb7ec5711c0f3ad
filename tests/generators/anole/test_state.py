"""The state machine of one record, token by token."""

import pytest

from generators.anole.state import Limits, Mode, Stop, Track, split
from generators.anole.vocab import Vocabulary

V = Vocabulary(bos=0, eos=2, begin_image=9, end_image=8, text=(20, 21), image=(4, 5))
WORD, CODE = 20, 5


def limits(**told) -> Limits:
    usual = {"context": 100, "image_tokens": 3, "max_text_tokens": 100, "max_images": 9}
    return Limits(**usual | told)


def track(prompt=(0, 20), **told) -> Track:
    return Track(prompt, V, limits(**told))


def feed(made: Track, *tokens: int) -> Track:
    for token in tokens:
        made.take(token)
    return made


def test_a_picture_takes_exactly_its_codes_and_is_closed():
    made = feed(track(), WORD, V.begin_image)
    modes = []
    for token in (CODE, CODE, CODE, V.end_image):
        modes.append(made.mode)
        made.take(token)
    assert modes == [Mode.IMAGE, Mode.IMAGE, Mode.IMAGE, Mode.CLOSING]
    assert made.mode is Mode.TEXT
    assert made.images == 1
    assert made.generated == [WORD, V.begin_image, CODE, CODE, CODE, V.end_image]
    assert made.stop is None


def test_end_of_sequence_stops():
    assert feed(track(), WORD, V.eos).stop is Stop.END


def test_end_of_sequence_in_the_prompt_does_not():
    assert track(prompt=(0, V.eos, 20)).stop is None


@pytest.mark.parametrize(("length", "allowed"), [(94, True), (95, False), (96, False)])
def test_pictures_are_banned_where_they_no_longer_fit(length, allowed):
    """Upstream's rule: not at or after max_seq_len - (codes + 2)."""
    assert track(prompt=(0,) * length).may_begin_image is allowed


def test_the_last_allowed_picture_leaves_room_for_one_token():
    made = feed(track(prompt=(0,) * 94), V.begin_image, CODE, CODE, CODE, V.end_image)
    assert len(made.ids) == 99
    assert made.stop is None
    assert feed(made, WORD).stop is Stop.CONTEXT


def test_pictures_are_banned_after_the_last_one():
    made = feed(track(max_images=1), V.begin_image, CODE, CODE, CODE, V.end_image)
    assert not made.may_begin_image
    assert not track(max_images=0).may_begin_image


def test_full_context_stops():
    made = feed(track(prompt=(0,) * 98), WORD)
    assert made.stop is None
    assert feed(made, WORD).stop is Stop.CONTEXT


def test_text_budget_counts_from_the_last_picture():
    made = feed(track(max_text_tokens=3), WORD, WORD)
    assert made.stop is None
    assert feed(made, WORD).stop is Stop.BUDGET
    again = feed(track(max_text_tokens=3), WORD, WORD, V.begin_image)
    feed(again, CODE, CODE, CODE, V.end_image, WORD, WORD)
    assert again.stop is None
    assert feed(again, WORD).stop is Stop.BUDGET


def test_text_budget_never_cuts_a_picture():
    made = feed(track(max_text_tokens=1), V.begin_image, CODE, CODE, CODE)
    assert made.stop is None
    assert made.mode is Mode.CLOSING


def test_guidance_contexts():
    made = track(prompt=(0, 20, V.begin_image, 4, 5, 4, V.end_image, 21))
    feed(made, WORD, V.begin_image)
    pictures, nothing = made.guidance_prompts()
    assert pictures == (0, V.begin_image, 4, 5, 4, V.end_image, V.begin_image)
    assert nothing == (0, V.begin_image)


def test_split():
    tokens = [20, 21, 9, 4, 5, 4, 8, 9, 5, 5, 5, 8, 21, 2]
    assert split(tokens, V) == [
        (Mode.TEXT, (20, 21)),
        (Mode.IMAGE, (4, 5, 4)),
        (Mode.IMAGE, (5, 5, 5)),
        (Mode.TEXT, (21, 2)),
    ]
    assert split([], V) == []
