"""Whose words stand in a judge's reply: its own, or some that it quotes or supposes.

A judge repeats what it judges, and an answer can hold lines that look like a verdict. What
is quoted, supposed, denied or said of a maximum is none; of several that differ none is
picked, but for a later one that is said to correct the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_FENCED = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[^`\n]*\n(?P<inside>.*?)"
    r"(?:^[ \t]*(?P=fence)(?:`*|~*)[ \t]*(?:\n|\Z)|\Z)",
    re.MULTILINE | re.DOTALL,
)
_CITED = re.compile(
    r"^[ \t]*(?:(?:[-*+\u2022]|\d{1,3}[.)])[ \t]+)?>.*(?:\n|\Z)", re.MULTILINE
)
"""A line of a block quotation, also as an item of a list."""
_THINKING = re.compile(
    r"^[ \t]*<(?P<tag>think(?:ing)?|thought|reasoning)>.*?(?:</(?P=tag)>|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_QUOTATION = re.compile(
    r'(?<![\w"\\])"[^"]+"(?![\w"])|\u201c[^\u201c\u201d]+\u201d|\u201e[^\u201e\u201c\u201d]+'
    r"[\u201c\u201d]|\xab[^\xab\xbb]+\xbb|\u300c[^\u300c\u300d]+\u300d"
)
_BOXED = re.compile(r"\$*\\boxed\{(?:\\text\{)?([^{}\n]*)\}?\}\$*")
_TAGGED = re.compile(
    r"<(?P<tag>(?:final_?|overall_?)?(?:score|verdict|answer))>[ \t]*([^<>\n]*?)[ \t]*"
    r"</(?P=tag)>",
    re.IGNORECASE,
)


def plain_marks(reply: str) -> str:
    """Return a reply with one kind of line ends, and what boxes and tags hold as text."""
    reply = re.sub(r"\r\n?", "\n", reply)
    return _TAGGED.sub(r"\g<tag>: \2", _BOXED.sub(r"\1", reply))


def own_texts(reply: str) -> list[str]:
    """Return a reply without block quotations and fenced blocks, then its own block.

    That is the only fenced block, unless the words around it say that it is a quotation.
    It counts where the rest of the reply says nothing.
    """
    # A thought is no verdict wherever it stands, also one that does not end.
    reply = _THINKING.sub("", reply)
    blocks = list(_FENCED.finditer(reply))
    outside = _CITED.sub("", _FENCED.sub("", reply)).strip()
    if len(blocks) != 1:
        return [outside]
    before = last_line(reply[: blocks[0].start()])
    after = first_line(reply[blocks[0].end() :])
    shown = introduces_others(before) or (_SHOWN.search(before) and is_doubtful(before))
    if shown or _CITED.match(before) or takes_back(after) or _REPORTED.search(after):
        return [outside]
    inside = _CITED.sub("", _FENCED.sub("", blocks[0]["inside"])).strip()
    return [outside, inside] if outside else [inside]


_SHOWN = re.compile(
    r"\b(?:block|line|json|code|text|following|verdict|score|judge?ment|this)\b|[:\uff1a]$",
    re.IGNORECASE,
)


def last_line(text: str) -> str:
    """Return the last line of a text that is not blank."""
    return text.rstrip().rpartition("\n")[2]


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank."""
    return text.lstrip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text."""

    start: int
    end: int


@lru_cache(maxsize=8)
def quotations(text: str) -> tuple[Span, ...]:
    """Return what stands between quotation marks, with the marks."""
    return tuple(Span(match.start(), match.end()) for match in _QUOTATION.finditer(text))


# ------------------------------------------------------------------------ of single lines

_SAYING = (
    r"(?:claim|say|said|state|write|wrote|written|assert|insist|contain|include|read|quote"
    r"|end|begin|demand|ask|tell|told|instruct|request|suggest|pretend|propose|argue"
    r"|mention|declare|award|announce)(?:s|d|ed|ing)?"
)
_AUTHOR = (
    r"(?:answers?|responses?|continuation|story|solution|text|author|writer|models?"
    r"|assistants?|candidate|document|output|prompt|user|caption|image|picture|it|they"
    r"|which|who|that|someone|some|people|one)"
)
_REPORTED = re.compile(
    rf"\b{_AUTHOR}\b[^.!?\n]{{0,80}}?\b{_SAYING}\b|\baccording to (?!the)"
    rf"|\b(?:quot(?:e[sd]?|ing|ation)|claimed|attempt(?:s|ed)?|inject(?:ion|ed|s)?"
    r"|manipulat\w+|self-\w+|(?:its|their|his|her|\w+['\u2019]s) own)\b"
    r"|\u58f0\u79f0|\u5199\u9053|\u5199\u7740|\u5f15\u7528",
    re.IGNORECASE,
)
"""Words of the answer or of others, told by the judge."""
_SUPPOSED = re.compile(
    r"\b(?:if|unless|provided that|assuming|suppos\w+|would|could|might|had (?:the|it|they)"
    r"|were (?:the|it|they)|to (?:earn|get|gain|receive|reach|achieve|obtain|attain|deserve"
    r"|merit|be given|be worth|score)|in order to|hypothetical\w*|for example|for instance"
    r"|e\.g|examples?|maximum|max|highest|perfect|ideal(?:ly)?|best possible"
    r"|possible score|a higher|in theory|potential(?:ly)?|should have|ought to)\b"
    r"|\u5982\u679c|\u82e5|\u5047\u5982|\u5047\u8bbe|\u6ee1\u5206|\u6700\u9ad8|\u4f8b\u5982",
    re.IGNORECASE,
)
"""What is not said to be so."""
_JUDGING = re.compile(
    r"judge?ment|verdict|evaluat|assess|grad(?:e|ing)|scor(?:e|ing)|rating|feedback|overall"
    r"|final|conclu|reflection|total|summary|therefore|decision|result|\bmy\b|\bI\b",
    re.IGNORECASE,
)
_LEADING_ON = re.compile(
    r"(?:[:\uff1a,?]|\b(?:be|is|are|been|of|an?|the|as|with|lines?|get|earn|to|higher"
    r"|than|maximum|(?:say|claim|state|write|read|contain|include|insist|show|display"
    r"|print|end|close|finish)s|write|say|reply|answer|respond|output|print))[*_ \t]*"
    r"[-\u2013\u2014]?[ \t]*$",
    re.IGNORECASE,
)
"""The end of a line that goes on in the next."""
_SHOWING = re.compile(
    r"\b(?:last|first|final|closing|opening) (?:lines?|sentences?|words?)\b.{0,40}"
    r"\b(?:of|in)\b"
    rf"|\b{_AUTHOR}\b.*\b(?:shows|displays|prints|ends|closes|finishes)\b"
    r"|\b(?:ignore|disregard|forget)\b.*\b(?:rules?|instructions?|above|before)\b",
    re.IGNORECASE,
)
"""The beginning of what an answer shows or demands, where the next line goes on."""
_TOLD_AFTER = re.compile(
    rf"[\W_]*(?:(?-i:is|was|which|as|says|but|so)\b[^\n]*?\b(?:{_AUTHOR}|I)\b"
    rf"|(?:this|that|these|those)\b(?:\W+(?:last|lines?|block|verdicts?|scores?|is|are|was"
    r"|were|comes?|came|from|part|of|what|the|in|by|quoted|copied|taken|claimed|written"
    rf"|stated|\w+'s))+\W+(?:{_AUTHOR}|(?-i:[AB]))\b"
    r"|(?:no[,.;: ]+)?(?:this|that|it) (?:is|was) (?:wrong|incorrect|not (?:right|mine)))",
    re.IGNORECASE,
)
"""A line that says of those before it that they are the answer's."""


def introduces_others(line: str) -> bool:
    """Return whether a line says that the next ones are quoted or supposed."""
    line = line.strip()
    if not _LEADING_ON.search(line):
        return False
    if _REPORTED.search(line) or _SUPPOSED.search(line):
        return True
    if _SHOWING.search(line):
        return True
    named = re.search(rf"\b{_AUTHOR}\b", line, re.IGNORECASE)
    labels = re.fullmatch(
        r"[\W_]*(?:answer|output|response|text)[\W_]*", line, re.IGNORECASE
    )
    ended = re.search(r"[:\uff1a][*_]*$", line)
    return bool(named and ended and not labels and not _JUDGING.search(line))


def takes_back(line: str) -> bool:
    """Return whether a line says that those right before it are quoted or supposed."""
    goes_on = line[:1].islower()
    return bool(_TOLD_AFTER.match(line) or (goes_on and is_doubtful(line)))


def is_doubtful(text: str) -> bool:
    """Return whether a text tells what others say, or supposes something."""
    return bool(_SUPPOSED.search(text) or _REPORTED.search(text))


# ------------------------------------------------------------------- of several statements

_CORRECTION = re.compile(
    r"\bor rather\b|\b(?:on|upon|after) (?:second|further|closer|more careful|re-?)? ?"
    r"(?:reflection|thoughts?|consideration|look|inspection|reading|review|reconsider\w*)\b"
    r"|\b(?:re-?consider|re-?evaluat|re-?assess|re-?check|re-?comput|re-?count)\w*"
    r"|\b(?:correct(?:ion|ed|ing)|revis(?:e|ed|ion|ing)|scratch that|strike that|wait"
    r"|let me correct|i (?:must|need to|should|have to) correct|i made a mistake"
    r"|i was wrong|apologi[sz]e|my mistake)\b|\u66f4\u6b63|\u4fee\u6b63|\u91cd\u65b0",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Statement(Span):
    """A value that a reply states."""

    value: str


def agree_on(text: str, statements: Sequence[Statement]) -> list[str]:
    """Return the different values; the last alone where it corrects the others."""
    inside = sorted(statements, key=lambda s: s.start)
    values = list(dict.fromkeys(s.value for s in inside))
    if len(values) < 2:
        return values
    last = inside[-1].value
    before = max(i for i, s in enumerate(inside) if s.value != last)
    # With the words of the next: `Revised score: 3`.
    between = text[inside[before].end : inside[before + 1].end]
    corrected = _CORRECTION.search(between) and not is_doubtful(between)
    return [last] if corrected else values
