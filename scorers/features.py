"""Style of an answer: its length, its markup, its images.

Counts and their differences as ProBench takes them (Yan98/ProBench_eval@c17b7ae,
engine/markdown_info.py, engine/utils_math.py, show_result.py), and beside them the number
of images, which its text-only answers did not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from plait.generators.errors import UsageError
from plait.generators.extras import import_extra
from plait.scorers.judging.sources import Mode

TokenCounter = Callable[[str], int]
"""How many tokens a text has."""

NAMES = ("tokens", "headers", "lists", "bold", "images")
PUBLISHED = NAMES[:4]
"""The features of the released program, in the order of its columns."""
_HEADER = re.compile(r"^#{1,6}\s", re.MULTILINE)
_LISTS = (
    re.compile(r"^\s*\d+\.\s", re.MULTILINE),
    re.compile(r"^\s*[-*+]\s", re.MULTILINE),
)
_BOLD = (re.compile(r"\*\*[^*\n]+\*\*"), re.compile(r"__[^_\n]+__"))
_OFFICIAL_CODE = re.compile(r"```([^`]*)```")
_CODE = re.compile(r"^(```+|~~~+).*?^\1[^\S\n]*$", re.MULTILINE | re.DOTALL)
_WORD = re.compile(
    # Scripts written without spaces: Thai to Khmer, kana, Han, Hangul, one each.
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
    r"|[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
    r"|[^\w\s]"
)


@dataclass(frozen=True, slots=True)
class Style:
    """Counts of one answer."""

    tokens: int = 0
    headers: int = 0
    lists: int = 0
    """List items, ordered and unordered."""
    bold: int = 0
    images: int = 0


def words(text: str) -> int:
    """Words, punctuation marks, and characters of scripts without spaces.

    A measure of length that needs no vocabulary file.
    """
    return len(_WORD.findall(text))


def gpt_tokens() -> TokenCounter:
    """Tokens of tiktoken's encoding for gpt-3.5-turbo, as the official program counts.

    Raises UsageError when tiktoken is not installed or cannot load its vocabulary.
    """
    tiktoken = import_extra("tiktoken", "the official token count")
    try:
        encoding = tiktoken.encoding_for_model("gpt-3.5-turbo")
    except Exception as error:
        # Without a connection the HTTP library underneath raises errors of many kinds.
        raise UsageError(
            "tiktoken cannot load its vocabulary cl100k_base; where there is no network, "
            f"set TIKTOKEN_CACHE_DIR to a folder that holds it ({error})"
        ) from error
    return lambda text: len(encoding.encode(text, disallowed_special=()))


def style(
    parts: Sequence[str],
    images: int = 0,
    *,
    count: TokenCounter = words,
    mode: Mode = "corrected",
    stripped: bool = True,
) -> Style:
    """Return counts over the turns `parts` of one answer.

    `stripped` is whether white space around the turns counts as tokens; the official
    program strips the model's answers and not the baseline's.
    """
    counted = [part.strip() for part in parts] if stripped else parts
    # Joined by blanks, as officially, a heading that begins a turn begins no line.
    between = " " if mode == "official" else "\n"
    prose = without_code(between.join(parts), mode)
    return Style(
        tokens=count(" ".join(counted)),
        headers=_occurrences([_HEADER], prose),
        lists=_occurrences(_LISTS, prose),
        bold=_occurrences(_BOLD, prose),
        images=images,
    )


def _occurrences(patterns: Iterable[re.Pattern[str]], text: str) -> int:
    return sum(len(pattern.findall(text)) for pattern in patterns)


def without_code(text: str, mode: Mode = "corrected") -> str:
    """`text` without its fenced code blocks.

    The official program deletes the content of a fence wherever it occurs in the
    text, and keeps the fences: a fence around one blank deletes every blank.
    """
    if mode == "corrected":
        return _CODE.sub("", text)
    for block in _OFFICIAL_CODE.findall(text):
        text = text.replace(block, "")
    return text


def difference(
    first: Style, second: Style, names: Sequence[str] = NAMES
) -> tuple[float, ...]:
    """Return (a - b) / (a + b + 1) for each of the features `names`, between -1 and 1."""
    ratios = []
    for name in names:
        a = getattr(first, name)
        b = getattr(second, name)
        # Plus 1, since both may be 0.
        ratios.append((a - b) / (a + b + 1))
    return tuple(ratios)
