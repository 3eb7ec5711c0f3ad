"""Style counts by hand, and their differences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.scorers.features import (
    NAMES,
    PUBLISHED,
    Style,
    difference,
    style,
    without_code,
    words,
)

ANSWER = """# Title
text **bold** and __bold__ and ** not bold **
## Part
- one
  * two
+ three
1. first
 23. second
#no header
####### no header
```python
# a comment
- a list
```
"""


def test_markup_by_hand() -> None:
    result = style([ANSWER], images=2)
    assert (result.headers, result.lists, result.images) == (2, 5, 2)
    assert result.bold == 3  # `** not bold **` too: blanks are no bar to the pattern.


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("", 0),
        ("two words", 2),
        ("don't, please!", 6),
        ("\u4f60\u597d\u4e16\u754c", 4),
        ("\u00e9t\u00e9 \u0440\u0443\u0441\u0441\u043a\u0438\u0439", 2),
        ("a\u4f60b", 3),
    ],
)
def test_words(text: str, n: int) -> None:
    assert words(text) == n


def test_official_code_removal_deletes_the_inside_everywhere() -> None:
    assert without_code("a b ``` ``` c", "official") == "ab``````c"
    assert without_code("x=1 ```x=1``` y", "official") == " `````` y"


def test_code_blocks_are_removed_whole_and_nothing_else() -> None:
    text = "a\n```py\nx ` y\n```\nb `c`\n~~~\nd\n~~~\ne"
    assert without_code(text) == "a\n\nb `c`\n\ne"
    assert without_code("open ``` fence") == "open ``` fence"


STYLES = st.builds(Style, *[st.integers(0, 10**6)] * len(NAMES))


@given(STYLES, STYLES)
def test_differences_are_the_formula_odd_and_bounded(a: Style, b: Style) -> None:
    result = dict(zip(NAMES, difference(a, b), strict=True))
    for name in NAMES:
        x, y = getattr(a, name), getattr(b, name)
        assert result[name] == (x - y) / (x + y + 1)
        assert abs(result[name]) < 1
    assert difference(b, a) == tuple(-result[name] for name in NAMES)
    assert difference(a, b, PUBLISHED) == difference(a, b)[:4]
