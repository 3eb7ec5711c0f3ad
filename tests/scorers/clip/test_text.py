"""Text as CLIP reads it: cleaning, truncation, windows, and hostile text."""

from __future__ import annotations

import functools

import pytest
from clipscore_helpers import LONG, clip_processor
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.scorers.clipscore import clean_text

pytestmark = pytest.mark.models

START, END = 49406, 49407


@functools.cache
def reader(context=77):
    from plait.scorers.clip.text import ClipText

    return ClipText(context)


def read(text, prefix=None, context=77):
    """One window; with a prefix, even an empty one, as many as it takes."""
    return reader(context).read(text, prefix)


def official(text):
    """open_clip's own tokens, without padding."""
    import open_clip

    row = open_clip.tokenize(text)[0].tolist()
    return tuple(row[: row.index(END) + 1])


@pytest.mark.parametrize(
    "text",
    [
        "a cat",
        "A CAT's photo, on the table: 12 times!",
        "tom &amp;amp; jerry\n\n  \u00e2\u20ac\u201d caf\u00c3\u00a9 \uff01",
        "\u4e2d\u6587 \U0001f600 na\u00efve",
        LONG,
        "x" * 600,
        "a < b: entities &amp;amp;amp;amp;lt; twice and no more",
    ],
)
def test_one_window_is_what_open_clip_makes_of_the_text(text):
    assert read(text).windows == (official(text),)
    assert read("A photo depicts " + text).windows == (official("A photo depicts " + text),)


@pytest.mark.parametrize(
    "text",
    [
        "a cat",
        *(
            "cafe\u0301 na\u0131\u0308ve",
            "\u1100\u1161\u11a8 \u304b\u3099",
            "\u212b\u2126 \uff21",
        ),
        *("\u039f\u03a3 \u0130I\u017f's", "tom &amp; jerry\u00a0\n\x1c caf\u00c3\u00a9"),
        "cafe\u0301 " * 90,
    ],
)
def test_what_transformers_reads_is_what_its_tokenizer_makes_of_the_text(text):
    from plait.scorers.clip.text import ClipText

    theirs = clip_processor().tokenizer(text, truncation=True, max_length=77)["input_ids"]
    assert ClipText(repair=False).read(text).windows == (tuple(theirs),)


@pytest.mark.parametrize("n", [73, 74, 75, 76])
def test_truncated_from_the_76th_token_on(n):
    reading = read("cat " * n)
    assert reading.n_tokens == n
    assert reading.truncated is (n > 75)
    windows = read("cat " * n, prefix="A photo depicts").windows
    assert len(windows) == 1 + (n > 72)


def test_windows_hold_every_token_once_and_whole_sentences():
    reading = read(LONG, prefix="a photo:")
    assert len(reading.windows) > 4
    assert not reading.truncated
    prefix = reader().encode("a photo:")
    bodies = [w[1 + len(prefix) : -1] for w in reading.windows]
    assert all(list(w[1 : 1 + len(prefix)]) == prefix for w in reading.windows)
    assert [t for body in bodies for t in body] == reader().encode(LONG)
    full_stop = reader().encode(".")[0]
    assert all(body[-1] == full_stop for body in bodies)


@pytest.mark.parametrize(
    "special",
    [
        "<|endoftext|>",
        "<|startoftext|>",
        "<end_of_text>",
        "<start_of_text>",
        "<END_of_text>",
        "&lt;end_of_text&gt;",
        "&amp;amp;lt;end_of_text&amp;amp;gt;",
        "<<end_of_text>>",
        "<end_of_text><end_of_text>",
        "<start_of_<end_of_text>text>",
        "\uff1cend_of_text\uff1e",
    ],
)
@pytest.mark.parametrize("prefix", [None, ""])
def test_special_tokens_written_out_end_no_text_early(special, prefix):
    window = read(f"a {special} cat", prefix).windows[0]
    assert window[0] == START
    assert window[-1] == END
    assert not {START, END} & set(window[1:-1])
    assert window[-2] == reader().encode("cat")[0]


@settings(max_examples=50)
@given(
    st.text(
        st.one_of(st.sampled_from("a.! \n<>|&;_"), st.characters(codec="utf-8")),
        max_size=300,
    ),
    st.sampled_from([None, "", "A photo"]),
)
def test_every_window_of_any_text_is_well_formed(text, prefix):
    reading = read(text, prefix, context=20)
    assert reading.windows
    before = len(reader().encode(prefix or ""))
    for window in reading.windows:
        assert 2 + before <= len(window) <= 20
        assert window[0] == START
        assert window[-1] == END
        assert not {START, END} & set(window[1:-1])
    tokens = sum(len(w) - 2 - before for w in reading.windows)
    assert tokens == (18 if reading.truncated else reading.n_tokens)


@settings(max_examples=40)
@given(st.text(max_size=40))
def test_what_counts_as_text_is_what_openai_keeps(text):
    from open_clip.tokenizer import basic_clean

    assert clean_text(text) == basic_clean(text)
