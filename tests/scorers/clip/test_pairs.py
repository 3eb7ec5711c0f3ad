"""Which text belongs to which picture: hand-written cases, and what holds of all."""

from __future__ import annotations

import html

import pytest
from clipscore_helpers import candidate, picture
from hypothesis import given
from hypothesis import strategies as st

from generators.document import Document, Image, Text
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


SEGMENTS = st.lists(
    st.one_of(st.sampled_from([I0, I1]), st.sampled_from(["a", "b", " ", ""]).map(Text)),
    max_size=8,
)


@given(SEGMENTS)
def test_every_picture_has_one_pair_and_text_only_where_there_is_some(segments):
    document = Document(tuple(segments))
    pairs = pairs_of(document)
    assert tuple(p.image for p in pairs) == document.images
    assert all(bool(p.text) == bool(document.text.strip()) for p in pairs)


@given(SEGMENTS, SEGMENTS)
def test_what_follows_a_picture_changes_no_pair_before_it(before, after):
    """Given that text stands before the first picture."""
    start = (Text("x"), *before, I2)
    short = pairs_of(Document(start))
    longer = pairs_of(Document((*start, *after)))
    assert longer[: len(short)] == short


@given(SEGMENTS)
def test_the_text_is_the_nearest_before_the_picture(segments):
    """Against a plain reading of the rule, one picture at a time."""
    content = [s for s in segments if isinstance(s, Image) or s.text.strip()]
    for pair, at in zip(
        pairs_of(Document(tuple(segments))),
        [i for i, s in enumerate(content) if isinstance(s, Image)],
        strict=True,
    ):
        texts = _run_before(content, at) or _run_after(content, at)
        assert pair.text == "\n".join(texts)


def _run_before(content, at):
    while at > 0 and isinstance(content[at - 1], Image):
        at -= 1
    run = []
    while at > 0 and isinstance(content[at - 1], Text):
        at -= 1
        run.insert(0, content[at].text)
    return run


def _run_after(content, at):
    while at < len(content) and isinstance(content[at], Image):
        at += 1
    run = []
    while at < len(content) and isinstance(content[at], Text):
        run.append(content[at].text)
        at += 1
    return run
