"""Whether a sentence of a judge gives its own verdict on two answers as a whole.

`Neither A is better nor B` denies one, `A is better at colour` speaks of a part, and
`the answer claims that A is better` tells what others say.
"""

from __future__ import annotations

import re

from plait.scorers.judging.voice import (
    first_line,
    introduces_others,
    last_line,
    quotations,
    takes_back,
)

_FLAGS = re.IGNORECASE
_BOUNDARY = re.compile(
    r"(?<!e\.g)(?<!i\.e)(?<!\bvs)[.!?][\"'\u201d)*_]*(?:\s+|$)"
    r"|[\u3002\uff01\uff1f\uff1b;\n]|\b(?:wait|no|actually|hmm|sorry)[,:.;\u2014]+\s*"
    r"|[,\uff0c]?\s*\b(?:but|however|yet)\b,?\s*|\u4f46(?:\u662f)?"
    r"|[,\uff0c]\s*(?:and )?(?:so|therefore|thus|hence|which means(?: that)?)\b,?\s*",
    _FLAGS,
)
"""What ends a clause that can be judged by itself."""
_FAR = 400
"""Characters around a verdict in which its clause begins and ends."""
_CONCESSION = re.compile(
    r"^\W*(?:al?though|though|even (?:though|if)|while|whereas|despite|in spite of)\b"
    r"[^,\uff0c]*[,\uff0c]|^\W*(?:\u867d\u7136|\u5c3d\u7ba1)[^,\uff0c]*[,\uff0c]",
    _FLAGS,
)
_REASON = re.compile(
    r"^\W*(?:because|since|as(?! far| regards| to\b| for\b)|given|due to|for (?:these|this)"
    r"|unlike|contrary|instead of|\u7531\u4e8e|\u56e0\u4e3a)\b[^,\uff0c]*[,\uff0c]",
    _FLAGS,
)
_MINE = re.compile(
    r"\b(?:I|we)(?:'d| would| must| can| have to| will| do)?\s+(?:\w+ly\s+)?"
    r"(?:say|argue|state|judge|conclude|suggest|claim|call it|think|believe|find|feel"
    r"|consider)\b"
    r"|^\W*(?:no \w+|(?:neither|none) (?:is|wins)[^:,;]*)\s*:\s*$"
    r"|\bif I (?:had|have) to (?:choose|decide)\b"
    r"|\b(?:no|without(?: an?y?)?) (?:doubt|question)\b",
    _FLAGS,
)
"""What sounds like doubt or another's claim, and is neither."""
_DENIED = re.compile(
    r"\b(?:not|never|neither|nor|no|hardly|cannot|without|doubt\w*|den(?:y|ies)"
    r"|disagree|false|wrong|a lie|untrue|unclear|far from|instead of|rather than"
    r"|refus\w+|reject\w*)\b|n't\b"
    r"|\u4e0d|\u5e76\u975e|\u6ca1\u6709|\u65e0\u6cd5|\u96be\u4ee5",
    _FLAGS,
)
_SUPPOSED = re.compile(
    r"^\W*(?:then|in that case|in which case)\b"
    r"|\b(?:if|unless|whether|suppos\w+|assum\w+|would|could|might|may|maybe|perhaps"
    r"|possibly|were|had (?:the|it|they)|should|either|which|who|anyone|example|e\.g|i\.e"
    r"|almost|nearly|al?though|though|while|whereas|despite)\b"
    r"|\u5982\u679c|\u82e5|\u5047\u5982|\u867d\u7136|\u5c3d\u7ba1|\u662f\u5426",
    _FLAGS,
)
_ATTRIBUTED = re.compile(
    r"\b(?:claim|say|state|write|assert|insist|pretend|argue|declare|suggest|instruct"
    r"|demand|ask|quote|read|mention|beg|want|think|believe|feel)(?:s|d|ed|ing)?\b"
    r"|\b(?:said|wrote|told|tells)\b"
    r"|\baccording to\b|\b(?:contain|include|repeat|insert|inject|add|print|append)s?\W*$"
    r"|\b(?:(?:concludes|finishes|ends|closes|begins|starts) with(?: an?| the)?"
    r"|displays|has|bears|carries|injected)\W*$"
    r"|\b(?:line|sentence|words?|phrase|statement|instruction|string"
    r"|text)s?\W*$|\b(?:contain|include|show|add|print|end|begin|start|close)s?\b"
    r"[^,]*[:\uff1a(\"'\u201c]\W*$|\u58f0\u79f0|\u5199\u9053|\u5199\u7740|\u8bf4",
    _FLAGS,
)
_PART = re.compile(
    r"^\W*(?:and |also |only |but )*(?:in|on|for|at|by|with|from|regarding|concerning"
    r"|as (?:for|to|far|regards)|when|where|looking|considering|judging|taking|based"
    r"|\w+(?:ual|ic|ic[as]l|ist)ly|initially|at first|first|second|third)\b"
    r"|\u5728.*(?:\u4e0a|\u65b9\u9762|\u4e2d)",
    _FLAGS,
)
_WHOLE = re.compile(
    r"\b(?:in (?:total|summary|short|sum|general|all|the end|conclusion|my|every|both|most"
    r"|that|final|overall|this case|comparison)|on (?:the whole|balance|all|every|both"
    r"|second|closer|further|reflection)|for (?:me|these|this|its|the (?:reason|following))"
    r"|at (?:the end|every|all)|by (?:far|a|every|all)|as a whole"
    r"|when (?:all|everything)|with (?:all|everything|both|this)"
    r"|(?:at|by|considering|on|taking|from) (?:both|all|every\w*|the (?:two|criteria|above"
    r"|whole|evaluation|analysis|comparison|answers|responses)))\b"
    r"|\u603b\u4f53|\u7efc\u5408|\u6574\u4f53|\u603b\u7684",
    _FLAGS,
)
"""What seems to name a part, and means the whole."""
_LABEL = re.compile(r"^(?P<label>[^:\uff1a]*)[:\uff1a]")
_JUDGING = re.compile(
    r"verdict|answer|judge?ment|decision|decide|result|conclu|summary|overall|final|winner"
    r"|choice|evaluation|assessment|comparison|comparing|analysis|explanation|reason"
    r"|preference|prefer|output|response|total|therefore|thus|\bso\b|rating|tie\b|vote"
    r"|think|believe|better|\bI\b|\bmy\b|\u7ed3\u8bba|\u5224|\u603b|\u7b54\u6848|\u6700\u7ec8",
    _FLAGS,
)
_SPEAKER = re.compile(r"(?:answer|response|model|assistant|option)?\s*[AB12]\s*", _FLAGS)
_FINAL = re.compile(
    r"\b(?:overall|in total|all in all|on balance|on the whole|final(?:ly)?|verdict"
    r"|conclusion|summary|to sum up|winner|therefore|thus|hence|so)\b"
    r"|\u603b|\u7efc\u5408|\u6700\u7ec8|\u7ed3\u8bba",
    _FLAGS,
)
_OF_PART = re.compile(
    r"\b(?:of|in|from)\s*(?:the\s+)?(?:model|answer|response|assistant|option)?\s*\W*$",
    _FLAGS,
)
_NOUN_OF_ALL = re.compile(
    r"\b(?:answer|response|output|result|solution|story|version|one|continuation)s?\b",
    _FLAGS,
)
_AFTER_PART = re.compile(
    r"^\W*(?:than\s+(?:that of\s+)?(?:(?:the )?(?:model|answer|response|assistant)\s+)?"
    r"[ab]\b)?\W*(?:\b(?:only|just|merely|mainly|mostly|partly)\s+)?\b(?=(?:at|in|on|for"
    r"|with|regarding|concerning|when|where|here|there|sometimes|as (?:far as|regards|to"
    r"|for)|\w+(?:ual|ic|ical|ist)ly)\b)",
    _FLAGS,
)
_AFTER_DENIED = re.compile(
    r"^[\W_]*(?:or\b|nor\b|/|(?:is|was|are|stands|appears)\b|(?:only )?(?:if|unless)\b"
    r"|claims?\b|says\b|writes\b|states\b|than\s+(?!(?:that of |the (?:other|first|second)"
    r"|(?:the )?(?:model|answer|response|assistant|option|output)?\s*(?-i:[AB])\b)))"
    # A is better, it says; A is better, if the caption is right.
    r"|^\W*(?:(?:answer|response|model|assistant) )?(?:(?:[ab]|it|they) )?"
    r"(?:said|says|insists|claims|writes|asserts)\b"
    r"|^[^.;:]*,\s*if (?!only|just|barely|slightly|marginally|anything)"
    r"|^[^,.;:]*?\b(?:only if|unless|is (?:not true|false|wrong)|isn't)\b",
    _FLAGS,
)


def clause_before(text: str, start: int) -> str:
    """Return the clause up to `start`, without a concession or a reason put first."""
    far = max(0, start - _FAR)
    begins = max((m.end() for m in _BOUNDARY.finditer(text, far, start)), default=far)
    before = text[begins:start]
    return _REASON.sub("", _CONCESSION.sub("", before))


def is_final(text: str, start: int) -> bool:
    """Return whether the clause says before `start` that it sums up."""
    return _FINAL.search(clause_before(text, start)) is not None


def is_verdict(text: str, start: int, end: int) -> bool:
    """Return whether what stands from `start` to `end` is said by the judge, of the whole.

    False where it is denied, supposed, asked, told of others, or said of a part.
    """
    before = _MINE.sub("", clause_before(text, start))
    stop = _BOUNDARY.search(text, end, end + _FAR)
    after = text[end : stop.start() if stop else end + _FAR]
    if stop and (stop[0][0] in "?\uff1f" or _LIMITED.match(text, stop.end())):
        return False
    if is_of_others(text, start, end) or _OR.search(before) or _AFTER_DENIED.search(after):
        return False
    if any(pattern.search(before) for pattern in (_DENIED, _SUPPOSED, _ATTRIBUTED)):
        return False
    return not (_is_of_part(before, after) or _is_below_a_part(text, start))


_LIMITED = re.compile(r"\W*(?:only|just|merely|not|or so)\b", _FLAGS)
_OR = re.compile(r"\bor\W*$", _FLAGS)
_MARKS = "\"'\u201c\u201d*_ #.-([{"


def _is_of_part(before: str, after: str) -> bool:
    """Return whether the words around a verdict limit it to a part of the answers."""
    label = _LABEL.match(before)
    name = label["label"].strip(_MARKS) if label else ""
    if name and (_SPEAKER.fullmatch(name) or not _JUDGING.search(name)):
        return True
    if _PART.search(before) and not _WHOLE.search(before):
        return True
    if _OF_PART.search(before) and not _NOUN_OF_ALL.search(before):
        return True
    limit = _AFTER_PART.search(after)
    return bool(
        limit and not _WHOLE.match(after, limit.end()) and not _FINAL.search(before)
    )


def _is_below_a_part(text: str, start: int) -> bool:
    """Return whether a verdict stands below a title that is not about the whole."""
    title = last_line(text[:start].rpartition("\n")[0]).strip()
    titled = re.match(r"#|\*\*[^*]+\*\*[:\uff1a]?$|.*[:\uff1a][*_]*$", title)
    return bool(titled and not _JUDGING.search(title))


def is_of_others(text: str, start: int, end: int) -> bool:
    """Return whether a verdict is part of a quotation, or in a line told of others."""
    for quoted in quotations(text):
        if quoted.start < start and end <= quoted.end:
            around = text[quoted.start : start] + text[end : quoted.end]
            if re.sub(
                r"\b(?:the|model|answer|response|assistant)\b|\W", "", around.lower()
            ):
                return True
    above, _, before = text[:start].rpartition("\n")
    if before.strip(_MARKS):
        return False
    below = text[end:].partition("\n")[2]
    return introduces_others(last_line(above)) or takes_back(first_line(below))
