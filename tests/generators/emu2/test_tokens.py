"""Ids of prompts: where text is cut, what is stripped, what is no special token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generators.emu2.sizes import toy_tokens
from generators.emu2.tokens import ADDED, ADDED_CHAT, Emu2Tokens, PicturePlace
from generators.errors import CheckpointError

TOKENS = toy_tokens(ADDED_CHAT)
KEEPING = toy_tokens(ADDED_CHAT, strip=False)
T = TOKENS


def piece(text: str) -> list[int]:
    return T.pieces.encode(text)


def test_special_tokens_have_the_published_ids():
    """After LLaMA's 32,000 pieces: 32272 tokens in Gen, 32274 in Chat."""
    chat, gen = toy_tokens(ADDED_CHAT, 32_000), toy_tokens(ADDED, 32_000)
    assert (chat.rows, gen.rows) == (32_274, 32_272)
    told = {"[PAD]": 32000, "[IMG]": 32001, "[/IMG]": 32002, "<image>": 32003}
    told |= {"[EOC]": 32006, "<grounding>": 32008, "<REC>": 32014, "[USER]": 32272}
    told |= {"<patch_index_0000>": 32015, "<patch_index_0256>": 32271, "</s>": 2}
    assert {name: chat[name] for name in told} == told
    with pytest.raises(CheckpointError, match=r"no token '\[USER\]'"):
        gen["[USER]"]


def test_white_space_beside_special_tokens_is_dropped():
    ids = T.encoded(
        ["a house . [USER]:  red \n", PicturePlace.GIVEN, "\n bird [ASSISTANT]:"], 3
    )
    frame = [T["[IMG]"], *[T["<image>"]] * 3, T["[/IMG]"]]
    expected = [T["<s>"], *piece("a house ."), T["[USER]"], *piece(":  red"), *frame]
    expected += [*piece("bird"), T["[ASSISTANT]"], *piece(":")]
    assert ids == expected


def test_it_is_kept_where_the_fast_tokenizer_kept_it():
    ids = KEEPING.encoded(["a house . [USER]:  red \n", PicturePlace.GIVEN, "\n bird"], 1)
    frame = [T["[IMG]"], T["<image>"], T["[/IMG]"]]
    expected = [T["<s>"], *piece("a house . "), T["[USER]"], *piece(":  red \n")]
    assert ids == [*expected, *frame, *piece("\n bird")]


def test_white_space_stays_at_the_ends_and_beside_unknown():
    ids = T.encoded(["  a <unk> b  "], 1)
    assert ids == [T["<s>"], *piece("  a "), T["<unk>"], *piece(" b  ")]


def test_every_run_has_a_space_of_its_own_before_it():
    ids = T.encoded(["house</s>house"], 1)
    assert ids == [T["<s>"], *piece("house"), T["</s>"], *piece("house")]
    assert piece("house") == T.pieces.piece_to_id(["\u2581house"])


def test_adjoining_texts_are_one():
    assert T.encoded(["a ho", "use"], 1) == T.encoded(["a house"], 1)
    assert T.encoded(["a [US", "ER] b"], 1) == T.encoded(["a [USER] b"], 1)


def test_text_does_not_mean_a_picture():
    """A picture mark spelt out in text would shift the vectors of the real pictures."""
    marks = ["[IMG]", "[/IMG]", "<image>", "[gIMG]", "[PAD]"]
    ids = T.encoded([f"a {' '.join(marks)} b", PicturePlace.GIVEN], 2)
    assert [ids.count(T[m]) for m in marks] == [1, 1, 2, 0, 0]
    assert T.decoded(ids) == f"a {' '.join(marks)} b"


def test_grounding_tokens_may_be_spelt_out():
    ids = T.encoded(["<grounding><phrase>a bird</phrase><patch_index_0256>"], 1)
    named = ["<s>", "<grounding>", "<phrase>", "</phrase>", "<patch_index_0256>"]
    assert [i for i in ids if i not in piece("a bird")] == [T[n] for n in named]


def test_the_mark_of_the_next_picture_drops_the_space_before_it():
    ids = T.encoded(["a bird \n", PicturePlace.NEXT], 5)
    assert ids == [T["<s>"], *piece("a bird"), T["[IMG]"]]
    assert T.encoded([PicturePlace.NEXT], 5) == [T["<s>"], T["[IMG]"]]


def test_special_tokens_are_not_written_out():
    ids = [T["[USER]"], *piece("a bird"), T["</s>"], T["<image>"], T["[PAD]"], T["<unk>"]]
    assert T.decoded(ids) == "a bird"


@given(st.text(st.characters(codec="utf-8"), max_size=40), st.integers(0, 3))
def test_any_text_is_encoded_and_read_back(text, pictures):
    parts = [text, *[PicturePlace.GIVEN] * pictures]
    ids = T.encoded(parts, 4)
    assert ids[0] == T["<s>"]
    assert ids.count(T["<image>"]) == 4 * pictures
    assert max(ids) < T.rows
    plain = "[" not in text and "<" not in text and "\0" not in text
    if plain and "\u2581" not in text:
        assert T.decoded(ids).strip() == text.strip()


def test_tokens_are_found_where_a_name_holds_another():
    """`[IMG]` stands in `[gIMG]` but for a letter; the longest name wins."""
    added = {"<a>": 500, "<a><b>": 501}
    ids = Emu2Tokens(T.pieces, T.added | added).encoded(["x<a><b>y"], 1)
    assert 501 in ids
    assert 500 not in ids
