"""What prompts share, by hand and for any prompts, and the marks it is found by."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from generators.decoding import prefixes
from generators.decoding.prefixes import PrefixPart, levels, marks, passes


def lettered(*words: str) -> list[prefixes.Marks]:
    return [np.array([ord(letter) for letter in word], dtype=np.int64) for word in words]


def test_parts_by_hand(monkeypatch):
    monkeypatch.setattr(prefixes, "WORTH", 4)

    def of(*words: str) -> list[list[PrefixPart]]:
        return list(levels(lettered(*words)))

    assert of("abcde", "xyz", "abcdf", "abq", "xyzzy") == [
        [PrefixPart((0, 2, 3), 0, 2), PrefixPart((1,), 0, 3), PrefixPart((4,), 0, 5)],
        [PrefixPart((0,), 2, 5), PrefixPart((2,), 2, 5), PrefixPart((3,), 2, 3)],
    ]
    # One letter shared by four is not worth a pass, four letters shared by two are.
    assert of("abcde", "abcdf", "axxxx", "ayyyy") == [
        [PrefixPart((0, 1), 0, 4), PrefixPart((2,), 0, 5), PrefixPart((3,), 0, 5)],
        [PrefixPart((0,), 4, 5), PrefixPart((1,), 4, 5)],
    ]
    # A rubric, its questions, their answers; and one that ends where others go on.
    assert of("rrrQQQQ1", "rrrPPPPP1", "rrrQQQQ2", "rrrPPPPP22", "rrrQQQQ") == [
        [PrefixPart((0, 1, 2, 3, 4), 0, 3)],
        [PrefixPart((0, 2, 4), 3, 7), PrefixPart((1, 3), 3, 8)],
        [
            PrefixPart((0,), 7, 8),
            PrefixPart((2,), 7, 8),
            PrefixPart((1,), 8, 9),
            PrefixPart((3,), 8, 10),
        ],
    ]
    # What only stands at the same place is not shared.
    assert of("aaaaTHESAME", "bbbbTHESAME") == [
        [PrefixPart((0,), 0, 11), PrefixPart((1,), 0, 11)]
    ]
    assert of() == [[]]


def test_passes_by_hand(monkeypatch):
    monkeypatch.setattr(prefixes, "WORTH", 6)
    lengths = [3, 9, 10, 7, 8, 1, 4]
    parts = [PrefixPart((i,), 0, length) for i, length in enumerate(lengths)]
    found = [[len(part) for part in together] for together in passes(parts)]
    # 10, 9, 8 have 1 + 2 of padding, and 7 would have 3 more; 4, 3 have 3 + 4 beside 7.
    assert found == [[10, 9, 8], [7, 4], [3, 1]]
    assert passes([]) == []


@given(st.lists(st.text("ab", max_size=12), max_size=8))
def test_parts_make_up_every_prompt(words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefixes, "WORTH", 3)
        found = [part for level in levels(lettered(*words)) for part in level]
    for i, word in enumerate(words):
        own = [part for part in found if i in part.members]
        assert [p for part in own for p in range(part.start, part.end)] == [
            *range(len(word))
        ]
    for part in found:
        assert len({words[i][: part.end] for i in part.members}) == 1


@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=4))
def test_marks_are_those_of_the_embeddings(words):
    table = torch.randn(2, 5, generator=torch.Generator().manual_seed(1))
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for one in words:
            ids = torch.tensor([ord(letter) - ord("a") for letter in one])
            of_all, apart = marks(table.to(dtype)[ids]), marks(table.to(dtype))
            assert of_all.tolist() == [apart[i] for i in ids]
            assert apart[0] != apart[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_marks_tell_prompts_apart_by_every_value(dtype):
    """One value the least bit larger, one with another sign, two that change places."""
    values = torch.linspace(-1, 1, 7).to(dtype)
    others = values.repeat(2 * len(values), 1)
    larger, negated = others.split(len(values))
    larger.diagonal().copy_(torch.nextafter(values, torch.full_like(values, 9)))
    negated.diagonal().neg_()
    swapped = torch.stack([values.roll(1), values.flip(0)])
    places = torch.tensor(
        [[3, 4, 5], [4, 3, 5], [3, 5, 4], [3, 4, 6], [3, 4, 0], [2, 4, 5]]
    )
    of_values = marks(torch.cat([values[None], others, swapped]))
    of_places = marks(values.repeat(len(places), 1), places)
    assert len({*of_values, *of_places}) == len(of_values) + len(of_places)
