"""The letter of an option that an answer in words commits to.

A model may say its choice in many ways, and letters of options occur in many sentences that
choose nothing. What is looked for are commitments: a letter alone, boxed, tagged, said to
be the answer, chosen or concluded. One that is negated, asked or supposed is none, nor is
the beginning of a list of options; one that names several letters leaves open which. Of
commitments that differ, the last counts where it corrects the former, is called final, or
is one of the letters that were left open. What cannot be told for sure is unread: an answer
without a value costs less than a wrong one.

    find_letter("The answer is (B).", options=4)    # "B"

The text is brought into a plain form first (`_plain`). Then patterns tell where letters may
be committed to (`_Reading.commitments`), which of these places are none after all
(`_commitment`), and which of the rest stands at the end (`_decision`).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from plait.scorers.judging.replies import Unreadable

# ------------------------------------------------------------------- the text in plain

_BOX = "\u27e6"
_END = "\u27e7"
"""Brackets in place of all marks which say that what they hold is the answer."""
_WRAPPED = re.compile(
    r"\\(?:text(?:bf|rm|it|sf|tt)?|math(?:bf|rm|sf|it)|bm|bf|rm"
    r"|operatorname)\s*\{([^{}]*)\}"
)
"""A command of LaTeX that only sets its text in another type, as `\\mathbf{B}`."""
_DEPTH = 3
"""Of commands of LaTeX, one in another, around a letter."""
_PLAIN_FORMS = (
    ("[\u200b-\u200f\u2060\ufeff\ufe0f]", ""),
    ("\u2192|\u21d2|\u27a1|=>|-+>|\\\\(?:long)?rightarrow|\\\\to\\b", " \u2192 "),
    (r"\\therefore\b|\u2234", " therefore "),
    # In JSON that was not escaped, \b of \boxed is a backspace.
    (r"(?:\\b|\\f|\x08|\\|\b)oxed\s*\{([^{}]*)\}", rf"{_BOX}\1{_END}"),
    (r"<\|begin_of_box\|>(.*?)(?:<\|end_of_box\|>|\Z)", rf"{_BOX}\1{_END}"),
    (r"<(\w*answer|final)>\s*(.*?)\s*(?:</\1>|\Z)", rf"\n{_BOX}\2{_END}\n"),
    (r"~~.*?~~|\\[()\[\],;! ]|\\q?quad\b|\$|<\|[a-z_]+\|>|</s>", " "),
    (r"<br\s*/?>|</?(?:p|div|li)>", "\n"),
    (r"</?(?:b|strong|i|em|u|code|span|mark|center)\b[^<>]*>|[*`~]", ""),
    (r"(?<![a-z0-9])_+|_+(?![a-z0-9])", ""),
    ("[\u201c-\u201f\u300c-\u300f\u3010\u3011\u00ab\u00bb]", '"'),
    ("[\u2018\u2019]", "'"),
    ("[\u2010-\u2015]", "-"),
)
"""Patterns of mark-up, each with what stands for it in a plain text; in this order."""
_MARKS = tuple(
    (re.compile(mark, re.IGNORECASE | re.DOTALL), plain) for mark, plain in _PLAIN_FORMS
)
_SMALL = re.compile(
    rf"(?<![A-Za-z0-9])[(\[{_BOX}]\s*[a-z](?=\s*[)\]{_END}])"
    r"|^[^\S\n]*[a-z](?=[.)]\s)|\s[a-z](?=\)\s)",
    re.MULTILINE,
)
"""A small letter that stands as the name of an option: in brackets, or as in `c.`, `c)`."""


def _plain(text: str) -> str:
    """Return a text without mark-up, `(c)` and `c.` as `C`, and all boxes as one kind."""
    text = unicodedata.normalize("NFKC", text)
    for _ in range(_DEPTH):
        text = _WRAPPED.sub(r"\1", text)
    for mark, plain in _MARKS:
        text = mark.sub(plain, text)
    return _SMALL.sub(lambda match: match[0].upper(), text).strip()


# ------------------------------------------------------------------- letters in a text


def _any(*patterns: str) -> re.Pattern[str]:
    """Return a pattern of any of these, in lines and whatever the case."""
    return re.compile("|".join(patterns), re.IGNORECASE | re.MULTILINE)


_CLAUSE_END = (
    rf"(?=\s*(?:\Z|[\n.,;:!?)\]{_END}}}|&/+\"'\u2192(-]|[^\x00-\x7f]|"
    r"(?:because|since|as|for|and|or|nor|but|with|which|not|rather|instead|is|are|in|from"
    r"|on"
    r"|by|based|due|given|so|if|unless|when|where|that|here|too)\b))"
)
"""What may follow a letter that ends its clause: punctuation, or a word as `because`."""
_WHOLE = r"(?![A-Za-z0-9]|'[a-z]|-\w|\.\w)"
"""What must not follow a letter that stands alone, as in `B2`, `C's` or `A-frame`."""
_LETTER = re.compile(
    # A and I are words too, and small letters mostly are.
    rf"[(\[{{\"'{_BOX}\s]*(?:(?P<letter>[B-HJ-Z]){_WHOLE}"
    rf"|(?P<word>[AI]){_WHOLE}{_CLAUSE_END}"
    rf"|(?P<small>[a-z])(?=[.)\]{_END}\"'}}]*\s*(?:\Z|\n)))[)\]}}\"'{_END}]*"
)
"""A letter with the brackets around it."""
_ENDS = re.compile(_CLAUSE_END)
_CONNECTED = re.compile(
    r"\s*\(?(?:(?P<open>,?\s*\b(?:and/or|or|nor)\b|/|,?\s*或者?)"
    r"|,?\s*\b(?:and|as well as)\b|[,;&+|\u3001]|和|与|及|以及)\s*"
    r"(?:(?:maybe|possibly|perhaps|also|even|else|then|option|choice|answer|an?)\s+|选项)*",
    re.IGNORECASE,
)
"""What joins letters, as in `A, B and option C`; `open` leaves open which of them."""
_NEW_CLAUSE = re.compile(r"\s+(?!(?:are|both|because|since|as|or|and|if)\b)[a-z]")
"""After `B and C`: words of which C is the subject, so that it is not said with B."""


@dataclass(frozen=True, slots=True)
class _Letters:
    """Letters that stand together: one, or several as in `A or C`."""

    names: frozenset[str]
    start: int
    """Of the first letter itself."""
    stop: int
    """Of the last letter itself."""
    end: int
    """With the brackets around it."""


def _letters_at(text: str, position: int) -> _Letters | None:
    """Return the letters that stand together at a place in a text; None for none."""
    match = _LETTER.match(text, position)
    if match is None:
        return None
    kind = str(match.lastgroup)
    names = {match[kind].upper()}
    stop = match.end(kind)
    end = match.end()
    while connected := _CONNECTED.match(text, end):
        more = _LETTER.match(text, connected.end())
        if more is None or (not connected["open"] and _NEW_CLAUSE.match(text, more.end())):
            break
        names.add(more[str(more.lastgroup)].upper())
        stop = more.end(str(more.lastgroup))
        end = more.end()
    return _Letters(frozenset(names), match.start(kind), stop, end)


# ------------------------------------------------------------------------------- cues

# The parts of `the correct answer to this question is`, of which `_STATED` is made: what an
# option may be called, what an answer may, the verb, and what may stand between these two.
_KIND = (
    "(?:option|choice|one|letter|selection|response|result|pick|statement|match|description"
    "|image|picture|figure|diagram)"
)
_ANSWER = (
    r"(?:(?:final[ _])?answers?(?:\(s\))?|ans\b\.?|solution|conclusion|verdict|prediction"
    r"|guess"
    r"|(?:correct|right|best|final|chosen|selected|appropriate|suitable|likely|my|logical"
    rf"|matching|proper|only|valid|remaining)[ _]{_KIND}|(?:{_KIND}|correct)(?=[\"' ]*[:=])"
    r"|réponse(?: correcte)?|respuesta(?: correcta)?|antwort|resposta(?: correta)?"
    r"|答え|正解|정답|답)"
)
_IS = (
    r"(?:[\"']*\s*[:=\u2192]+|\s+-(?=\s)|'s\b|\s+(?:is|are|was|(?:will|would|should"
    r"|must) be"
    r"|has to be|seems to be|appears to be|turns out to be|remains|est|es|ist|lautet|é)\b"
    r"(?:\s*[:=])?|\s*(?:は|은|는))"
)
_OF = r"(?:\s*\([^()\n]{0,60}\)|\s+(?:to|for|of|here|in|among|from)\b[^.!?\n:]{0,80}?)?"
_STATED = _any(
    rf"\b{_ANSWER}[\"']*{_OF}{_IS}",
    r"(?:答案?|选项|选择|结论|认为|我猜|解|(?:正确|符合|合适|题意)的?)"
    r"(?:应该|应当|应|就|只能|显然)?(?:[\"'\s]*(?:是|为|选(?!项)择?|:))+",
    r"答案[\"'\s]+(?=\W?[A-Z])|(?<![可供])选(?!项)[择取]?[了的]?\s*:?",
    r"\b(?:choose|pick|select|chose|chosen|picked|selected|opt(?:ed|ing)? for"
    r"|(?:go|going|went) (?:with|for)|settled? (?:on|for)|vote(?: for)?|guess|answer with"
    r"|i(?:'d| would|'ll| will)? (?:say|answer)|left with|leav(?:es|ing)(?: us)?(?: with)?"
    r"|narrows? (?:it )?down to)\b[,:]?",
    _BOX,
    r"(?:\[x\]|[\u2611\u2705\u2713\u2714])(?=[^\S\n]*\S)",
    r"^A:(?=\s*\W?[A-Z]\W*$)",
)
"""What a letter may follow directly: `the best answer to the question is`, `I choose`."""
_CONCLUDED = _any(
    rf"\b{_ANSWER}(?=\s)",
    r"(?:\b(?:so(?! is\b)|thus|therefore|hence|consequently|accordingly|no|wait|actually"
    r"|sorry|choosing|correction|conclude|i meant?|make that|oops)\b|因此|所以|故"
    r"|综上(?:所述)?"
    r"|应该是|应为|而是"
    r"|不对|更正)[\s,.:;!-]*(?:that )?(?:(?:it|that)(?:'s| is| must be| should be)\b|是"
    r"|为)?",
    r"\b(?:it|this|that|which)(?:'s| is| (?:must|should|would|has to) be)\b",
    r"\b(?:yes|sure|doubt|clearly|definitely|certainly|obviously|probably|likely),?\s",
    r"\bnot (?:option )?[A-Z],? but (?:rather )?",
    r"(?:(?<![A-Z]) \u2192)+",
)
"""The same, where the letter has to end the clause: `final answer C`, `therefore C`."""
_DESCRIBED = _any(
    r"\b(?:match(?:es|ing)?|correspond(?:s|ing)? (?:to|with)|consistent with|leads? to"
    r"|points? to|closest to|fits?|described (?:by|in)|shown in|found in|represented by"
    r"|depicted in|given by|equals|is(?: in| at)?|as)\b",
    r":|对应(?:的是)?|(?=[(\[][A-Z][)\]]\W*\Z)",
)
"""In the last sentence of an answer that says nothing else: `this matches option C`."""
_FILLED = re.compile(
    r"(?:[\s\"':=-]|\b(?:either|both|between|likely|probably|most|definitely|clearly"
    r"|therefore|thus|hence|indeed|simply|just|actually|still|only|certainly|obviously|the"
    r"|options?|choices?|letter|answer|that|is|it|one of|opción|opção)\b"
    r"|\bnot (?:option )?[A-Z],? (?:but|rather)(?: rather)?\b|选项|选|第|是|为)*",
    re.IGNORECASE,
)
"""Words between a cue and its letter that change nothing: `clearly option`."""
_RIGHT = re.compile(
    r"\s*(?:options?|choices?|选项|项)?\s*(?:(?:is|are|was|must be|should be|would be|seems"
    r"|could be|may be|might be|can be)\s+"
    r"(?:(?:both|also|clearly|definitely|therefore|thus|indeed|the|most|only|my"
    r"|equally|likely|probable)\s+)*"
    r"(?:(?:final )?(?:answer|choice|pick)\b|correct\b"
    r"|(?:best|better|right|appropriate|suitable|possible|accurate)"
    r"(?=\s*(?:\Z|[.,;!)\n]|answer|choice|option|one\b|match|too|because|since|as\b)))"
    r"|best (?:describes|matches|fits|represents|answers)\b|[是为]?(?:最符合|最合适|正确"
    r"|对的|答案|符合))",
    re.IGNORECASE,
)
"""After letters: `is correct`, `is the best answer`."""
_TICK = re.compile(
    r"[^\n]{0,400}?(?:[\u2705\u2713\u2714]|\u2190|[(\[](?:the )?(?:correct"
    r"|right)(?: answer)?[)\]])"
    r"|[.):]*\s*-?\s*(?:correct|right|yes)(?=\s*$|\s*[.,:!;\n-])",
    re.IGNORECASE,
)
"""After the letter of a list: a tick, or `Correct.`"""

# --------------------------------------------------------------- lines, lists, sentences

_LINE = re.compile(
    r"^[^\S\n]*(?:[>#\u2022\u2192\u2600-\u27bf\U0001f000-\U0001faff+-]+[^\S\n]*"
    r"|\d+[.)][^\S\n]*)*(?:(?:option|choice"
    r"|letter)[^\S\n]+"
    r"|选项)?(?=\W?[A-Z])",
    re.IGNORECASE | re.MULTILINE,
)
"""The beginning of a line up to its first letter: bullets, a number, `Option`."""
_ALONE = re.compile(
    r"(?:选项|项)?[.!:;,)\u3002\u2600-\u27bf\U0001f000-\U0001faff\s]*(?:\Z|(?<=\n))"
)
"""After a letter: nothing else in its line but punctuation."""
_OTHERS = re.compile(r"[^\n]*(?<![A-Za-z0-9])[A-Z]\s*[:(]")
"""After a letter: another one in the same line that is explained, as `A: no. B: yes`."""
_EXPLAINED = re.compile(
    r"[\"']*[.)\]:\u3001\u3002](?!\s*\W?(?-i:[A-Z])\W*$)\s*\S|\s*[(\u2192]|\s+:|\s+-\s"
    r"|,?\s*(?:because|since|as|for)\b"
    r"|,\s*(?:an?|the|not)\b|,?\s*因为",
    re.IGNORECASE | re.MULTILINE,
)
"""After a letter: what the option is, or why it is right, as `C. A cow`, `C, since`."""
_MENTION = re.compile(r"(?<![A-Za-z0-9'])[A-Z](?![A-Za-z0-9'])")
"""A capital letter by itself, whatever it stands for."""
_ITEM = re.compile(
    r"(?:^|(?<=[\s>(\[\";,\u27e6项]))([A-Z])(?:[)\]\"]?[.:\u3001]|[)\]]| -(?=\s)"
    r"| \u2192)(?=[^\S\n]*\S)",
    re.MULTILINE,
)
"""The letter of an item in a list of options: `A. a cow`, `(B) a horse`."""
_IN_WORDS = re.compile(
    r"[(\[]([A-Z])[)\]]|\b(?:option|choice) ([A-Z])(?![A-Za-z0-9])"
    r"|[,:-] ([A-Z])(?=[.!]?\s*\Z)",
    re.IGNORECASE,
)
"""The letter behind an answer in words: `a cow (C)`."""
_REACH = 400
"""Of a sentence at most so many characters on either side of a letter are looked at."""
_BOUNDARY = re.compile(r"[.!?](?=[\s\"')]|\Z)|[;\n\u3002!?\u2192]")
"""The end of a sentence."""
_CLAUSE = _any(
    r"[,(]",
    r"\b(?:but|so|therefore|thus|hence|however|and|whereas|while)\b",
    "因此|所以|故",
)
"""The end of a clause: what is negated before it is not negated after it."""
_STEP = _any(r"\b(?:but|so|therefore|thus|hence|however|now)\b", "因此|所以|但")
"""The end of what is supposed."""

# ------------------------------------------------------------------ what is no commitment

_CERTAIN = _any(
    r"\b(?:no|without(?: a| any)?|beyond) (?:\w+ )?doubt\b",
    r"\bif (?:i|we|you) (?:must|(?:had|have|were(?: forced)?) to) \w+",
    r"\bif (?:i|we|you) (?:look|examine|inspect|compare|count|check|zoom)\b",
    r"\b(?:if i(?:'m| am) not|unless i(?:'m| am)) mistaken\b",
    r"\bno other\b|\A\W*no\s*[,:;!-]",
    r"\bhere(?: is|'s) your\b",
)
"""What the next two would take for the opposite."""
_NEGATED = _any(
    r"\b(?:not|no|never|neither|nor|none|cannot|without|hardly|doubt\w*|unlikely|impossible"
    r"|incorrect|wrong|false|mistaken?|rul(?:e|es|ed|ing) out|eliminat\w*|exclud\w*"
    r"|reject\w*"
    r"|discard\w*|refus\w*|avoid\w*|unable|fail\w*|least|worst"
    r"|second[- ](?:best|choice)|opposite"
    r"|nobody|no one|except"
    r"|(?:instead|rather|other) (?:of|than)|unsure|uncertain|disagree|den(?:y|ies|ied)"
    r"|may|might|could|some|someone|people|many|others|tempted|example"
    r"|tempting|distractor|trap|previous|earlier|student\w*|your|his|her|their|user\w*"
    r"|nicht|pas|non|não)\b",
    r"n't\b|[不非没无未别错]|排除|可能",
)
"""In the clause before a letter: it is not chosen, or somebody else chooses it."""
_SUPPOSED = _any(
    r"\b(?:if|whether|suppos\w*|assum\w*|unless|at first|initial\w*|for example"
    r"|hypothe\w*|pretend\w*"
    r"|let's (?:say|try|check)|first (?:glance|thought|impression)|i (?:\w+ )?thought"
    r"|imagine|originally|used to)\b"
    r"|\A\W*(?:were|had)\b",
    "如果|假[设如]|若|有人|起初|一开始|是否",
)
"""Before a letter: what follows is only supposed, or was believed once."""
_CONDITION = _any(r"\b(?:if|unless|assuming|provided)\b", "如果")
"""After a letter: it is chosen under a condition."""
_REFUTED = re.compile(
    r"\s*or not\b|[\s.,]*or (?:maybe|perhaps|possibly)\b"
    r"|,? but (?:it|that|this) (?:may|might|could) (?:also )?be\b"
    r"|\s*(?:options?|choices?|answers?|选项|项)?\s*"
    r"(?:,?\s*(?:which|but that|but this|and that)\s+)?(?:"
    r"(?:is|are|was|were|would be|seems?|must be|can be|should be)\s+"
    r"(?:(?:\w+ly|both|all|also|thus)\s+)*(?:not|wrong|incorrect|false|out|ruled|eliminated"
    r"|excluded|rejected|impossible|unlikely|inaccurate|invalid|no)\b"
    r"|(?:is|are|was|does|do|did|can|could|would|should|has|have)(?:n't|\s+not)\b|cannot\b"
    r"|[(\[]?\s*(?:incorrect|wrong|false|[\u2717\u2718\u274c])|[是为]?(?:错|不|排除|有误))",
    re.IGNORECASE,
)
"""After letters: `is wrong`, `cannot be right`, `or not`."""
_REFUTED_ITEM = re.compile(
    r"[\s.):,\]-]*(?:[^\n]{0,80}?(?:[\u2717\u2718\u274c]|[(\[](?:wrong|incorrect)[)\]])"
    r"|(?:(?:this|it|that) )?(?:(?:is|was) )?(?:wrong|incorrect|not (?:correct|right|the)"
    r"|false|no)\b)",
    re.IGNORECASE,
)
"""After the letter of an item: a cross, or `Incorrect.`"""
_FINAL = _any(r"\b(?:final|ultimate)\w*\b", _BOX, "最终|最后")
"""Before a letter: it is called final, or boxed."""
_RETRACTED = _any(
    r"\bwait\b|\bhold on\b|\bscratch that\b|\bi (?:was|am) (?:wrong|mistaken)\b",
    r"\b(?:that|this)(?:'s| is| was) (?:wrong|incorrect|not (?:right|correct))\b",
    r"\bthat (?:can't|cannot) be\b|[.!?]\s+no\s*[,:.!-]|不对|等等|等一下",
)
"""What was said is taken back: without a letter after it, nothing stands."""
_CORRECTED = _any(
    _RETRACTED.pattern,
    r"\bno\s*[,:.!;-]|\b(?:actually|correction|sorry|oops|apolog\w+|mistake|instead)\b",
    r"\b(?:second (?:thought|look)s?|strike that|i meant?|make that|change my (?:answer"
    r"|mind))\b",
    r"\b(?:upon closer|closer (?:look|inspection)|look(?:ing)? (?:again|closer"
    r"|more closely))\b",
    r"\bre-?(?:check|examin|consider|evaluat|think|count|read|visit|assess|calculat)\w*",
    "更正|修正|其实|抱歉|重新|再看|不,",
)
"""Between two letters: the second corrects the first."""
_ALSO = _any(r"\b(?:also|as well|equally|too)\b", "也")
"""After a letter: it is chosen beside what was chosen before."""


@dataclass(frozen=True, slots=True)
class _Commitment:
    """Letters that an answer commits to at one place; one alone decides."""

    letters: frozenset[str]
    start: int
    end: int
    final: bool = False
    joins: bool = False
    """Whether it adds to what was said before: `A is also correct`."""


def find_letter(text: str, options: int) -> str | Unreadable:
    """Return the letter that an answer commits to.

    Unreadable where there is none or several, or where it names none of the `options`.
    """
    found = _decision(_Reading(_plain(text)))
    valid = {chr(ord("A") + i) for i in range(options)}
    if len(found) == 1 and found <= valid:
        (letter,) = found
        return letter
    what = ", ".join(sorted(found)) or "no letter"
    return Unreadable(f"it states {what} of {options} options: {text[:200]!r}")


def corrects(text: str, start: int, end: int) -> bool:
    """Return whether the words from `start` to `end` take back what was said before."""
    return _CORRECTED.search(text, start, end) is not None


def _decision(reading: _Reading) -> frozenset[str]:
    """Return the letters that stand at the end of an answer."""
    decided: _Commitment | None = None
    for said in reading.commitments():
        if decided is None:
            decided = said
            continue
        if said.letters == decided.letters:
            decided = replace(said, final=said.final or decided.final)
            continue
        # One of the letters that were left open, or the first that is called final.
        decides = said.letters < decided.letters or (said.final and not decided.final)
        corrected = corrects(reading.text, decided.end, said.start)
        if said.joins or not (decides or corrected):
            said = replace(said, letters=decided.letters | said.letters)
        decided = said
    if decided is None or _RETRACTED.search(reading.text, decided.end):
        return frozenset()
    return decided.letters


class _Reading:
    """Finds the commitments of a text without mark-up."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._boundaries = [boundary.end() for boundary in _BOUNDARY.finditer(text)]
        """Where sentences end."""
        self._items: set[int] = set()
        """Where letters of items stand."""
        self._listed: set[int] = set()
        """Where those of lists of several items stand."""
        for starts in self._lists():
            self._items.update(starts)
            # One item alone may be the answer itself: `C. A cow`.
            if len(starts) > 1:
                self._listed.update(starts)
        self._options = {text[start] for start in self._listed}

    def commitments(self) -> list[_Commitment]:
        """Return what the text commits to, in its order, once for each place."""
        found: dict[int, _Commitment] = {}
        places = chain(self._iter_after_cue(), self._lines(), self._iter_called_right())
        for letters in places:
            said = self._commitment(letters)
            if said is not None:
                found.setdefault(said.start, said)
        if not found:
            at_end = []
            for letters in self._iter_at_end():
                said = self._commitment(letters)
                if said is not None:
                    at_end.append(said)
            return at_end
        # Places that overlap count once: the first of them.
        apart: list[_Commitment] = []
        for start in sorted(found):
            if not apart or start >= apart[-1].end:
                apart.append(found[start])
        return apart

    def _commitment(self, letters: _Letters) -> _Commitment | None:
        """Return what is said with letters; None where they are not committed to."""
        text = self.text
        start = letters.start
        end = letters.end
        if start in self._listed and not _TICK.match(text, end):
            return None
        sentence, after = self._sentence_around(start, end)
        before = _CERTAIN.sub("", text[sentence:start])
        clause = _last_part(_CLAUSE, before)
        if clause.lstrip().lower().startswith("that "):
            clause = before
        # `not A but` before a letter is no negation of it.
        clause = re.sub(r"\bnot (?:option )?[A-Z],? (?:but|rather)\b", "", clause)
        rest = text[end:after]
        if (
            _NEGATED.search(clause)
            or _SUPPOSED.search(_last_part(_STEP, before))
            or _REFUTED.match(text, end)
            or _CONDITION.search(rest)
            or rest.rstrip("\"') \n").endswith("?")
        ):
            return None
        final = _FINAL.search(clause) is not None
        joins = _ALSO.search(rest[:40]) is not None
        return _Commitment(letters.names, start, end, final, joins)

    def _sentence_around(self, start: int, end: int) -> tuple[int, int]:
        """Return where the sentence of a letter begins, and where it ends."""
        before = bisect_right(self._boundaries, start)
        after = bisect_left(self._boundaries, end + 1)
        first = self._boundaries[before - 1] if before else 0
        last = self._boundaries[after] if after < len(self._boundaries) else len(self.text)
        return max(first, start - _REACH), min(last, end + _REACH)

    # ------------------------------------------------------------------ where to look

    def _iter_after_cue(self) -> Iterator[_Letters]:
        """Yield letters after a cue."""
        for cue in _STATED.finditer(self.text):
            letters = self._letters_after(cue)
            if letters is None:
                yield from self._after_words(cue.end())
            else:
                yield letters
        for cue in _CONCLUDED.finditer(self.text):
            letters = self._letters_after(cue)
            if letters and self._ends(letters):
                yield letters

    def _letters_after(self, cue: re.Match[str]) -> _Letters | None:
        """Return the letters that directly follow a cue, but for words without meaning."""
        filled = _FILLED.match(self.text, cue.end())
        return _letters_at(self.text, filled.end() if filled else cue.end())

    def _ends(self, letters: _Letters) -> bool:
        """Return whether letters end a clause and are not what a further one is about."""
        about = re.match(r"\s+(?:is|are)\b", self.text[letters.end : letters.end + 20])
        return not about and _ENDS.match(self.text, letters.end) is not None

    def _after_words(self, start: int) -> Iterator[_Letters]:
        """Yield the letter after an answer in words: `the answer is a cow (C)`."""
        _, end = self._sentence_around(start, start)
        words = self.text[start : min(end, start + 120)]
        named = list(_IN_WORDS.finditer(words))
        if not named or _NEGATED.search(words[: named[0].start()]):
            return
        names = set()
        for match in named:
            # The one group that has matched.
            names.add(str(match[match.lastindex or 0]).upper())
        first = start + named[0].start()
        end = start + named[-1].end()
        yield _Letters(frozenset(names), first, end, end)

    def _lines(self) -> Iterator[_Letters]:
        """Yield letters alone in a line, and what the text begins with."""
        for line in _LINE.finditer(self.text):
            letters = _letters_at(self.text, line.end())
            if letters is None:
                continue
            begins = line.start() == 0 and self._explains(letters)
            if begins or _ALONE.match(self.text, letters.end):
                yield letters

    def _explains(self, letters: _Letters) -> bool:
        """Return whether words follow that say what the option is, or why it is right."""
        if _REFUTED_ITEM.match(self.text, letters.end):
            return False
        if _OTHERS.match(self.text, letters.end):
            return False
        return _EXPLAINED.match(self.text, letters.stop) is not None

    def _iter_called_right(self) -> Iterator[_Letters]:
        """Yield letters that are said to be right, and ticked ones of a list."""
        end = 0
        for mention in _MENTION.finditer(self.text):
            letters = _letters_at(self.text, mention.start())
            if letters is None or mention.start() < end:
                continue
            end = letters.end
            ticked = mention.start() in self._items and _TICK.match(self.text, letters.end)
            if ticked or _RIGHT.match(self.text, letters.end):
                yield letters

    def _iter_at_end(self) -> Iterator[_Letters]:
        """Yield what is said at the end, if nothing else was.

        An option of a list is named again in the last line, or the last sentence says what
        the one letter of the text belongs to.
        """
        line = _LINE.match(self.text, self.text.rfind("\n") + 1)
        letters = _letters_at(self.text, line.end()) if line else None
        if letters and letters.names <= self._options and self._explains(letters):
            yield letters
        mentioned = {mention[0] for mention in _MENTION.finditer(self.text)}
        if len(mentioned) != 1:
            return
        start, _ = self._sentence_around(len(self.text) - 1, len(self.text) - 1)
        for cue in _DESCRIBED.finditer(self.text, start):
            letters = self._letters_after(cue)
            if letters is None:
                yield from self._after_words(cue.end())
            elif self._ends(letters):
                yield letters

    def _lists(self) -> Iterator[tuple[int, ...]]:
        """Yield where the letters of each list stand, which ascend one by one."""
        cues = [match.start() for match in _STATED.finditer(self.text)]
        run: list[re.Match[str]] = []
        for item in _ITEM.finditer(self.text):
            follows = run and ord(item[1]) == ord(run[-1][1]) + 1
            if not follows or _any_between(cues, run[-1].end(), item.start()):
                yield tuple(match.start(1) for match in run)
                run = []
            run.append(item)
        yield tuple(match.start(1) for match in run)


def _any_between(places: list[int], start: int, end: int) -> bool:
    """Return whether one of the places, which ascend, lies from `start` to before `end`."""
    return bisect_left(places, start) < bisect_left(places, end)


def _last_part(separator: re.Pattern[str], text: str) -> str:
    """Return what follows the last separator in a text."""
    return separator.split(text)[-1]
