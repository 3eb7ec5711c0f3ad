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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, TypeVar

from plait.generators import replies
from plait.generators.base import NotApplicable, Unscored
from plait.scorers.judging.voice import (
    Statement,
    agree_on,
    introduces_others,
    is_doubtful,
    last_line,
    own_texts,
    plain_marks,
)
from plait.scorers.pairwise.clauses import is_final, is_of_others, is_verdict
from plait.scorers.pairwise.games import FactualityScores, Verdict

T = TypeVar("T")
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
_PLAIN = re.compile(rf"(?:{_MARKUP}|-(?=\s)|is\b)*(?:\[\s*)?({_FORM})\b", re.IGNORECASE)
"""A verdict with which a text begins, without double brackets."""
_OTHER = re.compile(
    rf"(?:{_MARKUP}|\]|,|;|/|\||\b(?:or|and|to|maybe|perhaps|possibly|rather|even)\b)+"
    rf"(?:\[+\s*)?({_FORM})\b",
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
    r"(?:(?:/[*_ \t]*|out of )10(?:\.0+)?(?![\d/]|\.\d|[*_ \t]*(?:[+=/]|->|\u2192"
    r"|(?:would|could|might|if|unless|is too|was|or|to|minus)\b))"
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
    reply = plain_marks(html.unescape(reply).translate(_SIGNS))
    text = _first_text(reply, lambda text: _preferences(text, _anything))
    found = _preferences(text, _anything)
    own = set[int]()
    if len(found) == 1:
        own = found & _preferences(text, is_verdict)
    mentioned = _preferences(reply, _anything)
    return _own_verdict(_forms(own), _forms(mentioned), LEVELS, "[[A>>B]] to [[B>>A]]")


def _first_text(reply: str, has_verdict: Callable[[str], object]) -> str:
    """Return the first of a reply's own texts with a verdict; the first where none has."""
    texts = own_texts(reply)
    for text in texts:
        if has_verdict(text):
            return text
    return texts[0]


Holds = Callable[[str, int, int], bool]
"""Whether what a text holds from a start to an end is a verdict."""


def _anything(text: str, start: int, end: int) -> bool:
    return True


def _forms(preferences: Collection[int]) -> list[str]:
    return [form for form, preference in LEVELS.items() if preference in preferences]


def _preferences(text: str, holds: Holds) -> set[int]:
    finals = list(_FINAL.finditer(text))
    after = finals[-1].end() if finals else 0
    plain = _plain(text, after, holds) if finals else set()
    return (_read_brackets(text, after, holds) or _read_brackets(text, 0, holds)) | plain


def _read_brackets(text: str, start: int, holds: Holds) -> set[int]:
    """Verdicts in double brackets, with those that are joined to the last without them."""
    forms: list[str] = []
    for match in _BRACKETS.finditer(text, start):
        if holds(text, match.start(), match.end()):
            joined = _join(text, match.end()) if _verdicts_of([match[1]]) else []
            forms += [match[1], *joined]
    return _verdicts_of(forms)


def _plain(text: str, after: int, holds: Holds) -> set[int]:
    """Return the verdict with which a text goes on, if it does, and others joined to it."""
    begun = _PLAIN.match(text, after)
    if begun is None or not holds(text, begun.start(1), begun.end(1)):
        return set()
    return _verdicts_of([begun[1], *_join(text, begun.end())])


def _join(text: str, end: int) -> list[str]:
    forms: list[str] = []
    while len(forms) < len(LEVELS) and (other := _OTHER.match(text, end)):
        forms.append(other[1])
        end = other.end()
    return forms


def _verdicts_of(forms: Iterable[str]) -> set[int]:
    verdicts = set()
    for form in forms:
        preference = _preference(form)
        if preference is not None:
            verdicts.add(preference)
    return verdicts


def _preference(inside: str) -> int | None:
    form = re.sub(r"[\s*_`\\]|assistant|response", "", inside, flags=re.IGNORECASE).upper()
    return LEVELS.get(form, MIRRORED.get(form))


def _first_of(found: Iterable[Collection[T]]) -> list[T]:
    """Return the first that is not empty; empty where all are."""
    for each in found:
        if each:
            return list(each)
    return []


def _own_verdict(
    own: Sequence[str],
    mentioned: Sequence[str],
    preferences: Mapping[str, int],
    wanted: str,
) -> Verdict | Unscored:
    """Return the verdict that a reply gives as its own, whatever else it mentions."""
    if len(own) == 1 or len(mentioned) == 1 < len(own):
        return _only(own, preferences, wanted)
    if len(mentioned) == 1:
        told = f"{mentioned[0]} is quoted, denied, supposed or said of a part"
        return Unscored(f"no verdict on the whole; {told}; wanted {wanted}")
    return _only(mentioned, preferences, wanted)


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

    A last line that only ends a list of the choices does not count, nor do quoted lines
    and headings. Of two that differ the last counts only if it corrects the first.
    """
    reply = plain_marks(reply)
    mentioned = set()
    for line in reply.splitlines():
        if vote_of_line := _vote(line):
            mentioned.add(vote_of_line)
    wanted = f"a last line with one of {', '.join(VOTES)}"
    own = _first_of(_votes(_value_of(text)) or _votes(text) for text in own_texts(reply))
    return _own_verdict(own, sorted(mentioned), VOTES, wanted)


def _votes(text: str) -> list[str]:
    """Return the different votes that a text may give; one, where it is clear."""
    # Of every line with words in it, the vote that it consists of.
    votes: list[str | None] = []
    own: list[Statement] = []
    for line in re.finditer(r".+", text):
        vote_of_line = _vote(line[0])
        if vote_of_line == "":
            continue
        votes.append(vote_of_line)
        if vote_of_line and not is_of_others(text, line.start(), line.end()):
            own.append(Statement(line.start(), line.end(), vote_of_line))
    if _ends_with_choices(votes):
        return sorted({given for given in votes if given})
    last = votes[-1] if votes else None
    if last is not None and own and own[-1].value == last:
        # Both votes before it are headings of what is said of either answer.
        headed = len({line.value for line in own[:-1]}) > 1
        return [last] if headed else agree_on(text, own)
    return sorted({line.value for line in own if not _is_heading(text, line)})


def _ends_with_choices(votes: Sequence[str | None]) -> bool:
    """Return whether the last of the lines' votes only ends a list of the choices.

    It does where it follows another vote right away, or is the first of its kind and
    completes all four.
    """
    adjacent = set(takewhile(lambda vote: vote is not None, reversed(votes)))
    complete = set(votes) - {None} == set(VOTES) and votes.count(votes[-1]) == 1
    return len(adjacent) > 1 or complete


def _is_heading(text: str, line: Statement) -> bool:
    """Return whether a line is a title of the text below it."""
    return re.match(r"\s*#|.*[:\uff1a][\s*_]*$", text[line.start : line.end]) is not None


_VOTED = re.compile(
    r"^\W*(?:(?:my|the|final)\s+)*(?:vote|verdict|choice|decision|judge?ment|answer(?=:))"
    r"(?:\s+(?:is|goes to)\b|\W*[:=])|^\W*i (?:vote for|choose|pick)\b",
    re.IGNORECASE,
)


def _vote(line: str) -> str | None:
    """Return the vote a line consists of, None for other words, empty for no words."""
    bare = re.sub(r"[^a-z0-9?]", "", _VOTED.sub("", line).lower())
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
    """Return the visual factuality score of each response, out of 10.

    The number is in the line of its name; sums, ranges and decimal commas are unread. The
    last counts, but of several numbers only if it corrects those before.
    """
    text = _first_text(reply, _STATED.search)
    found: dict[str, list[re.Match[str]]] = {"A": [], "B": []}
    for match in _STATED.finditer(text):
        if not _is_doubted_before(text, match.start()):
            found[match[1].upper()].append(match)
    missing = [letter for letter, own in found.items() if not own]
    if missing:
        return Unscored(f"no visual factuality score of response {' and '.join(missing)}")
    values = {}
    quoted = []
    for letter, own in found.items():
        last = own[-1][2].strip()
        quoted.append(f"{letter} {last[:40]!r}")
        if mark := _MARK.match(last):
            values[letter] = float(mark[1])
    if len(values) < 2 or not all(0 <= value <= 10 for value in values.values()):
        told = ", ".join(quoted)
        return Unscored(f"visual factuality scores are not out of 10: {told}")
    for letter, own in found.items():
        read = [statement for match in own if (statement := _mark(match)) is not None]
        several = agree_on(text, read)
        if len(several) > 1:
            told = " and ".join(several)
            return Unscored(
                f"several visual factuality scores of response {letter}: {told}"
            )
    return FactualityScores(values["A"], values["B"])


def _mark(stated: re.Match[str]) -> Statement | None:
    """Return the number of a match of `_STATED`; None where it is not out of 10."""
    mark = _MARK.match(stated[2].strip())
    if mark is None:
        return None
    return Statement(stated.start(), stated.end(), f"{float(mark[1]):g}")


def _is_doubted_before(text: str, start: int) -> bool:
    """Return whether the words before a place say that it is quoted or supposed."""
    above, _, before = text[:start].rpartition("\n")
    return is_doubtful(before) or introduces_others(last_line(above))


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
            if value is not None:
                values[letter] = value
    if len(values) == 2 and all(0 <= value <= 10 for value in values.values()):
        return FactualityScores(values["A"], values["B"])
    return Unscored("no two lines `Response X Visual Factuality Score: n/10` in range")


def _number(text: str) -> float | None:
    try:
        return float(text.strip().split("/")[0].strip())
    except ValueError:
        return None


_BETTER = re.compile(r"""\bbetter[_ ]response["'*`]*\s*[:=]\s*([^\n,}]*)""", re.IGNORECASE)
_CHOICE = re.compile(r"(?:(?:response|answer|assistant|model)[ _-]?)?([ab])\W*")
_NEITHER = frozenset(("tie", "equal", "both", "neither", "draw", "same", "none"))
CHOICES = {"A": 1, "B": -1, "tie": 0}


def better(reply: str) -> Verdict | Unscored:
    """Return the choice that a JSON reply names as `better_response`: A, B or a tie.

    The rest of the reply need not be JSON: judges forget to escape quotes in their
    reasoning.
    """
    text = _first_text(reply, _BETTER.search)
    found = []
    for match in _BETTER.finditer(text):
        if not _is_told(text, match.start()):
            found.append(Statement(match.start(), match.end(), _choice(match[1])))
    mentioned = {_choice(match[1]) for match in _BETTER.finditer(reply)}
    wanted = '"better_response": "A" or "B"'
    return _own_verdict(agree_on(text, found), sorted(mentioned), CHOICES, wanted)


def _is_told(text: str, start: int) -> bool:
    """Return whether the words before an object say that it is quoted or supposed."""
    # Back to the brace that opens the object around `start`; a reply may lack it.
    depth = 1
    opened = start
    while depth and opened:
        opened -= 1
        depth += {"{": -1, "}": 1}.get(text[opened], 0)
    return _is_doubted_before(text, start if depth else opened)


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


IMAGES = {"Image 1 is better": 1, "Image 2 is better": -1}
_BETTER_IMAGE = re.compile(r"\bimage\s*([12])\s+is\s+(?:the\s+)?better\b", re.IGNORECASE)

_TAGGED_IMAGE = re.compile(
    rf"<answer>\s*{_BETTER_IMAGE.pattern}[.\s]*</answer>", re.IGNORECASE
)


def better_image(reply: str) -> Verdict | Unscored:
    """Return which of two images a reply calls better.

    What stands between answer tags counts before the rest. What is denied, quoted,
    supposed or said of a part does not count (`is_verdict`).
    """
    tagged = set[str]()
    for text in own_texts(reply):
        tagged.update(map(_better_of, _TAGGED_IMAGE.finditer(text)))
    if tagged:
        return _only(sorted(tagged), IMAGES, "")
    reply = plain_marks(reply)
    text = _first_text(reply, _BETTER_IMAGE.search)
    found = []
    for match in _BETTER_IMAGE.finditer(text):
        if is_verdict(text, match.start(), match.end()):
            found.append(Statement(match.start(), match.end(), _better_of(match)))
    mentioned = {*map(_better_of, _BETTER_IMAGE.finditer(reply))}
    wanted = " or ".join(IMAGES)
    return _own_verdict(agree_on(text, found), sorted(mentioned), IMAGES, wanted)


def _better_of(match: re.Match[str]) -> str:
    """Return the verdict that a match of `_BETTER_IMAGE` is, as a key of `IMAGES`."""
    return f"Image {match[1]} is better"


def official_better_image(reply: str) -> Verdict | Unscored:
    """Return the verdict whose words a reply holds, wherever they stand.

    The released program looks for those that are right: a reply with both is right
    whichever it is, and has no verdict here.
    """
    words = [verdict for verdict in IMAGES if verdict in reply]
    if len(words) != 1:
        return Unscored(f"the released program finds {len(words)} verdicts in the reply")
    return Verdict(words[0], IMAGES[words[0]])


LEANS = {"A": 2, "Tie(A)": 1, "Tie": 0, "Tie(B)": -1, "B": -2}
_LEAN = re.compile(
    r"\b(?:[Tt]ie|TIE)\s*[(:,-]?\s*(?:[Mm]odel\s+)?(?P<tie>[AB])\b(?:\s+(?:is\s+)?better\b)?"
    r"|\b(?P<win>[AB])\s+is\s+(?:the\s+)?better\b"
    r"|^\W*(?:(?P<alone>[AB])|(?P<even>[Tt]ie|TIE))\W*$"
)
"""What looks like a verdict, whoever says it."""
_NAME = r"(?:(?:model|answer|response|assistant|option|output|candidate)\s+)?"
_SOMEWHAT = r"(?:(?:slightly|marginally|somewhat|a bit|a little|just|still|narrowly)\s+)*"
_CLEARLY = (
    r"(?:(?:clearly|much|definitely|significantly|considerably|far|overall|also|the|still"
    r"|obviously|certainly|generally|indeed|therefore|thus|ultimately)\s+)*"
)
_TIE = r"(?:\btie\b|\bdraw\b|\u5e73\u5c40|\u5e73\u624b)"
_TIED = re.compile(
    rf"{_TIE}\s*(?:[(\uff08\[:\uff1a,\uff0c;\u2013\u2014-]\s*)?"
    r"(?:(?:but|leaning|leans?|that|which|slight(?:ly)?|to|towards?|in|favou?rs?|of|with"
    r"|the|still|just|edge|advantage|preference|goes|for|a)\s+)*"
    rf"{_NAME}(?P<side>[AB])(?![a-z])(?:\s+(?:is\s+|being\s+)?{_SOMEWHAT}"
    r"(?:better|ahead|preferred|preferable|stronger)\b|\s*(?:\u66f4\u597d|\u7565\u597d)"
    r"|(?=[\s*_]*(?:$|[.)\]\uff09\n])))",
    re.IGNORECASE,
)
"""A tie, and the answer to which it leans."""
_EVEN = re.compile(
    r"(?:^|[.!?:;\n])[\s*_#\"']{0,9}(?:(?:so|thus|overall|therefore|it is|it's|this is"
    r"|i call it|verdict|the verdict is|result|the result is)[\s:,*]+)*(?:an? )?"
    rf"(?:exact |complete |clear |perfect |true )?(?P<even>{_TIE})[\s*_\"']*(?=$|[.!\n])",
    re.IGNORECASE,
)
_WON = re.compile(
    rf"(?<![a-z']){_NAME}(?P<side>[AB])[*_\"']*\s+(?:is\s+{_CLEARLY}"
    r"(?:better|superior|stronger|preferable|preferred|winner)\b(?!-\w)(?=\s*(?:$|[^\w\s]|\n)"
    r"|\s+(?:than|because|since|as|overall|for|in|at|on|with|regarding|concerning|due|given"
    r"|and|but|or|by|when|where|here|answer|response|one|choice|option|of|al?though|though"
    r"|while|whereas|so|if|unless|only|just|is|from|depending|to)\b)"
    r"|(?:wins|prevails)\b|(?:beats|outperforms|surpasses)\s+(?:(?:model|answer|response"
    r"|assistant)\s+)?(?-i:[AB])\b)"
    # A is better than B, in Chinese, before the shorter form.
    r"|(?P<than>[AB])\s*(?:\u6bd4\s*(?:\u56de\u7b54|\u7b54\u6848)?[AB]\s*"
    r"(?:\u66f4|\u8981|\u7565)?\u597d(?!\u770b|\u5403)"
    r"|(?:\u4f18\u4e8e|\u597d\u4e8e)\s*(?:\u56de\u7b54|\u7b54\u6848)?[AB])"
    r"|(?P<cjk>[AB])\s*"
    r"(?:\u66f4\u597d|\u66f4\u4f18|\u8f83\u597d|\u80dc\u51fa|\u83b7\u80dc)(?!\u770b|\u5403)",
    re.IGNORECASE,
)
_CHOSEN = re.compile(
    r"(?:^|[\n.;,]|\bbut\b|\band\b)[\s*_#\"'({]{0,9}"
    r"(?:(?:so|thus|therefore|hence|and|my|the|final|overall)[\s,*_]+)*"
    r"(?:i(?: would| will|'d|'ll)? (?:choose|prefer|pick|select|vote for|go with|favou?r)\b"
    r"|(?:winner|verdict|choice|preference|decision|judge?ment|conclusion"
    r"|better(?: answer| response| one)?)[\"'*_]*(?:\s+is\b|\s*[:=\uff1a])"
    r"|answer[\"'*_]*\s*[:\uff1a]|overall\b)[\s,:=\uff1a*_\"'(\[]*"
    rf"{_NAME}(?P<side>[AB])[\"'*_)\]}}\s]*(?:$|\n|[.;,](?:\s|$))",
    re.IGNORECASE,
)
"""A choice in other words, which ends its line or its sentence."""
_LETTER = re.compile(
    rf"(?:^[\W_]*{_NAME}|\n[^\w\n]*)(?P<side>(?-i:[AB]))[^\w\n]*$|^\W*(?P<even>tie)\W*$",
    re.IGNORECASE,
)
"""A letter that is the last line, or all there is."""


def lean(reply: str) -> Verdict | Unscored:
    """Return which answer is better, or to which a tie leans, if to any.

    What is denied, quoted, supposed or said of a part does not count (`is_verdict`). Of
    several the last counts if it corrects the others, or sums them up.
    """
    reply = plain_marks(reply)
    mentioned = {*map(_word_of, _LEAN.finditer(_without_markup(reply)))}
    texts = map(_without_markup, own_texts(reply))
    own = _first_of(_leanings(_value_of(text)) for text in texts)
    wanted = "A is better, or one of the other forms"
    return _own_verdict(own, sorted(mentioned), LEANS, wanted)


def _without_markup(text: str) -> str:
    # An underscore inside a word, as in a key of JSON, is no markup.
    return re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", text)


def _word_of(match: re.Match[str]) -> str:
    """Return the verdict that a match of `_LEAN` looks like."""
    if match["tie"]:
        return f"Tie({match['tie']})"
    return match["win"] or match["alone"] or "Tie"


_KEYS = re.compile(
    r"(?:final|overall)?[ _]*(?:verdict|answer|choice|winner|decision|judge?ment|result"
    r"|better(?:[ _](?:answer|response|one))?|preference|vote)",
    re.IGNORECASE,
)


def _value_of(text: str) -> str:
    """Return the verdict in the one object that a text states; any other as it is."""
    told = [each for each in replies.find_objects(text)[0] if each.told]
    if len(told) != 1:
        return text
    values = [value for key, value in told[0].content.items() if _KEYS.fullmatch(key)]
    return values[0] if len(values) == 1 and isinstance(values[0], str) else text


def _leanings(text: str) -> list[str]:
    """Return the different verdicts of a text on both answers as a whole."""
    # As many line ends as characters, so that what is left keeps its place.
    text = _NO_TIE.sub(lambda match: "\n" * len(match[0]), text)
    seen = _find_leanings(text)
    found = [leaning for leaning in seen if is_verdict(text, leaning.start, leaning.end)]
    last = max(found, key=lambda leaning: leaning.start, default=None)
    if last is None:
        return []
    # Doubtful as it is, what comes after a correction shows that the first is not meant.
    for later in seen:
        if later.start <= last.start:
            continue
        if agree_on(text, (last, later)) == [later.value] != [last.value]:
            return [last.value, later.value]
    finals = {leaning.value for leaning in found if is_final(text, leaning.end)}
    return [last.value] if finals == {last.value} else agree_on(text, found)


def _find_leanings(text: str) -> list[Statement]:
    """Return what looks like a verdict; of two that overlap, that of the first pattern."""
    seen: list[Statement] = []
    # A tie that leans goes first, since its words hold a tie and a winner as well.
    for pattern in (_TIED, _EVEN, _LETTER, _WON, _CHOSEN):
        for match in pattern.finditer(text):
            name = _winner_group(match)
            side = "" if name == "even" else match[name].upper()
            word = f"Tie({side})" if pattern is _TIED else side or "Tie"
            whole = pattern in (_TIED, _CHOSEN)
            start = match.start() if whole else match.start(name)
            leaning = Statement(start, match.end(), word)
            overlaps = False
            for former in seen:
                if former.start < leaning.end and match.start(name) < former.end:
                    overlaps = True
            if not overlaps:
                seen.append(leaning)
    return seen


def _winner_group(match: re.Match[str]) -> str:
    """Return the name of the group that holds the winner, or the word for a tie."""
    groups = match.groupdict()
    return next(name for name in ("side", "than", "cjk", "even") if groups.get(name))


_NO_TIE = re.compile(
    rf"\b(?:not|no|isn't|never)\s+(?:an?\s+)?(?:\w+\s+)?{_TIE}[\s:,;.\u2013\u2014-]*",
    re.IGNORECASE,
)


def official_lean(reply: str) -> Verdict | Unscored:
    """The first letter; five characters of what begins as a tie; a tie of the first A or B.

    What begins as a tie may be a word that nobody wins. A reply without either letter,
    for which the released program draws a tie, has no verdict here.
    """
    if reply[:1] in ("A", "B"):
        word = reply[0]
    elif reply[:3].lower() == "tie":
        word = f"{reply[:5]})"
    elif letter := re.search("[AB]", reply):
        word = f"Tie({letter[0]})"
    else:
        return Unscored("the released program draws a winner, or ends at an empty reply")
    return Verdict(word, LEANS.get(word, 0))
