"""Token ids by name, never by position; the state of one record, token by token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generators.anole.tokens import (
    AnoleLimits,
    AnoleStop,
    AnoleTrack,
    AnoleVocabulary,
    TokenMode,
    image_name,
    split_runs,
)
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
WORD, CODE = 20, 5


def limits(**changes) -> AnoleLimits:
    defaults = {"context": 100, "image_tokens": 3, "max_text_tokens": 100, "max_images": 9}
    return AnoleLimits(**defaults | changes)


def track(prompt=(0, 20), **changes) -> AnoleTrack:
    return AnoleTrack(prompt, V, limits(**changes))


def feed(record: AnoleTrack, *tokens: int) -> AnoleTrack:
    for token in tokens:
        record.take(token)
    return record


def test_a_picture_takes_exactly_its_codes_and_is_closed():
    record = feed(track(), WORD, V.begin_image)
    modes = []
    for token in (CODE, CODE, CODE, V.end_image):
        modes.append(record.mode)
        record.take(token)
    assert modes == [TokenMode.IMAGE, TokenMode.IMAGE, TokenMode.IMAGE, TokenMode.CLOSING]
    assert record.mode is TokenMode.TEXT
    assert record.images == 1
    assert record.generated == [WORD, V.begin_image, CODE, CODE, CODE, V.end_image]
    assert record.stop is None


def test_end_of_sequence_stops():
    assert feed(track(), WORD, V.eos).stop is AnoleStop.END


def test_end_of_sequence_in_the_prompt_does_not():
    assert track(prompt=(0, V.eos, 20)).stop is None


@pytest.mark.parametrize(("length", "allowed"), [(94, True), (95, False), (96, False)])
def test_pictures_are_banned_where_they_no_longer_fit(length, allowed):
    """Upstream's rule: not at or after max_seq_len - (codes + 2)."""
    assert track(prompt=(0,) * length).may_begin_image is allowed


def test_the_last_allowed_picture_leaves_room_for_one_token():
    record = feed(track(prompt=(0,) * 94), V.begin_image, CODE, CODE, CODE, V.end_image)
    assert len(record.ids) == 99
    assert record.stop is None
    assert feed(record, WORD).stop is AnoleStop.CONTEXT


def test_pictures_are_banned_after_the_last_one():
    record = feed(track(max_images=1), V.begin_image, CODE, CODE, CODE, V.end_image)
    assert not record.may_begin_image
    assert not track(max_images=0).may_begin_image


def test_full_context_stops():
    record = feed(track(prompt=(0,) * 98), WORD)
    assert record.stop is None
    assert feed(record, WORD).stop is AnoleStop.CONTEXT


def test_text_budget_counts_from_the_last_picture():
    record = feed(track(max_text_tokens=3), WORD, WORD)
    assert record.stop is None
    assert feed(record, WORD).stop is AnoleStop.BUDGET
    again = feed(track(max_text_tokens=3), WORD, WORD, V.begin_image)
    feed(again, CODE, CODE, CODE, V.end_image, WORD, WORD)
    assert again.stop is None
    assert feed(again, WORD).stop is AnoleStop.BUDGET


def test_text_budget_never_cuts_a_picture():
    record = feed(track(max_text_tokens=1), V.begin_image, CODE, CODE, CODE)
    assert record.stop is None
    assert record.mode is TokenMode.CLOSING


def test_guidance_contexts():
    record = track(prompt=(0, 20, V.begin_image, 4, 5, 4, V.end_image, 21))
    feed(record, WORD, V.begin_image)
    pictures, nothing = record.guidance_prompts()
    assert pictures == (0, V.begin_image, 4, 5, 4, V.end_image, V.begin_image)
    assert nothing == (0, V.begin_image)


def test_split():
    tokens = [20, 21, 9, 4, 5, 4, 8, 9, 5, 5, 5, 8, 21, 2]
    assert split_runs(tokens, V) == [
        (TokenMode.TEXT, (20, 21)),
        (TokenMode.IMAGE, (4, 5, 4)),
        (TokenMode.IMAGE, (5, 5, 5)),
        (TokenMode.TEXT, (21, 2)),
    ]
    assert split_runs([], V) == []
