"""What a model thinks before it replies, told apart from its reply.

Where a server has no parser for it, models write their reasoning into the reply, each
family between marks of its own. The marks here are those of the reasoning parsers of vLLM
and SGLang and of published chat templates. A thought is no part of a reply: neither an
answer nor a judgement. Standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

UNFINISHED = (
    "ends inside its thought: raise max_tokens, or give the server a reasoning parser"
)
"""What is said of a reply that never began."""
_BLANK = r"[\s\ufeff\u200b]*"
_START = (
    rf"{_BLANK}(?:(?:<s>|<bos>|<\|im_start\|>|<\|assistant\|>)(?:assistant\b)?{_BLANK})*"
)
"""What a server may leave before a reply whose special tokens it does not drop."""
_QUOTED = {"`": "`", "'": "'", '"': '"', "\u2018": "\u2019", "\u201c": "\u201d"}
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's words: what it thought, and what it said."""

    text: str
    """The reply without its thought; empty where none follows the thought."""
    thought: str = ""
    unfinished: bool = False
    """Whether the words end inside the thought, so that the reply never began."""

    @property
    def loss(self) -> str | None:
        """Why the words hold no reply, where a thought stands in its place."""
        if self.unfinished:
            return "the reply ends inside its thought"
        if self.thought and not self.text:
            return "the reply is a thought that nothing follows"
        return None


class _Marks:
    """How one family of models marks a thought.

    `needs_closing` is for openings in plain words: without the closing mark such a text is
    no thought. A `lone` closing mark ends a thought that was never opened: chat templates
    write the opening mark into the prompt.
    """

    def __init__(
        self,
        opening: str,
        closing: str,
        wrapper: tuple[str, str] | None = None,
        *,
        needs_closing: bool = False,
        lone: bool = True,
    ) -> None:
        self.opening = re.compile(opening, re.IGNORECASE)
        self.beginning = re.compile(_START + f"(?:{opening})", re.IGNORECASE)
        self.end_of_prompt = re.compile(f"(?:{opening}){_BLANK}\\Z", re.IGNORECASE)
        self.closing = re.compile(closing, re.IGNORECASE)
        self.wrapper: re.Pattern[str] | None = None
        if wrapper is not None:
            first, last = wrapper
            # Several in a row (`<answer>A</answer> or <answer>B</answer>`) wrap no reply.
            whole = rf"{_BLANK}{first}(?P<reply>(?:(?!{last}).)*)(?:{last}{_BLANK})?\Z"
            self.wrapper = re.compile(whole, re.IGNORECASE | re.DOTALL)
        self.needs_closing = needs_closing
        self.lone = lone


def _tag(name: str) -> _Marks:
    # ERNIE, Hunyuan and GLM wrap the reply that follows.
    wrapper = (r"<(?:answer|response)\s*>", r"</(?:answer|response)\s*>")
    return _Marks(rf"<\|?{name}\s*\|?>", rf"<\|?/\s*{name}\s*\|?>", wrapper)


_FINAL = (
    r"(?:<\|start\|>assistant)?<\|channel\|>\s*final\b[^<]*"
    # The form in which it was asked to reply, as `json`.
    r"(?:<\|constrain\|>[^<]*)?<\|message\|>"
)
_FAMILIES = (
    *map(_tag, ("think(?:ing)?", "thoughts?", "reasoning", "seed:think")),
    *map(_tag, ("thought_process", "thinking_process", "scratchpad", "reflection")),
    # Hunyuan (its names end in one of the release), MiniMax M3, LongCat, K2 Horizon.
    *map(_tag, (r"think:\w+", "mm:think", "longcat_think", r"ifm\|think\w*")),
    # Magistral, Kimi-VL, Pangu, Apertus, Solar Open.
    _Marks(r"\[THINK\]", r"\[/THINK\]"),
    _Marks("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    _Marks(r"\[unused16\]", r"\[unused17\]"),
    _Marks(r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    _Marks(r"<\|think:start\|>", r"<\|think:end\|>"),
    # Kimi K3, Inkling.
    _Marks(
        r"<\|open\|>think<\|sep\|>",
        r"<\|close\|>think<\|sep\|>",
        (
            r"<\|open\|>response<\|sep\|>",
            r"<\|close\|>response<\|sep\|>(?:<\|close\|>message<\|sep\|>)?",
        ),
    ),
    _Marks(
        r"(?:<\|message_model\|>)?<\|content_thinking\|>",
        r"<\|end_message\|>",
        (
            r"(?:<\|message_model\|>)?<\|content_text\|>",
            r"<\|end_message\|>(?:<\|content_model_end_sampling\|>)?",
        ),
        lone=False,
    ),
    # OpenThinker, Command A, Gemma 4, MedGemma 1.5.
    _Marks(
        r"<\|begin_of_thought\|>",
        r"<\|end_of_thought\|>",
        (r"<\|begin_of_solution\|>", r"<\|end_of_solution\|>"),
    ),
    _Marks(
        r"<\|START_THINKING\|>",
        r"<\|END_THINKING\|>",
        (r"<\|START_(?:RESPONSE|TEXT)\|>", r"<\|END_(?:RESPONSE|TEXT)\|>"),
    ),
    _Marks(r"<\|channel>(?:thought\b)?", r"<channel\|>"),
    _Marks(r"<unused94>(?:thought\b)?", r"<unused95>"),
    # gpt-oss (harmony), and what is left of it where its special tokens were dropped.
    _Marks(
        r"(?:<\|start\|>assistant)?<\|channel\|>\s*(?:analysis|commentary)\b",
        _FINAL,
        ("", r"<\|(?:return|end)\|>"),
    ),
    _Marks(r"(?-i:analysis(?=[A-Z]))", r"(?-i:assistant\s?final)", lone=False),
    _Marks(r"(?-i:analysis)", r"(?-i:assistant\s?final)", needs_closing=True, lone=False),
    # Granite, then Apriel: plain words.
    _Marks(
        r"Here(?:'s| is) my thought process:",
        r"Here(?:'s| is) my response:",
        needs_closing=True,
        lone=False,
    ),
    _Marks(
        r"Here are my reasoning steps:",
        r"\[BEGIN FINAL RESPONSE\]",
        ("", r"\[END FINAL RESPONSE\]"),
        needs_closing=True,
    ),
)
_MOST_MENTIONS = 20
"""Closing marks of one family that are looked at, which keeps the time linear."""
_FINAL_ALONE = re.compile(_BLANK + _FINAL)
_PARTS = re.compile(
    r"<\|(?:start|channel|constrain|message|open|close|sep|message_model|content_text)\|>"
)
"""Tokens of which marks are made; the others are tokens themselves."""


def separate(text: str, *, opened: bool = False, once: bool = False) -> Reply:
    """Tell the thought at the beginning of a model's words from the reply after it.

    A text without one comes back unchanged. With `opened` the prompt ended inside a thought
    (`opens_thought`), so that words without a closing mark are all thought. Marks further
    on are the reply's own, as where it explains them; but all before a closing mark that
    nothing opens is a thought, unless the mark stands in quotes or in a code block. With
    `once` only opened thoughts are told apart.
    """
    if not _may_hold_marks(text):
        return Reply("", text.strip(), unfinished=True) if opened else Reply(text)
    thoughts: list[str] = []
    rest = text
    while (marks := _marks_at_start(rest)) is not None:
        start = _match_end(marks.beginning, rest)
        closing = _closing(marks, rest, start)
        if closing is None:
            thoughts.append(rest[start:])
            return Reply("", _join(thoughts), unfinished=True)
        thoughts.append(rest[start : closing.start()])
        rest = _unwrap(marks, rest[closing.end() :])
    if thoughts:
        return Reply(rest.strip(), _join(thoughts))
    lone = None if once else _lone_closing(text)
    if lone is not None:
        marks, closing = lone
        # A model may open a thought after the one that the prompt had opened.
        said = separate(_unwrap(marks, text[closing.end() :]), once=True)
        thought = _join([text[: closing.start()], said.thought])
        return Reply(said.text.strip(), thought, said.unfinished)
    if opened:
        return Reply("", text.strip(), unfinished=True)
    if header := _FINAL_ALONE.match(text):
        return Reply(_HARMONY_END.sub("", text[header.end() :]).strip())
    return Reply(text)


_SIGN = re.compile("[<[\u25c1]")
_PLAIN_OPENING = re.compile(_BLANK + "(?:analysis|here)", re.IGNORECASE)


def _may_hold_marks(text: str) -> bool:
    """Return whether any mark may be in a text, or a header; of most answers, none is.

    Marks have one of the signs; those in plain words count only after their opening, with
    which a text then begins.
    """
    return _SIGN.search(text) is not None or _PLAIN_OPENING.match(text) is not None


def holds_thought(text: str) -> bool:
    """Return whether a model's words begin with a thought, also an empty one."""
    return separate(text).text != text


def begins_thought(text: str) -> bool:
    """Return whether a text begins with the opening mark of a thought."""
    return _marks_at_start(text) is not None


def opens_thought(prompt: str) -> bool:
    """Return whether a prompt ends with the opening mark of a thought."""
    return any(marks.end_of_prompt.search(prompt) for marks in _FAMILIES)


def is_mark(token: str) -> bool:
    """Return whether a token is a mark, or a part of one.

    Such tokens must not be dropped from a text before `separate` has read it.
    """
    patterns = [_PARTS]
    for marks in _FAMILIES:
        patterns += [marks.opening, marks.closing]
    return any(pattern.fullmatch(token) for pattern in patterns)


_HARMONY_END = re.compile(r"<\|(?:return|end)\|>\s*\Z")


def _marks_at_start(text: str) -> _Marks | None:
    """Return the family whose opening mark a text begins with."""
    for marks in _FAMILIES:
        if marks.beginning.match(text) is None:
            continue
        if not marks.needs_closing or marks.closing.search(text):
            return marks
    return None


def _match_end(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.match(text)
    return match.end() if match else 0


def _closing(marks: _Marks, text: str, start: int) -> re.Match[str] | None:
    """Return the mark that closes a thought.

    It is the one of the outermost thought where thoughts are nested; where marks do not
    pair (a thought that mentions its own opening mark), the first. Quoted marks count only
    where there are no others.
    """
    first = quoted = None
    before = number = 0
    # Not a list: a text of many short thoughts is read once for each of them.
    openings = marks.opening.finditer(text, start)
    opening = next(openings, None)
    for closing in marks.closing.finditer(text, start):
        if _is_quoted(text, closing):
            quoted = quoted or closing
            continue
        first = first or closing
        number += 1
        while opening is not None and opening.start() < closing.start():
            before += not _is_quoted(text, opening)
            opening = next(openings, None)
        if number == before + 1:
            return closing
    return first or quoted


def _lone_closing(text: str) -> tuple[_Marks, re.Match[str]] | None:
    """Return the first closing mark that nothing opens, with its family."""
    found: list[tuple[_Marks, re.Match[str]]] = []
    for marks in _FAMILIES:
        if not marks.lone:
            continue
        for closing in islice(marks.closing.finditer(text), _MOST_MENTIONS):
            # A thought may mention its own mark before it ends.
            if _is_mentioned(text, closing):
                continue
            if not marks.opening.search(text, 0, closing.start()):
                found.append((marks, closing))
            break
    return min(found, key=lambda pair: pair[1].start(), default=None)


def _is_mentioned(text: str, mark: re.Match[str]) -> bool:
    """Return whether a mark is quoted or part of a code block, not used."""
    return _is_quoted(text, mark) or fences(text, 0, mark.start()) % 2 == 1


def _is_quoted(text: str, mark: re.Match[str]) -> bool:
    """Return whether quotation marks stand on both sides: a thought may end with one."""
    closing = _QUOTED.get(text[mark.start() - 1 : mark.start()])
    return closing is not None and text.startswith(closing, mark.end())


def fences(text: str, start: int, end: int) -> int:
    """Return how many lines between two places of a Markdown text open or end a block."""
    return len(_FENCE.findall(text, start, end))


def _unwrap(marks: _Marks, text: str) -> str:
    """Return a reply without what its family puts around it."""
    wrapped = marks.wrapper.match(text) if marks.wrapper else None
    return wrapped["reply"] if wrapped else text


def _join(thoughts: list[str]) -> str:
    return "\n\n".join(thought.strip() for thought in thoughts).strip()
