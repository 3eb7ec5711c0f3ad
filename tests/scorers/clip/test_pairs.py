"""Which text belongs to which picture: hand-written cases, and what holds of all."""

from __future__ import annotations

import html

import pytest
from clipscore_helpers import candidate, picture

from scorers.clipscore import pairs_of

I0, I1, I2, I3 = (picture(i) for i in range(4))


@pytest.mark.parametrize(
    ("segments", "texts"),
    [
        ([], []),
        (["a"], []),
        (["a", I0], ["a"]),
        (["a", I0, "b", I1], ["a", "b"]),
        (["a", I0, "b", I1, "c"], ["a", "b"]),
        (["a", I0, I1, "b", I2], ["a", "a", "b"]),
        ([I0, "a"], ["a"]),
        ([I0, "a", I1, "b"], ["a", "a"]),
        ([I0, I1, "a", I2, I3], ["a", "a", "a", "a"]),
        ([I0, "a", "b", I1, "c"], ["a\nb", "a\nb"]),
        (["a", "b", I0], ["a\nb"]),
        (["a", "  \n", "b", I0], ["a\nb"]),
        (["a", I0, " ", I1], ["a", "a"]),
        ([" ", I0, "a", I1], ["a", "a"]),
        ([I0, "", I1], ["", ""]),
        ([I0], [""]),
        ([" a ", I0], ["a"]),
        (["a", I0, "b", I0], ["a", "b"]),
    ],
)
def test_pairing(segments, texts):
    document = candidate(*segments).document
    pairs = pairs_of(document)
    assert [p.text for p in pairs] == texts
    assert tuple(p.image for p in pairs) == document.images
    assert [p.position for p in pairs] == list(range(len(texts)))


def test_text_that_cleans_to_nothing_parts_no_pictures():
    def clean(text: str) -> str:
        return html.unescape(text).strip()

    document = candidate("a", I0, "&nbsp;", I1).document
    assert [p.text for p in pairs_of(document, clean)] == ["a", "a"]
    assert [p.text for p in pairs_of(document)] == ["a", "&nbsp;"]
