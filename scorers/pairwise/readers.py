"""What a judge's reply says: verdicts, votes and marks, or why it cannot be read.

The `official_*` readers accept and reject exactly what the released programs do:
`extract_subjective`, `get_pw_score` and `extract_objective` in VLMEvalKit's
vlmeval/dataset/creation.py@e8e78f05, `parse_output` in MLLM-Bench's
scripts/evaluate.py@403f82c9, `get_score` in ProBench_eval's show_result.py@c17b7ae,
`pairwise_evaluate` in MMRB2's api_pairwise_evaluator.py@7ff0552, the last lines of
OpenING's IntJudge_judge_AB.py@56b663b. The other readers accept any markup around a
verdict, and never pick one of several.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from generators.base import NotApplicable, Unscored
from scorers.pairwise.games import FactualityScores, Verdict

LEVELS = {"A>>B": 2, "A>B": 1, "A=B": 0, "B>A": -1, "B>>A": -2}
"""Five-level verdicts by how much they prefer the answer shown first."""
MIRRORED = {"B<<A": 2, "B<A": 1, "B=A": 0, "A<B": -1, "A<<B": -2}

SITUATION_ONE = "unable to decide: situation one"
"""A close-ended question, and both answers right or both wrong."""
SITUATION_TWO = "unable to decide: situation two"
"""Both answers have grave faults of fact or ethics."""
VOTES = {"Answer1": 1, "Answer2": -1, SITUATION_ONE: 0, SITUATION_TWO: 0}

_BRACKETS = re.compile(r"\[\[([^\[\]]*)\]\]")
_FINAL = re.compile(r"final\s+verdict", re.IGNORECASE)
_SIGNS = str.maketrans({"\u226b": ">>", "\u226a": "<<", "\uff1e": ">", "\uff1c": "<"})
_MARKUP = r"[\s*_:`\"'.\\\u201c\u201d]"
_SIDE = r"(?:(?:assistant|response)\s*)?[ab]"
_FORM = rf"{_SIDE}{_MARKUP}*[<>=][<>=\s\\]*{_MARKUP}*{_SIDE}"
_PLAIN = re.compile(rf"(?:{_MARKUP}|-(?=\s)|is\b)*\[?\s*({_FORM})\b", re.IGNORECASE)
"""A verdict with which a text begins, without double brackets."""
_OTHER = re.compile(
    rf"(?:{_MARKUP}|\]|,|;|/|\||\b(?:or|and|to|maybe|perhaps|possibly|rather|even)\b)+"
    rf"\[*\s*({_FORM})\b",
    re.IGNORECASE,
)
"""A further verdict, right after one or joined to it by a word: `A>B or A>>B`."""
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
    """Return the five-level verdict, in double brackets or right after `final verdict`.

    What follows the last `final verdict` counts before the rest. Mirrored forms, other
    signs, spaces and markup around the letters are read. A final verdict without brackets
    that contradicts the ones in brackets leaves the reply unread.
    """
    reply = html.unescape(reply).translate(_SIGNS)
    *before, after = _FINAL.split(reply)
    plain = _plain(after) if before else set()
    several = (_bracketed(after) or _bracketed(reply)) | plain
    forms = [form for form, preference in LEVELS.items() if preference in several]
    return _only(forms, LEVELS, "[[A>>B]] to [[B>>A]]")


def _bracketed(text: str) -> set[int]:
    """Verdicts in double brackets, with those that are joined to the last without them."""
    forms: list[str] = []
    for match in _BRACKETS.finditer(text):
        forms += [match[1], *(_joined(text, match.end()) if _known([match[1]]) else [])]
    return _known(forms)


def _plain(after: str) -> set[int]:
    """Return the verdict with which a text begins, if it does, and others joined to it."""
    begun = _PLAIN.match(after)
    return _known([begun[1], *_joined(after, begun.end())]) if begun else set()


def _joined(text: str, end: int) -> list[str]:
    forms: list[str] = []
    while other := _OTHER.match(text, end):
        forms.append(other[1])
        end = other.end()
    return forms


def _known(forms: Iterable[str]) -> set[int]:
    return {p for form in forms if (p := _preference(form)) is not None}


def _preference(inside: str) -> int | None:
    form = re.sub(r"[\s*_`\\]|assistant|response", "", inside, flags=re.IGNORECASE).upper()
    return LEVELS.get(form, MIRRORED.get(form))


def _only(
    words: Sequence[str], preferences: Mapping[str, int], wanted: str
) -> Verdict | Unscored:
    """Return the verdict of a reply in which only one was found."""
    if len(words) == 1 and words[0] in preferences:
        return Verdict(words[0], preferences[words[0]])
    if len(words) > 1:
        return Unscored(f"several verdicts: {', '.join(words)}")
    return Unscored(f"no verdict; wanted {wanted}")


_DOUBLE = re.compile(r"\[\[\s*(.*?)\s*\]\]")


def official_creation(reply: str) -> Verdict | Unscored:
    """The first line with `Final Verdict is:` and a known form in double brackets."""
    for line in reply.split("\n"):
        upper = line.upper()
        if "FINAL VERDICT IS:" not in upper:
            continue
        # Up to the last end, without which the search takes time by the line's square.
        end = upper.rfind("]]") + 2
        if (brackets := _DOUBLE.search(upper, 0, end)) is None:
            continue
        form = brackets[1].replace(" ", "")
        if (preference := (LEVELS | MIRRORED).get(form)) is not None:
            return Verdict(form, preference)
    return Unscored("no line `Final Verdict is: [[...]]` with a known verdict")


def official_forms(reply: str) -> set[str]:
    """Return what the released pattern of ProBench finds, valid or not."""
    return set(re.findall(r"\[\[([AB<>=]+)\]\]", reply))


def official_probench(reply: str) -> Verdict | Unscored:
    """The one distinct text of A, B, <, > and = in double brackets; mirrored forms fail."""
    forms = sorted(official_forms(reply))
    if len(forms) == 1 and forms[0] not in LEVELS:
        return Unscored(f"verdict {forms[0]!r} has no weight in the official program")
    return _only(forms, LEVELS, "one of [[A>>B]] to [[B>>A]]")


def vote(reply: str) -> Verdict | Unscored:
    """Return the vote in the last line, else the only vote that is alone in its line.

    A last line that only ends a list of the choices does not count.
    """
    votes = [v for line in reply.splitlines() if (v := _vote(line)) != ""]
    alone = {v for v in votes if v}
    last = votes[-1] if votes else None
    # The last vote follows another right away, or completes all four.
    run = set(takewhile(lambda v: v is not None, reversed(votes)))
    ends_a_list = len(run) > 1 or (alone == set(VOTES) and votes.count(last) == 1)
    if last is not None and not ends_a_list:
        return Verdict(last, VOTES[last])
    return _only(sorted(alone), VOTES, f"a last line with one of {', '.join(VOTES)}")


def _vote(line: str) -> str | None:
    """Return the vote a line consists of, None for other words, empty for no words."""
    bare = re.sub(r"[^a-z0-9]", "", line.lower())
    if not bare:
        return ""
    named = {re.sub(r"[^a-z0-9]", "", v.lower()): v for v in VOTES}
    return named.get(bare)


def official_vote(reply: str) -> Verdict | Unscored:
    """The first of the four votes, in their order, that is a whole line but for case."""
    lines = {line.lower() for line in reply.split("\n")}
    for choice, preference in VOTES.items():
        if choice.lower() in lines:
            return Verdict(choice, preference)
    return Unscored("no line that is a vote and nothing else")


def marks(reply: str) -> FactualityScores | Unscored:
    """Return the last visual factuality score of each response, out of 10.

    The number is in the line of its name; sums, ranges and decimal commas are unread.
    """
    stated = {m[1].upper(): m[2] for m in _STATED.finditer(reply)}
    if missing := [x for x in "AB" if x not in stated]:
        return Unscored(f"no visual factuality score of response {' and '.join(missing)}")
    matches = {letter: _MARK.match(text.strip()) for letter, text in stated.items()}
    values = {letter: float(m[1]) for letter, m in matches.items() if m}
    if len(values) < 2 or not all(0 <= v <= 10 for v in values.values()):
        quoted = ", ".join(f"{x} {stated[x].strip()[:40]!r}" for x in sorted(stated))
        return Unscored(f"visual factuality scores are not out of 10: {quoted}")
    return FactualityScores(values["A"], values["B"])


def official_marks(reply: str) -> FactualityScores | Unscored | NotApplicable:
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
        return FactualityScores(values["A"], values["B"])
    return Unscored("no two lines `Response X Visual Factuality Score: n/10` in range")


def _number(text: str) -> float | None:
    try:
        return float(text.strip().split("/")[0].strip())
    except ValueError:
        return None


_BETTER = re.compile(r"""["']better_response["']\s*:\s*([^\n,}]*)""")
_CHOICE = re.compile(r"(?:(?:response|answer|assistant|model)[ _-]?)?([ab])\W*")
_NEITHER = frozenset(("tie", "equal", "both", "neither", "draw", "same", "none"))
CHOICES = {"A": 1, "B": -1, "tie": 0}


def better(reply: str) -> Verdict | Unscored:
    """Return the choice that a JSON reply names as `better_response`: A, B or a tie.

    The rest of the reply need not be JSON: judges forget to escape quotes in their
    reasoning.
    """
    stated = sorted({_choice(value) for value in _BETTER.findall(reply)})
    return _only(stated, CHOICES, '"better_response": "A" or "B"')


def _choice(value: str) -> str:
    bare = value.strip(" \t\r\"'*`[]").lower()
    if choice := _CHOICE.fullmatch(bare):
        return choice[1].upper()
    return "tie" if bare.rstrip(".") in _NEITHER else value.strip() or "(nothing)"


def official_better(reply: str, loads: Callable[[str], Any]) -> Verdict | Unscored:
    """Return what stands under `better_response` in the JSON that `loads` repairs.

    Whatever is neither A nor B counts as a judgement, and as wrong: here a verdict for
    neither. Nothing, and an empty value, are no judgement.
    """
    text = re.sub(r"^```(?:json)?\s*\n?", "", reply.strip())
    text = re.sub(r"\n?```\s*$", "", text.strip())
    try:
        choice = loads(text)["better_response"]
        word = str(choice)
    except Exception as error:
        # The released program goes on after any.
        return Unscored(f"the released program fails with {type(error).__name__}: {error}")
    if not choice:
        return Unscored(f"the released program takes {choice!r} for no judgement")
    return Verdict(word, CHOICES.get(choice, 0) if isinstance(choice, str) else 0)


LEANS = {"A": 2, "Tie(A)": 1, "Tie": 0, "Tie(B)": -1, "B": -2}
_LEAN = re.compile(
    r"\b(?:[Tt]ie|TIE)\s*[(:,-]?\s*(?:[Mm]odel\s+)?(?P<tie>[AB])\b(?:\s+(?:is\s+)?better\b)?"
    r"|\b(?P<win>[AB])\s+is\s+(?:the\s+)?better\b"
    r"|^\W*(?:(?P<alone>[AB])|(?P<even>[Tt]ie|TIE))\W*$"
)


def lean(reply: str) -> Verdict | Unscored:
    """Return which answer is better, or to which a tie leans, if to any."""
    words = {
        f"Tie({m['tie']})" if m["tie"] else m["win"] or m["alone"] or "Tie"
        for m in _LEAN.finditer(re.sub(r"[*_`]", "", reply))
    }
    return _only(sorted(words), LEANS, "A is better, or one of the other forms")


def official_lean(reply: str) -> Verdict | Unscored:
    """The first letter; five characters of what begins as a tie; a tie of the first A or B.

    What begins as a tie may be a word that nobody wins. A reply without either letter,
    for which the released program draws a tie, has no verdict here.
    """
    if reply[:1] in ("A", "B"):
        word = reply[0]
    elif reply[:3].lower() == "tie":
        word = f"{reply[:5]})"
    elif letter := next((c for c in reply if c in "AB"), ""):
        word = f"Tie({letter})"
    else:
        return Unscored("the released program draws a winner, or ends at an empty reply")
    return Verdict(word, LEANS.get(word, 0))
