"""Data in a model's reply: objects in the form of JSON, or near it, wherever they stand.

Reading is lenient in form and strict in meaning. Read besides JSON are literals of Python,
other quotation marks, names and words without any, comments, and commas too many or too
few. Nothing is chosen: of a value that is stated in two ways both come back, and an object
that cannot be read to its end makes all that follows it unknown.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from plait.generators.thoughts import separate

_FENCED = re.compile(r"\s*```(?:json)?\s*(.*?)\s*```\s*", re.DOTALL)


def json_object(reply: str) -> dict[str, Any] | None:
    """Return the one JSON object that a reply is, alone or fenced; None for any other."""
    fenced = _FENCED.fullmatch(reply)
    try:
        content = json.loads(fenced[1] if fenced else reply)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def statements_of(reply: str, name: str, *others: str) -> list[Any]:
    """Return all that a reply states under a key, each value once and in order.

    The key is `name` or one of `others`, whatever its case and marks (`Criteria Met`),
    in any object or in what holds one. A reply may also be lines of `key: value`. Empty
    where there is no statement, or where an object with the key cannot be read. A thought
    before the reply states nothing.
    """
    keys = {plain_key(key) for key in (name, *others)}
    reply = _unquote(separate(reply).text)
    found, rest = find_objects(reply)
    if any(key in plain_key(rest) for key in keys):
        return []
    told: list[Any] = []
    values: list[Any] = []
    for each in found:
        own = list(_under(each.content, keys))
        values += own
        if each.told:
            told += own
    if not found and not rest:
        told = values = list(_under(_lines(reply), keys))
    meant = [value for value in values if not _is_form(value)]
    return _once(meant or values) if told else []


def under(content: Any, name: str) -> list[Any]:
    """Return the values under a key in an object and in those inside it, each once."""
    return _once(list(_under(content, {plain_key(name)})))


def bare(reply: str) -> str:
    """Return a reply without marks around it: `**Yes.**` and `<answer>Yes</answer>`."""
    return _MARKS.sub("", separate(reply).text).strip(" \t\r\n.!}")


def bare_list(reply: str) -> list[Any] | None:
    """Return the JSON list that a reply consists of, marks around it aside; or None."""
    try:
        value = json.loads(bare(reply))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def plain_key(key: str) -> str:
    """Return a key as keys are compared: letters and digits alone, in lower case."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", key).casefold())


def as_number(value: Any, top: int | None = None) -> float | None:
    """Return a finite number, or the one that a text consists of; None for all else.

    With `top` also a number out of it (`8/10`).
    """
    value = _inner(value)
    if isinstance(value, str):
        number = _STATED_NUMBER.fullmatch(value.strip(" \t\r\n.*"))
        if number is None or number["of"] not in (None, str(top)):
            return None
        return float(number["value"])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def as_bool(value: Any) -> bool | None:
    """Return what a value says, as a truth value, 1 or 0, or a word of yes or no."""
    value = _inner(value)
    if isinstance(value, int | float):
        return bool(value) if value in (0, 1) else None
    word = _word(value)
    if word in _YES:
        return True
    return False if word in _NO else None


def is_unsure(value: Any) -> bool:
    """Return whether a value says that the judge is not sure."""
    return _word(_inner(value)) == "not sure"


_YES = frozenset(
    (
        *("true", "yes", "y", "1", "met", "pass", "passed", "satisfied", "fulfilled"),
        *("ja", "oui", "si", "s\u00ed", "\u0434\u0430", "\u662f", "\u662f\u7684", "\u5bf9"),
        *("\u7b26\u5408", "\u6ee1\u8db3", "\u306f\u3044", "\uc608", "\ub124"),
        *("\u2713", "\u2714", "\u2705"),
    )
)
_NO = frozenset(
    (
        *("false", "no", "n", "0", "not met", "unmet", "fail", "failed"),
        *("not satisfied", "not fulfilled", "nein", "non", "\u043d\u0435\u0442"),
        *("\u5426", "\u4e0d\u662f", "\u4e0d\u7b26\u5408", "\u4e0d\u6ee1\u8db3"),
        *("\u3044\u3044\u3048", "\uc544\ub2c8\uc694", "\uc544\ub2c8\uc624"),
        *("\u2717", "\u2718", "\u274c"),
    )
)
"""Words of English, German, French, Spanish, Russian, Chinese, Japanese and Korean."""
_STATED_NUMBER = re.compile(
    r"(?P<value>[+-]?\d{1,9}(?:\.\d{1,9})?)(?: ?(?:/|out of) ?(?P<of>\d{1,3}))?", re.ASCII
)
_INNER = ("value", "answer", "result", "score", "verdict")
"""Keys of an object under which a value stands."""


def _inner(value: Any) -> Any:
    """Return the value in a list of it alone, or in an object that gives one."""
    if isinstance(value, list) and len(value) == 1:
        return value[0]
    if isinstance(value, dict):
        told = [inner for key, inner in value.items() if plain_key(key) in _INNER]
        return told[0] if len(told) == 1 else value
    return value


_AROUND = " \t\r\n.;*`\ufe0f"


def _word(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    return " ".join(value.replace("_", " ").casefold().strip(_AROUND).rstrip("!").split())


_FORM = re.compile(
    r"\W*(?:(?:true|false|yes|no|null|n|x|number|integer|boolean|bool|not sure)\b\W*"
    r"(?:or\b\W*)?){2,}|\.{2,}|\u2026|<[^<>]*>",
    re.IGNORECASE,
)


def _is_form(value: Any) -> bool:
    """Return whether a value stands for those to choose from, as `true or false`."""
    return isinstance(value, str) and _FORM.fullmatch(value) is not None


def _once(values: list[Any]) -> list[Any]:
    seen = {repr(value): value for value in values}
    return list(seen.values())


class _Several(list[Any]):
    """What one object states under the same name more than once."""


_NOT_STATED = re.compile(
    "(?:example|schema|format|template|hypothe|quot|claim|inject|ideal|reference"
    "|(?:answer|response|candidate)s?(?:claim|sa(?:ys|id)|quot|own|text))"
)
"""Names of objects that hold what others say, or what might be said."""


def _under(content: Any, keys: Collection[str]) -> Iterator[Any]:
    """Yield the values under keys in an object and in those inside it."""
    if isinstance(content, dict):
        for name, value in content.items():
            if plain_key(name) in keys:
                yield from value if isinstance(value, _Several) else (value,)
            elif _NOT_STATED.match(plain_key(name)):
                continue
            elif plain_key(name) == "arguments" and isinstance(value, str):
                # Of a call of a function, which are JSON in a text.
                yield from _under(json_object(value), keys)
            else:
                yield from _under(value, keys)
    elif isinstance(content, list):
        for value in content:
            yield from _under(value, keys)


# ------------------------------------------------------------------- objects in a reply

_QUOTED = {
    '"': '"',
    "'": "'",
    "\u201c": '\u201d\u201c"',
    "\u201d": '\u201d"',
    "\u201e": '\u201c\u201d"',
    "\u2018": "\u2019\u2018'",
    "\u2019": "\u2019'",
}
"""Quotation marks that open a text, and those that may close it."""
_GAP = r"(?:[\s\ufeff\u200b]|\\(?=[{}\[\]])|/\*.{0,500}?\*/|(?://|\#)[^\n]{0,500}+)*+"
_NAME = "|".join(
    [
        *(rf"{a}(?:[^{b}\\\n]|\\.){{0,1000}}+[{b}]" for a, b in _QUOTED.items()),
        r"[^\W\d]\w{0,100}+(?:[ \-\u2010-\u2015]\w{1,100}+){0,10}+",
    ]
)
_KEY = rf"(?P<key>{_NAME}){_GAP}[:\uff1a]"
_NEXT = _KEY.replace("?P<key>", "?:")
_END = r"(?:[\s\ufeff\u200b]|```|~~~|</?[^<>\n]{1,30}>)*+\Z"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.DOTALL)


_OPENING = _pattern(rf"\{{{_GAP}{_KEY}")
_SKIPPED = _pattern(_GAP)
_KEYED = _pattern(_KEY)
_ENDED = _pattern(_END)
_CLOSED = {
    "}": _pattern(
        rf"{_GAP}(?:[}}\]]|,{_GAP}(?:[,}}\]]|{_NEXT}|{_END})|{_END})"
        rf"|[ \t]*+\n{_GAP}{_NEXT}"
    ),
    "]": _pattern(
        rf"{_GAP}(?:[}}\]]|,{_GAP}(?:[\]\[{{\d\"'\u201c\u2018-]|[^\W\d])|{_END})"
    ),
}
"""What follows a text that is a value, by what the object or list around it ends with."""
_WORD = re.compile(r"<[^<>\n]{1,100}>|(?:[^,{}\[\]\n\"\\/#<]|/(?![/*]))+")
_LITERALS = {
    "true": True,
    "false": False,
    "null": None,
    "none": None,
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?P<part>\.\d+)?(?P<power>[eE][+-]?\d+)?", re.ASCII)
_DEEPEST = 40
"""Objects and lists inside each other; no judge is asked for so many."""


class _Broken(Exception):
    """What begins as an object is none."""


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object in a reply."""

    content: dict[str, Any]
    """A value of a key that is stated in several ways is a list of them."""
    start: int
    end: int
    """Where it stands."""
    told: bool
    """Whether the reply states it, and does not mention it as another's words."""


def find_objects(reply: str) -> tuple[list[FoundObject], str]:
    """Return the objects in a reply, and all from one on that is broken."""
    found: list[FoundObject] = []
    start = 0
    while opening := _OPENING.search(reply, start):
        begin = opening.start()
        reader = _Reader(reply, begin)
        try:
            content = reader.value("}")
        except _Broken:
            return found, reply[begin:]
        start = reader.at
        line = reply.rfind("\n", 0, begin) + 1
        if not _QUOTING.match(reply, line, begin):
            before = reply[max(0, begin - 300) : begin]
            after = reply[start : start + 100]
            told = not _is_mentioned(before, after)
            found.append(FoundObject(content, begin, start, told))
    return found, ""


class _Reader:
    """Reads one value of a text, from a place on."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.depth = 0

    def value(self, end: str) -> Any:
        """Read a value within what ends with `end`."""
        self.skip()
        mark = self.text[self.at : self.at + 1]
        if mark == "{":
            return self.within("}")
        if mark == "[":
            return self.within("]")
        return self.quotation(end) if mark in _QUOTED and mark else self.word()

    def within(self, end: str) -> Any:
        """Read an object or a list."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _Broken
        self.at += 1
        members: dict[str, Any] = {}
        items: list[Any] = []
        while not self.closes(end):
            if end == "]":
                items.append(self.value(end))
            else:
                self.member(members)
            self.separate()
        self.depth -= 1
        return members if end == "}" else items

    def member(self, members: dict[str, Any]) -> None:
        """Read a name and its value; a name that comes again with another is several."""
        match = _KEYED.match(self.text, self.at)
        if match is None:
            raise _Broken
        self.at = match.end()
        name = match["key"]
        value = self.value("}")
        if name[0] in _QUOTED:
            name = _unescape(name[1:-1])
        before = members.get(name)
        if name not in members:
            members[name] = value
        elif isinstance(before, _Several):
            before.append(value)
        elif repr(before) != repr(value):
            members[name] = _Several([before, value])

    def closes(self, end: str) -> bool:
        """Go past the end of an object or list, or to that of a text cut just before."""
        self.skip()
        if self.text.startswith(end, self.at):
            self.at += 1
            return True
        return end == "}" and self.is_over()

    def separate(self) -> None:
        """Go past a comma, which a line break or an end stands for."""
        before = self.at
        self.skip()
        mark = self.text[self.at : self.at + 1]
        if mark == ",":
            while self.text.startswith(",", self.at):
                self.at += 1
                self.skip()
            return
        next_line = "\n" in self.text[before : self.at]
        if mark not in ("}", "]") and not next_line and not self.is_over():
            raise _Broken

    def quotation(self, end: str) -> str:
        """Read a text, which may hold its own quotation marks.

        It ends at the first that what may follow a value follows.
        """
        begin = self.at + 1
        marks = re.compile(rf"\\.|[{_QUOTED[self.text[self.at]]}]", re.DOTALL)
        for mark in marks.finditer(self.text, begin):
            if mark[0][0] != "\\" and _CLOSED[end].match(self.text, mark.end()):
                self.at = mark.end()
                return _unescape(self.text[begin : mark.start()])
        raise _Broken

    def word(self) -> Any:
        """Read a number, a literal, or other words without quotation marks."""
        match = _WORD.match(self.text, self.at)
        words = match[0].strip().strip("*`") if match else ""
        if match is None or not words:
            raise _Broken
        self.at = match.end()
        literal = words if words in _LITERALS else words.lower()
        number = _NUMBER.fullmatch(words)
        if self.is_over() and literal not in ("true", "false"):
            raise _Broken  # it may be cut
        if literal in _LITERALS:
            return _LITERALS[literal]
        if number is None:
            return words
        try:
            return float(words) if number["part"] or number["power"] else int(words)
        except ValueError:
            raise _Broken from None

    def skip(self) -> None:
        """Go past blanks and comments."""
        if match := _SKIPPED.match(self.text, self.at):
            self.at = match.end()

    def is_over(self) -> bool:
        """Return whether nothing follows but the marks of an end."""
        return _ENDED.match(self.text, self.at) is not None


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _unescape(text: str) -> str:
    """Return a text as JSON means it; other backslashes, as LaTeX has them, stay."""

    def meant(match: re.Match[str]) -> str:
        code = match[1]
        mark = match[2]
        if code:
            return chr(int(code, 16))
        return mark if mark in "\"'\\/" else _ESCAPED.get(mark, match[0])

    if "\\" not in text:
        return text
    # Halves of surrogate pairs are put together; a lone one is no text.
    pairs = _ESCAPE.sub(meant, text).encode("utf-16-le", "surrogatepass")
    return pairs.decode("utf-16-le", "replace")


def _unquote(reply: str) -> str:
    """Return the text that a reply is as a JSON string, or with escaped quotes."""
    plain = reply.strip()
    if plain.startswith('"') and plain.endswith('"'):
        try:
            text = json.loads(plain)
        except (ValueError, RecursionError):
            return reply
        return text if isinstance(text, str) else reply
    return reply.replace('\\"', '"') if re.match(r'\{\s*\\"', plain) else reply


# ------------------------------------------------------------- what is not the reply's own

_QUOTING = re.compile(r"[ \t]*>")
"""A line in the manner of a quotation."""
_TO_OBJECT = r"(?:[ \t]*|[ \t]*:\s*(?:(?:```|~~~)\w*\s*)?)[\"'`\u201c(]*\Z"
_MENTIONED = re.compile(
    # The answer ends with the line: ...
    r"\b(?:(?:say|read|contain|end|write|claim|state|include|quote|print|inject|demand|begin"
    r"|start|output|insert|add|assert)(?:s|ing|ed)?|said|wrote|written|begun"
    r"|to (?:return|output|reply|respond|answer|write|print|say|give|rule))\b"
    r"(?: (?:with|by|in|as|that|the|a|an|its|own|following|line|text|words?|json|object"
    r"|string|literally|only|just|itself|verdict|ruling))*"
    + _TO_OBJECT
    # If it named the step, it would be: ...
    + r"|\b(?:if|would|(?:could|might|may) be|unless|suppose|imagine|example|e\.g|instance"
    r"|such as)\b[^!?\n]*?"
    + _TO_OBJECT
    + r"|(?:\b(?:not|never|cannot|instead of|rather than)|n't)"
    r"(?: be| true| right| the case| that)*"
    + _TO_OBJECT
    # The story wants me to reply, and in the next line the object.
    + r"|\b(?:ask|tell|told|want|instruct|order|urge|beg|request|demand)(?:s|ed|ing)?"
    r" (?:me|us|you|the (?:judge|evaluator|grader|reviewer|reader|model))\b[^.!?\n]*"
    r"(?:\n\s*(?:(?:```|~~~)\w*\s*)?\Z|"
    + _TO_OBJECT
    + r")|\b(?:instruction|injection|command|(?:last|first|final|closing) (?:line|words?"
    r"|sentence))s?\b[^.!?\n]*(?:\n\s*(?:(?:```|~~~)\w*\s*)?\Z|"
    + _TO_OBJECT
    # A perfect answer gets: ...
    + r")|\ban? (?:perfect|ideal|flawless|better) [\w ]{1,30}"
    r"(?:gets?|earns?|deserves?|receives?|has)" + _TO_OBJECT,
    re.IGNORECASE,
)
"""Words before an object that another wrote, or that stands for what might be."""
_DOUBTED = re.compile(
    r"[\"'`)]*[ \t]*(?:\?|(?:is (?:wrong|not|false|what|incorrect)|isn't|would|could|might"
    r"|cannot|can't|was|if|unless)\b)",
    re.IGNORECASE,
)
"""Words after such an object."""


def _is_mentioned(before: str, after: str) -> bool:
    return bool(_MENTIONED.search(before) or _DOUBTED.match(after))


# ------------------------------------------------------------------ replies without braces

_MARKS = re.compile(
    r"```\w*(?=\s)|```|~~~\w*|<[/|]?[\w\uff5c|\u2581]{1,30}>|\\boxed\{|[*`\"'\u201c\u201d\ufeff\u200b]"
)
_LINE = re.compile(rf"[ \t]*(?:[-*][ \t]+)?{_KEY}[ \t]*(?P<value>[^\n]*)", re.DOTALL)


def _lines(reply: str) -> dict[str, Any]:
    """Return what a reply says that is `key: value` on every line; else nothing."""
    members: dict[str, Any] = {}
    for line in _MARKS.sub("", reply).splitlines():
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            return {}
        name = match["key"]
        value = match["value"].strip().rstrip(",")
        if name in members and members[name] != value:
            return {}
        members[name] = value
    return members
