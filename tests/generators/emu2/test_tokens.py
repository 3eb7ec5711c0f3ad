"""Ids of prompts: where text is cut, what is stripped, what is no special token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from picture_helpers import smooth

from generators.emu2.models import toy_tokens
from generators.emu2.tokens import ADDED, ADDED_CHAT, Emu2Tokens
from generators.errors import CheckpointError

T = toy_tokens(ADDED_CHAT)
KEEPING = toy_tokens(ADDED_CHAT, strip=False)
IMAGE = smooth()


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
    with pytest.raises(CheckpointError, match=r"'\[USER\]'"):
        gen["[USER]"]


def test_white_space_beside_special_tokens():
    """Dropped, or kept where the fast tokenizer kept it; always kept beside `<unk>`."""
    parts = ["a house . [USER]:  red \n", IMAGE, "\n bird [ASSISTANT]:"]
    frame = [T["[IMG]"], *[T["<image>"]] * 3, T["[/IMG]"]]
    head, tail = [T["<s>"]], [T["[ASSISTANT]"], *piece(":")]
    stripped = [*piece("a house ."), T["[USER]"], *piece(":  red"), *frame, *piece("bird")]
    assert T.encoded(parts, 3) == [*head, *stripped, *tail]
    kept = [*piece("a house . "), T["[USER]"], *piece(":  red \n"), *frame]
    assert KEEPING.encoded(parts, 3) == [*head, *kept, *piece("\n bird "), *tail]
    unknown = [*head, *piece("  a "), T["<unk>"], *piece(" b  ")]
    assert T.encoded(["  a <unk> b  "], 1) == unknown
    assert T.encoded(["a bird \n"], 5, True) == [*head, *piece("a bird"), T["[IMG]"]]


def test_every_run_has_a_space_of_its_own_before_it():
    ids = T.encoded(["house</s>house"], 1)
    assert ids == [T["<s>"], *piece("house"), T["</s>"], *piece("house")]
    assert piece("house") == [T.pieces.id_of("\u2581house")]


def test_adjoining_texts_are_one():
    assert T.encoded(["a ho", "use"], 1) == T.encoded(["a house"], 1)
    assert T.encoded(["a [US", "ER] b"], 1) == T.encoded(["a [USER] b"], 1)


def test_text_does_not_mean_an_image():
    """An image mark spelt out in text would shift the vectors of the real images."""
    marks = ["[IMG]", "[/IMG]", "<image>", "[gIMG]", "[PAD]"]
    ids = T.encoded([f"a {' '.join(marks)} b", IMAGE], 2)
    assert [ids.count(T[m]) for m in marks] == [1, 1, 2, 0, 0]
    assert T.decoded(ids) == f"a {' '.join(marks)} b"


def test_grounding_tokens_may_be_spelt_out():
    ids = T.encoded(["<grounding><phrase>a bird</phrase><patch_index_0256>"], 1)
    named = ["<s>", "<grounding>", "<phrase>", "</phrase>", "<patch_index_0256>"]
    assert [i for i in ids if i not in piece("a bird")] == [T[n] for n in named]


def test_special_tokens_are_not_written_out():
    ids = [T["[USER]"], *piece("a bird"), T["</s>"], T["<image>"], T["[PAD]"], T["<unk>"]]
    assert T.decoded(ids) == "a bird"


@given(st.text(st.characters(codec="utf-8"), max_size=40), st.integers(0, 3))
def test_any_text_is_encoded_and_read_back(text, images):
    ids = T.encoded([text, *[IMAGE] * images], 4)
    assert ids[0] == T["<s>"]
    assert ids.count(T["<image>"]) == 4 * images
    assert max(ids) < T.rows
    plain = "[" not in text and "<" not in text and "\0" not in text
    if plain and "\u2581" not in text:
        assert T.decoded(ids).strip() == text.strip()


def test_the_longest_name_wins():
    added = {"<a>": 500, "<a><b>": 501}
    names = {name: token.id for name, token in T.added.items()}
    ids = Emu2Tokens(T.pieces, names | added).encoded(["x<a><b>y"], 1)
    assert 501 in ids
    assert 500 not in ids
