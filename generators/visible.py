"""Text of models, servers and data sets as it may be printed."""

from __future__ import annotations

import re

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but newline and tab, what ends a line or turns its direction, and
lone surrogates, which no terminal can be sent."""


def visible(text: str) -> str:
    r"""Return `text` with escapes such as `\x1b` for characters that a terminal obeys."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)
