"""What a judge's reply states of each criterion and as the score.

Every way of writing it is read that a person reads at a glance: lines, lists, tables,
sections, an object in the form of JSON, and for the score a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from plait.generators import replies
from plait.scorers.judging.rubrics import TOP
from plait.scorers.judging.voice import (
    Span,
    Statement,
    agree_on,
    first_line,
    introduces_others,
    is_doubtful,
    last_line,
    quotations,
    takes_back,
)

SCORE = "score"
_HEADING = "verdicts"

_NUMBER = r"(?P<value>[+-]?\d{1,9}(?:\.\d{1,9})?)"
_OF = r"(?:[ \t*_`]*(?:/|(?:out )?of\b)[ \t*_`]*(?P<of>\d{1,3}))?"
_NOTE = r"(?:[(\uff08][^)\uff09\n]*[)\uff09])"
_KIND = r"(?:(?:my|the|final|overall|total|revised|corrected|updated|adjusted|new)[ ]+)*"
_TOTAL = (
    r"(?:score|grade|rating|(?:\u6700\u7ec8|\u7efc\u5408|\u603b\u4f53)?"
    r"(?:\u5f97\u5206|\u8bc4\u5206|\u5206\u6570|\u603b\u5206)|\u30b9\u30b3\u30a2|\uc810\uc218"
    r"|puntuaci\xf3n|puntaje|bewertung|punktzahl|pontua\xe7\xe3o|punteggio"
    r"|[\u041e\u043e]\u0446\u0435\u043d\u043a\u0430)(?!\w)"
)
"""What a total is called, in languages in which judges reply."""
_FLAGS = re.IGNORECASE | re.MULTILINE | re.ASCII
_SCORE = re.compile(
    rf"^[ \t#*_`|-]*{_KIND}{_TOTAL}(?P<before>[ ]*{_NOTE})?"
    rf"(?:[ ]+[-\u2013\u2014][ ]+)?[\s*_`:\uff1a=|<\[\u4e3a\u662f]*{_NUMBER}{_OF}"
    r"[*_`>\]]*(?:[ ]+points?(?: out of 6)?|[ ]*\u5206)?[ \t]*[.\u3002|]?[ \t]*"
    rf"(?P<after>{_NOTE}[.]?[ \t]*)?[*_`]*[ \t]*$",
    _FLAGS,
)
_MARKS = r"(?:[^\w\n]|_)*"
_WHOLE = r"(?:answer|response|continuation|story|solution|one|it)"
_GIVES = (
    r"(?: (?:it|this|the|an?|overall|total|final|score|rating|grade|mark|of|answer|response"
    r"|continuation|story|solution|one))*[ ]+[*_]*(?=\d[^.\n\d]*6\b)"
)
_SENTENCE = re.compile(
    # The score is 5; final grade: 5 of 6.
    rf"(?:(?:^{_MARKS}|[.!?;,][*_]*[ ]+)"
    r"(?:(?:so|thus|therefore|hence|overall|in total|in conclusion)[, ]+)*"
    rf"(?:i (?:give|assign|award)(?: (?:it|this))? )?(?:(?:an?|its) )?{_KIND}{_TOTAL}"
    rf"(?: (?:for|of) (?:the|this) {_WHOLE})?[*_` ]*(?:is(?: therefore| thus)?\b|:"
    r"|\uff1a|=|of\b)"
    # I would give it 5 out of 6; it earns a 5/6.
    rf"|\bi(?:'d| would)? (?:give|rate|score|grade|award|assign){_GIVES}"
    rf"|\b(?:{_WHOLE}|this) (?:earns|deserves|receives|merits|gets){_GIVES}"
    # Total: 5; and 5/6 alone in a line.
    rf"|^{_MARKS}(?:final|overall|total|sum)(?: verdict| points)?[*_ ]*[:=\uff1a]"
    rf"|^{_MARKS}(?=\d[*_ ]*(?:/|(?:out )?of\b)[*_ ]*6{_MARKS}$))"
    rf"[ \t*_`\[<]*{_NUMBER}{_OF}[*_`\]>]*(?:[ ]+points?)?"
    r"(?=[ \t]*$|[ \t]*[.,;:!](?!\d)|[ \t]*[()\uff08\u3002]"
    r"|[ \t]+[-\u2013\u2014][ ]+[^\W\d]|[ ]+(?:because|since|as)\b)"
    # And not the first item of a list.
    r"(?![.)][ ][^\n]*[ ]2[.)][ ])",
    _FLAGS,
)
"""The score in running text, up to its number."""
_VERDICTS = re.compile(
    r"^[ \t#*_]*(?:(?:my|the|final)[ ]+)*(?:verdicts?|\u5224\u5b9a|\u88c1\u51b3)(?!\w)"
    r"[ \t*_:\uff1a]*$",
    _FLAGS,
)
_DOUBTED = re.compile(
    r"[ \t,;:.(*_\uff08\uff0c\u2013\u2014-]*(?:(?:but|and|only)\b[ ,]*)*"
    r"(?:if\b|unless\b|provided\b|assuming\b|at (?:most|best)\b|in theory\b|hypothetical"
    r"|claimed|(?:would|could|might) (?:be|have)\b|(?:as )?according to\b"
    r"|as (?:claimed|stated)|says\b|quoted|(?:or|to) \d|\u5982\u679c"
    r"|(?:the )?(?:(?:max(?:imum)?|highest|best)(?: possible)?(?: score)?|possible"
    r"|\u6ee1\u5206)"
    r"[ .*]*(?:[)\uff09]|$))",
    re.IGNORECASE | re.MULTILINE,
)
"""What takes the number before it back, or adds another."""
_DENIED = re.compile(
    r"\b(?:not|never|no longer|cannot|instead|rather)\b|n't\b", re.IGNORECASE
)
_SUPPOSING_ITSELF = re.compile(r"\bI(?:'d| would)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Line(Statement):
    """A statement in the form that a judge is asked for; a heading's value is empty."""

    label: str


def find_values(
    text: str, criteria: Sequence[str], penalty: str | None
) -> dict[str, list[str]]:
    """Return the different values that a text states of each criterion, and as `SCORE`.

    Verdicts count after their heading, if it has one. A score out of `TOP` is written as
    an integer, any other as it stands; a penalty has no sign.
    """
    names = [*criteria]
    if penalty:
        names.append(penalty)
    text, lines = _split_objects(text, names)
    lines += _own_lines(text, _form_lines(text, names))
    headings = [line.start for line in lines if line.label == _HEADING]
    first_heading = min(headings, default=0)
    by_label: dict[str, list[Statement]] = {label: [] for label in (*names, SCORE)}
    for line in lines:
        if line.label not in by_label:
            continue
        if line.label != SCORE and line.start < first_heading:
            continue
        value = line.value.removeprefix("-") if line.label == penalty else line.value
        by_label[line.label].append(Statement(line.start, line.end, value))
    return {label: agree_on(text, stated) for label, stated in by_label.items()}


def _score_value(match: re.Match[str]) -> str:
    """Return an integer where a score is out of `TOP`; else the value, and out of what."""
    value = match["value"]
    of = match["of"]
    if (of is None or int(of) == TOP) and float(value) in range(TOP + 1):
        return str(int(float(value)))
    return value if of is None else f"{value}/{of}"


# ------------------------------------------------------------------------------ the form


def _form_lines(text: str, names: Sequence[str]) -> list[_Line]:
    """Return headings, verdicts, and statements of the score, in their order."""
    lines = list(_table_verdicts(text, names))
    for name in names:
        lines += _verdicts_of(text, name)
    scores = _scores(text)
    sections = _sections(text, names, lines)
    lines += _section_verdicts(text, sections, scores)
    for heading in _VERDICTS.finditer(text):
        lines.append(_Line(heading.start(), heading.end(), "", _HEADING))
    lines += _scores_of_all(text, scores, sections, len(names))
    return sorted(lines, key=lambda line: line.start)


def _verdicts_of(text: str, name: str) -> list[_Line]:
    """Return the verdicts on one criterion that are written in a line with its name."""
    lines = []
    for pattern in _lines_of(name):
        for match in pattern.finditer(text):
            if not _DOUBTED.match(text, match.end()):
                lines.append(_Line(match.start(), match.end(), match["value"], name))
    return lines


def _scores(text: str) -> list[_Line]:
    """Return the scores in lines of their own, then those in sentences elsewhere."""
    matches = list(_SCORE.finditer(text))
    scores = []
    for match in matches:
        notes = (match["before"], match["after"])
        if not any(_DOUBTED.match(note or "") for note in notes):
            scores.append(_Line(match.start(), match.end(), _score_value(match), SCORE))
    for said in _sentences(text):
        # A line of the form that is doubted does not come back as a sentence.
        if not any(match.start() <= said.end <= match.end() for match in matches):
            scores.append(said)
    return scores


def _scores_of_all(
    text: str, scores: Sequence[_Line], sections: Sequence[_Line], criteria: int
) -> list[_Line]:
    """Return the scores that are not those of the criterion whose section holds them."""
    with_score = [section for section in sections if _holds_any(section, scores)]
    if len(sections) == criteria and with_score == sections[-1:]:
        # A score below all criteria, of which none has one of its own.
        sections = []
    found = []
    for score in scores:
        in_section = any(_holds_any(section, [score]) for section in sections)
        if not in_section or _OF_ALL.search(text, score.start, score.end):
            found.append(score)
    return found


def _holds_any(section: Statement, scores: Sequence[Statement]) -> bool:
    return any(section.start < score.end <= section.end for score in scores)


def _own_lines(text: str, lines: Sequence[_Line]) -> list[_Line]:
    """Return the lines that are the judge's own: neither quoted nor supposed.

    Lines one below the other are one block as long as none comes again, and what is said
    before or after a block is said of all of it.
    """
    # Quotation marks inside a line are about single words, not about its verdict.
    quoted = []
    for quotation in quotations(text):
        if "\n" in text[quotation.start : quotation.end]:
            quoted.append(quotation)
    own: list[_Line] = []
    before = 0
    for block in _blocks(text, lines):
        start = block[0].start
        end = _line_end(text, block[-1].end)
        introduced = introduces_others(last_line(text[before:start]))
        if not introduced and not takes_back(first_line(text[end:])):
            own += block
        before = end
    return [line for line in own if not _is_inside(line.start, quoted)]


def _is_inside(position: int, spans: Sequence[Span]) -> bool:
    return any(span.start < position < span.end for span in spans)


def _blocks(text: str, lines: Sequence[_Line]) -> Iterator[list[_Line]]:
    """Yield lines with nothing between them, each label once."""
    block: list[_Line] = []
    for line in lines:
        end = _line_end(text, block[-1].end) if block else 0
        again = line.start > end and any(line.label == other.label for other in block)
        if block and (again or text[end : line.start].strip()):
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _line_end(text: str, position: int) -> int:
    newline = text.find("\n", position)
    return len(text) if newline < 0 else newline


_LISTED = r"^[ \t#*_-]*(?:\d+[ ]*[.)][ \t*_]*)?"
_ZERO_OR_ONE = rf"{_NUMBER}(?:[ ]*/[ ]*1\b)?[*_`>\]]*(?:[ ]+points?)?"
_WORD = r"(?:score|verdict|rating|\u5f97\u5206|\u5224\u5b9a)"
_ENDED = (
    r"(?=[ \t]*$|[ \t]*[.,;:\u3002\uff0c\uff1b](?!\d)|[ \t]*[(|\uff08]"
    r"|[ \t]+[\u2713\u2714\u2705\u2717\u2718\u274c]"
    r"|[ \t]+(?:-|\u2013|\u2014)[ \t])"
)


@cache
def _name_pattern(name: str) -> str:
    """Match a criterion's name, with a note or `score` behind it, and any markup."""
    return rf"{re.escape(name)}(?:[ ]+score)?[*_]*(?:[ ]*{_NOTE})?[*_]*(?:[ ]+score)?[*_]*"


@cache
def _lines_of(name: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return lines of a criterion with its verdict first, and with its verdict last.

    `1. **Name** (strict): 1/1 - because`, and `Name: because. Score: 1`.
    """
    between = r"(?:[ \t]*[:=|\uff1a\u2192]|[ \t]+(?:-|\u2013|\u2014|->)(?=[ \t]))"
    first = (
        rf"{between}[ \t*_`<\[]*(?:{_WORD}[*_ ]*[:=\uff1a]?[*_ ]*)?{_ZERO_OR_ONE}{_ENDED}"
    )
    last = (
        rf"{between}[^\n]*?(?:[.,;!)\u3002\uff0c][*_ \t]*|[ \t](?:-|\u2013|\u2014)[ \t]+)"
        rf"[(\[*_]*(?:{_WORD}[*_]*[ ]*[:=\uff1a]|->|\u2192)[ \t*_]*{_ZERO_OR_ONE}"
        r"[)\]*_. \t]*$"
    )
    return (
        re.compile(rf"{_LISTED}{_name_pattern(name)}{first}", _FLAGS),
        re.compile(rf"{_LISTED}{_name_pattern(name)}{last}", _FLAGS),
    )


_OF_ALL = re.compile(r"\b(?:my|final|overall|total)\b|\u6700\u7ec8|\u603b", re.IGNORECASE)
_SECTION_VALUE = re.compile(
    rf"^(?:[ \t*_`\[<]|-(?=[ \t]))*(?:{_WORD}[*_]*[ \t]*[:=\uff1a]?[ \t*_`\[<]*)?"
    rf"{_ZERO_OR_ONE}[.]?[ \t*_]*{_ENDED}",
    _FLAGS,
)


def _sections(
    text: str, names: Sequence[str], verdicts: Sequence[Statement]
) -> list[_Line]:
    """Return what follows each line about a criterion that has no verdict itself.

    The last ends where a paragraph after it states a score. A score in a section is that
    of the criterion, unless it says that it is of all.
    """
    starts: list[_Line] = []
    # Each name once: a penalty may be called like a criterion.
    for name in dict.fromkeys(names):
        pattern = re.compile(rf"{_LISTED}{_name_pattern(name)}.*", _FLAGS)
        for title in pattern.finditer(text):
            starts.append(_Line(title.start(), title.end(), "", name))
    starts.sort(key=lambda line: line.start)
    sections: list[_Line] = []
    for i, line in enumerate(starts):
        if any(line.start <= verdict.start <= line.end for verdict in verdicts):
            continue
        other = re.compile(r"^[ \t]*#|\Z", re.MULTILINE).search(text, line.end)
        end = other.start() if other else len(text)
        if i + 1 < len(starts):
            end = min(end, starts[i + 1].start)
        sections.append(_Line(line.start, end, "", line.label))
    if len(sections) < 2:
        return starts
    last = sections[-1]
    final = list(_SCORE.finditer(text, last.start, last.end))
    paragraph = text.rfind("\n\n", last.start, final[-1].start() + 1) if final else -1
    if paragraph > 0:
        sections[-1] = _Line(last.start, paragraph, "", last.label)
    return sections


def _section_verdicts(
    text: str, sections: Sequence[_Line], scores: Sequence[Statement]
) -> list[_Line]:
    """Return the first verdict of each section, where a score follows them all."""
    lines = []
    for section in sections:
        start = _line_end(text, section.start)
        if value := _SECTION_VALUE.search(text, start, section.end):
            lines.append(_Line(value.start(), value.end(), value["value"], section.label))
    followed = lines and any(score.end > lines[-1].end for score in scores)
    return lines if followed and len(lines) == len(sections) else []


_CELL = re.compile(
    r"[*_`]*(?P<value>[+-]?\d{1,9}(?:\.\d{1,9})?)(?: ?/ ?1)?[*_`]*", re.ASCII
)


def _table_verdicts(text: str, names: Sequence[str]) -> Iterator[_Line]:
    """Yield the one number in a criterion's row, or the one in the verdicts' column."""
    by_name = {name.casefold(): name for name in names}
    verdict_column: int | None = None
    for row in re.finditer(r"^[ \t]*\|.*", text, re.MULTILINE):
        cells = [cell.strip() for cell in row[0].strip().strip("|").split("|")]
        place = None
        # A name is in the first cell, or behind its number.
        for i, cell in enumerate(cells[:2]):
            if place is None and _bare_cell(cell) in by_name:
                place = i
        if place is None:
            titled = []
            for i, cell in enumerate(cells):
                if re.search(_WORD, cell, re.IGNORECASE):
                    titled.append(i)
            if len(titled) == 1:
                verdict_column = titled[0]
            continue
        numbers = _numbers(cells, place + 1)
        value = ""
        if len(numbers) == 1:
            (value,) = numbers.values()
        elif verdict_column is not None:
            value = numbers.get(verdict_column, "")
        if value:
            yield _Line(row.start(), row.end(), value, by_name[_bare_cell(cells[place])])


def _bare_cell(cell: str) -> str:
    """Return a cell in lower case without numbers before it, notes and markup."""
    return re.sub(rf"^[\W\d]+|[ ]*{_NOTE}|[*_`]", "", cell).casefold()


def _numbers(cells: Sequence[str], start: int) -> dict[int, str]:
    """Return the numbers that fill a cell from `start` on, by the cell's place."""
    numbers = {}
    for i, cell in enumerate(cells):
        match = _CELL.fullmatch(cell)
        if match and i >= start:
            numbers[i] = match["value"]
    return numbers


# ------------------------------------------------------------ sentences and structured data

_BREAK = re.compile(r"[.!?][*_]*\s|\n")
_SENTENCE_END = re.compile(r"[.!?](?!\d)|\n|\Z")
_FAR = 400
"""Characters before a number in which its sentence begins."""


def _sentences(text: str) -> list[_Line]:
    """Return the scores on the scale that sentences state."""
    quoted = quotations(text)
    lines = []
    for match in _SENTENCE.finditer(text):
        value = _score_value(match)
        at = match.start("value")
        # `I would give it 5` supposes nothing.
        sentence = _SUPPOSING_ITSELF.sub("I", _sentence_around(text, at, match.end()))
        is_own = not (is_doubtful(sentence) or _DENIED.search(sentence))
        if _is_inside(at, quoted) or not is_own:
            continue
        if value.isdigit() and int(value) <= TOP:
            lines.append(_Line(match.start(), match.end(), value, SCORE))
    return lines


def _sentence_around(text: str, at: int, end: int) -> str:
    """Return the sentence of what stands from `at` to `end`, from `_FAR` before it on."""
    start = max(0, at - _FAR)
    for sentence_break in _BREAK.finditer(text, start, at):
        start = sentence_break.end()
    after = _SENTENCE_END.search(text, end)
    return text[start : after.start() if after else None]


_TOTAL_KEY = re.compile(r"(?:(?:final|overall|total) )?(?:score|grade)|total")


def _split_objects(text: str, names: Sequence[str]) -> tuple[str, list[_Line]]:
    """Return a text with blanks for the objects in it, and what these state."""
    labels = {name.casefold(): name for name in names}
    lines: list[_Line] = []
    rest = text
    for found in replies.find_objects(text)[0]:
        blanks = "{" + " " * (found.end - found.start - 2) + "}"
        rest = rest[: found.start] + blanks + rest[found.end :]
        introduced = introduces_others(last_line(text[: found.start]))
        if not found.told or introduced or takes_back(first_line(text[found.end :])):
            continue
        for key, each in _entries(found.content):
            label = SCORE if _TOTAL_KEY.fullmatch(key) else labels.get(key, "")
            if label and (value := _as_value(each, label)) is not None:
                lines.append(_Line(found.start, found.end, value, label))
    return rest, lines


def _entries(content: Mapping[str, Any], depth: int = 2) -> Iterator[tuple[str, Any]]:
    """Yield keys without numbers, notes and marks, and values, also of objects inside."""
    for key, value in content.items():
        bare = re.sub(rf"^[\W\d_]+|[ ]*{_NOTE}", "", key.replace("_", " ")).strip()
        yield bare.casefold(), value
        if isinstance(value, Mapping) and depth:
            told = {"score", "verdict", "value", "rating"} & set(value)
            if len(told) == 1:
                yield bare.casefold(), value[told.pop()]
            else:
                yield from _entries(value, depth - 1)


def _as_value(value: Any, label: str) -> str | None:
    """Return a value of an object as a line would state it; None where it is none."""
    if isinstance(value, bool):
        return None if label == SCORE else str(int(value))
    if isinstance(value, int | float) and not -100 <= value <= 100:
        return None
    if not isinstance(value, str | int | float):
        return None
    match = re.fullmatch(rf"\s*{_NUMBER}{_OF}\s*", str(value), re.ASCII)
    if match is None:
        return None
    if label == SCORE:
        return _score_value(match)
    number = float(match["value"])
    return str(int(number)) if number in (0, 1, -1) else match["value"]
