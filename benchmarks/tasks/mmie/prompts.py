"""The wording of MMIE's queries, per category and kind of model (paper Tables 12-14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from plait.generators.document import Content, Image, Query, Text, Turn
from plait.generators.errors import UsageError
from plait.generators.keys import digest
from plait.generators.names import unknown
from plait.generators.system import Variant

QUESTION = "{question}"
"""Where a template has the query's own content; once in each."""
_TAIL = "\nQuestion:\n{question}\nAnswer:"
_STORY = "I will give you the beginning of a story. Continue the story with "
_HOWTO = (
    "I will give you a question and the first step to complete it. "
    "I want to know what should I do next. Explain it to me "
)
_REASONING = "I will give you a question with image(s). Please solve this question."

PROMPTS: Mapping[str, Mapping[str, str]] = {
    "SA": {
        "text": f"{_STORY}detailed description.{_TAIL}",
        "interleaved": f"{_STORY}text and images.{_TAIL}",
    },
    "PBL": {
        "text": f"{_HOWTO}in detail.{_TAIL}",
        "interleaved": f"{_HOWTO}with text and images.{_TAIL}",
    },
    "MSR": {"text": _REASONING + _TAIL, "interleaved": _REASONING + _TAIL},
}
"""Protocol constants. The tables write both variants in one line, `with detailed
description/with text and images`; the second is for models that draw. Their `response`
after `Answer:` is the place of the model's answer."""


@dataclass(frozen=True)
class Prompts:
    """Words a query: a `plait.generators.system.Prompter`."""

    templates: Mapping[str, Mapping[str, str]]

    def __call__(self, sample: Query, variant: Variant) -> tuple[Turn, ...]:
        """Return the query's conversation, its last turn set into the category's template.

        The content's own text stays as it is; its items are set on lines of their own,
        as the official scorer's flattening does. `plain` leaves everything unchanged.
        Empty texts of earlier turns are left out: endpoints refuse them.
        """
        if variant == "plain":
            return sample.turns
        *earlier, last = sample.turns
        template = self.templates[sample.category][variant]
        return (
            *map(_without_empty_texts, earlier),
            Turn(last.role, _set(template, last.content, _places(last.content))),
        )

    @property
    def digest(self) -> str:
        """Names the wording in a manifest."""
        return digest(self.templates)


def prompts(overrides: Mapping[str, Mapping[str, str]] | None = None) -> Prompts:
    """Return the published prompts, with `overrides` as {category: {variant: text}}.

    A text that holds `{question}` is the whole template; any other is the instruction
    before the usual `Question:` and `Answer:`. Raises UsageError for unknown names.
    """
    templates = {category: dict(texts) for category, texts in PROMPTS.items()}
    for category, texts in (overrides or {}).items():
        if category not in templates:
            raise unknown("prompt category", category, templates)
        for variant, text in texts.items():
            if variant not in PROMPTS[category]:
                raise unknown(f"prompt variant of {category}", variant, PROMPTS[category])
            where = f"{category}.{variant}"
            if not isinstance(text, str):
                raise UsageError(f"prompt {where} must be a string, not {text!r}")
            if text.count(QUESTION) > 1:
                raise UsageError(f"prompt {where} holds {QUESTION} more than once")
            templates[category][variant] = text if QUESTION in text else text + _TAIL
    return Prompts(templates)


def _without_empty_texts(turn: Turn) -> Turn:
    content = (segment for segment in turn.content if segment != Text(""))
    return Turn(turn.role, tuple(content))


def _places(content: Content) -> tuple[str | None, ...]:
    """Where the images are, which does not count when images are compared."""
    return tuple(s.place for s in content if isinstance(s, Image))


@lru_cache(maxsize=16)  # systems are asked the same in turn
def _set(template: str, content: Content, places: tuple[str | None, ...]) -> Content:
    """`content` in place of {question}; adjoining text becomes one segment.

    Equal images in other `places` are others to the cache.
    """
    before, after = template.split(QUESTION)
    segments: list[Text | Image] = []
    text = before
    for i, segment in enumerate(content):
        if i:
            text += "\n"
        if isinstance(segment, Text):
            text += segment.text
            continue
        if text:
            segments.append(Text(text))
        segments.append(segment)
        text = ""
    text += after
    if text:
        segments.append(Text(text))
    return tuple(segments)
