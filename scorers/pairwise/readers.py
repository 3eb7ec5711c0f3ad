"""What a judge's reply says: verdicts, votes and marks, or why it cannot be read.

The `official_*` readers take and refuse exactly what the released programs do:
`extract_subjective`, `get_pw_score` and `extract_objective` in VLMEvalKit's
vlmeval/dataset/creation.py@e8e78f05, `parse_output` in MLLM-Bench's
scripts/evaluate.py@403f82c9, `get_score` in ProBench_eval's show_result.py@c17b7ae. The
other readers take a verdict however it is dressed, and never one of several.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping

from generators.base import NotApplicable, Unscored
from scorers.pairwise.protocol import Marks, Verdict

LEVELS = {"A>>B": 2, "A>B": 1, "A=B": 0, "B>A": -1, "B>>A": -2}
"""Five-level verdicts by how much they prefer the answer shown first."""
MIRRORED = {"B<<A": 2, "B<A": 1, "B=A": 0, "A<B": -1, "A<<B": -2}
_SAID = {preference: form for form, preference in LEVELS.items()}

SITUATION_ONE = "unable to decide: situation one"
"""A close-ended question, and both answers right or both wrong."""
SITUATION_TWO = "unable to decide: situation two"
"""Both answers have grave faults of fact or ethics."""
VOTES = {"Answer1": 1, "Answer2": -1, SITUATION_ONE: 0, SITUATION_TWO: 0}

_BRACKETS = re.compile(r"\[\[([^\[\]]*)\]\]")
_FINAL = re.compile(r"final\s+verdict", re.IGNORECASE)
_SIGNS = str.maketrans({"\u226b": ">>", "\u226a": "<<", "\uff1e": ">", "\uff1c": "<"})
_DRESS = r"[\s*_:`\"'.\\\u201c\u201d]"
_SIDE = r"(?:(?:assistant|response)\s*)?[ab]"
_PLAIN = re.compile(
    rf"(?:{_DRESS}|-(?=\s)|is\b)*\[?\s*"
    rf"({_SIDE}{_DRESS}*[<>=][<>=\s\\]*{_DRESS}*{_SIDE})\b",
    re.IGNORECASE,
)
"""A verdict with which a text begins, without double brackets."""
_GAP = (
    r"(?:[*_:=\uff1a\"'`|\[ \t\u201c\u201d]|[-\u2013\u2014](?=[ \t])"
    r"|\((?=[\d.]+\s*/\s*10\s*\)))*"
)
_STATED = re.compile(
    rf"response\s+([ab])\s+visual\s+factuality\s+score{_GAP}(?:\([^()\r\n]*\){_GAP})?"
    r"(?=(-?\d[^\r\n]*))",
    re.IGNORECASE,
)
"""A response, and of the same line what begins with a number."""
_MARK = re.compile(
    r"(-?\d+(?:\.\d+)?)[*_\"'`\]) \t]*"
    r"(?:(?:/[*_ \t]*|out of )10(?:\.0+)?(?![\d/]|\.\d|[*_ \t]*(?:[+=/]|->|\u2192))"
    r"|[*_\"'`\])}|,;. \t\u201d]*(?:and )?[*_\"'`|]*(?:$|(?=response\s+[ab]\s)))",
    re.IGNORECASE,
)
"""A number of which the line says that it is out of 10, or says nothing more."""


def level(reply: str) -> Verdict | Unscored:
    """The five-level verdict, in double brackets or right after `final verdict`.

    What follows the last `final verdict` counts before the rest. Mirrored forms, other
    signs, spaces and markup around the letters are read. A final verdict without brackets
    that contradicts the ones in brackets leaves the reply unread.
    """
    *before, after = _FINAL.split(reply)
    plain = _plain(after) if before else set()
    several = (_bracketed(after) or _bracketed(reply)) | plain
    if len(several) == 1:
        preference = several.pop()
        return Verdict(_SAID[preference], preference)
    said = [_SAID[p] for p in sorted(several, reverse=True)]
    return Unscored(_one_of(said, "[[A>>B]] to [[B>>A]]"))


def _bracketed(text: str) -> set[int]:
    return {p for m in _BRACKETS.findall(text) if (p := _preference(m)) is not None}


def _plain(after: str) -> set[int]:
    """The verdict with which a text begins, if it does."""
    begun = _PLAIN.match(html.unescape(after).translate(_SIGNS))
    preference = _preference(begun[1]) if begun else None
    return set() if preference is None else {preference}


def _preference(inside: str) -> int | None:
    signs = html.unescape(inside).translate(_SIGNS)
    form = re.sub(r"[\s*_`\\]|assistant|response", "", signs, flags=re.IGNORECASE).upper()
    return LEVELS.get(form, MIRRORED.get(form))


def _one_of(several: Iterable[str], wanted: str) -> str:
    said = ", ".join(several)
    return f"several verdicts: {said}" if said else f"no verdict; wanted {wanted}"


def official_creation(reply: str) -> Verdict | Unscored:
    """The first line with `Final Verdict is:` and a known form in double brackets."""
    for line in reply.split("\n"):
        upper = line.upper()
        found = re.search(r"\[\[\s*(.*?)\s*\]\]", upper)
        if "FINAL VERDICT IS:" not in upper or found is None:
            continue
        form = found[1].replace(" ", "")
        if (preference := (LEVELS | MIRRORED).get(form)) is not None:
            return Verdict(form, preference)
    return Unscored("no line `Final Verdict is: [[...]]` with a known verdict")


def official_probench(reply: str) -> Verdict | Unscored:
    """The one distinct text of A, B, <, > and = in double brackets; mirrored forms fail."""
    forms = set(re.findall(r"\[\[([AB<>=]+)\]\]", reply))
    if len(forms) != 1:
        return Unscored(_one_of(sorted(forms), "one of [[A>>B]] to [[B>>A]]"))
    form = forms.pop()
    if form not in LEVELS:
        return Unscored(f"verdict {form!r} has no weight in the official program")
    return Verdict(form, LEVELS[form])


def vote(reply: str) -> Verdict | Unscored:
    """The vote in the last line, else the only vote that stands alone in a line."""
    votes = [v for line in reply.splitlines() if (v := _vote(line)) != ""]
    if votes and votes[-1] is not None:
        return Verdict(votes[-1], VOTES[votes[-1]])
    alone = {v for v in votes if v}
    if len(alone) == 1:
        said = alone.pop()
        return Verdict(said, VOTES[said])
    return Unscored(_one_of(sorted(alone), "a last line with one of " + ", ".join(VOTES)))


def _vote(line: str) -> str | None:
    """The vote a line consists of, None for other words, empty for no words."""
    bare = re.sub(r"[^a-z0-9]", "", line.lower())
    if not bare:
        return ""
    named = {re.sub(r"[^a-z0-9]", "", v.lower()): v for v in VOTES}
    return named.get(bare)


def official_vote(reply: str) -> Verdict | Unscored:
    """The first of the four votes, in their order, that is a whole line but for case."""
    lines = {line.lower() for line in reply.split("\n")}
    for said, preference in VOTES.items():
        if said.lower() in lines:
            return Verdict(said, preference)
    return Unscored("no line that is a vote and nothing else")


def marks(reply: str) -> Marks | Unscored:
    """The last visual factuality score of each response, out of 10.

    The number stands in the line of its name; sums, ranges and decimal commas are unread.
    """
    stated = {m[1].upper(): m[2] for m in _STATED.finditer(reply)}
    if lacking := [x for x in "AB" if x not in stated]:
        return Unscored(f"no visual factuality score of response {' and '.join(lacking)}")
    found = {letter: _MARK.match(text.strip()) for letter, text in stated.items()}
    values = {letter: float(m[1]) for letter, m in found.items() if m}
    if len(values) < 2 or not all(0 <= v <= 10 for v in values.values()):
        return Unscored(f"visual factuality scores are not out of 10: {_quoted(stated)}")
    return Marks(values["A"], values["B"])


def _quoted(stated: Mapping[str, str]) -> str:
    return ", ".join(f"{x} {stated[x].strip()[:40]!r}" for x in sorted(stated))


def official_marks(reply: str) -> Marks | Unscored | NotApplicable:
    """Lines that begin with the score's name, freed of curly quotes and `*` alone.

    An empty reply counts as a question without such criteria, as officially.
    """
    if reply == "":
        return NotApplicable("the official program takes an empty reply for no criteria")
    values: dict[str, float] = {}
    for line in reply.split("\n"):
        bare = re.sub("[\u201c\u201d*]", "", line.upper())
        for letter in "AB":
            head = f"RESPONSE {letter} VISUAL FACTUALITY SCORE:"
            value = _number(bare.split(head)[1]) if bare.startswith(head) else None
            values |= {} if value is None else {letter: value}
    if len(values) == 2 and all(0 <= v <= 10 for v in values.values()):
        return Marks(values["A"], values["B"])
    return Unscored("no two lines `Response X Visual Factuality Score: n/10` in range")


def _number(text: str) -> float | None:
    try:
        return float(text.strip().split("/")[0].strip())
    except ValueError:
        return None
