"""A query of the bundled sample set as its author writes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image as Pillow

from benchmarks.tasks.mmie.categories import TITLES


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture and the file it becomes."""

    name: str
    """File name; a `.jpg` is a photograph, a `.png` a drawing."""
    picture: Pillow.Image = dataclasses.field(repr=False, compare=False)


Item = tuple[str | None, Figure | None]
"""Text, and the picture that follows it."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """One row of the sample set."""

    id: str
    field: str
    subfield: str
    question: tuple[Item, ...]
    answer: tuple[Item, ...]
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Of a multiple-choice question, by letter."""

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All pictures of question and answer."""
        return tuple(f for _, f in (*self.question, *self.answer) if f is not None)

    def row(self) -> dict[str, Any]:
        """The query in the published layout, its misspelt `catagory` included."""
        return {
            "id": self.id,
            "catagory": TITLES[self.id.partition("-")[0]],
            "field": self.field,
            "subfield": self.subfield,
            "format": "multiple-choice" if self.options else "open-ended",
            "conversations": [
                {"from": "human", "content": [_item(*i) for i in self.question]},
                {"from": "gpt", "content": [_item(*i) for i in self.answer]},
            ],
        }


def _item(text: str | None, figure: Figure | None) -> dict[str, str | None]:
    return {"text": text, "image": f"./images/{figure.name}" if figure else None}


def reasoning(
    number: int,
    field: str,
    subfield: str,
    question: Sequence[Item],
    answer: str,
    options: Mapping[str, str] | None = None,
) -> Query:
    """A multi-step reasoning query; `answer` is one of the `options` if there are any."""
    items, choices = list(question), dict(options or {})
    if choices:
        letters = "\n".join(f"({letter}) {text}" for letter, text in choices.items())
        items.append((f"Choices:\n{letters}", None))
        answer = f"({_letter_of(answer, choices)}) {answer}"
    return Query(
        id=f"MSR-{number:03}",
        field=field,
        subfield=subfield,
        question=tuple(items),
        answer=((answer, None),),
        options=choices,
    )


def _letter_of(answer: str, options: Mapping[str, str]) -> str:
    right = [letter for letter, option in options.items() if option == answer]
    if len(right) != 1:
        raise ValueError(f"{answer!r} is {len(right)} of the options {dict(options)}")
    return right[0]
