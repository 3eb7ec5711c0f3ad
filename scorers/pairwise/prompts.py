"""What judges are asked: the task in our wording, and questions and answers as content.

The text-only variant is Creation-MMBench-TO: systems are asked a query whose images are
replaced by a description, judges are shown the original one. The two lines around a
description are Figure 30 of the paper's appendix.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from plait.generators.content import join_texts, last_question, space_out
from plait.generators.document import Content, Document, Query, Text, Turn
from plait.scorers.judging.rubrics import read_wording

OWN = read_wording(Path(__file__).with_name("prompts.toml"))
"""Our wording: the tables of `prompts.toml`, with their parts put together."""


def as_content(text: str) -> Content:
    """Return one text as content."""
    return (Text(text),)


def texts(content: Content) -> Content:
    """Return the text of `content`, one segment a line, as one segment."""
    return as_content(Document(content).text)


def images_of(content: Content) -> Content:
    """Return the images of `content`."""
    return Document(content).images


def whole(answer: Document) -> Content:
    """Return all of an answer in order, every segment on a line of its own."""
    return space_out(answer.segments)


def user_turns(query: Query) -> tuple[Turn, ...]:
    """Return the user's turns."""
    return tuple(turn for turn in query.turns if turn.role == "user")


DESCRIPTION = "image_description"
"""Metadata of a query: what its images show."""
_BEFORE = (
    "This question does not provide images, only descriptions of images by a large "
    "language model. Please answer based on the descriptions.\n"
    "Description of the image: "
)


def text_only(query: Query) -> Query:
    """`query` without images and with their description after its last user turn's text.

    ValueError where a query with images has no description in its metadata.
    """
    if not images_of(query.question):
        return query
    if not (description := query.metadata.get(DESCRIPTION)):
        raise ValueError(f"query {query.id!r} has images and no {DESCRIPTION!r}")
    last = last_question(query)
    turns = []
    for i, turn in enumerate(query.turns):
        texts_alone = [part for part in turn.content if isinstance(part, Text)]
        added = Text(f"\n{_BEFORE}{description}" if i == last else "")
        content = join_texts((*space_out(tuple(texts_alone)), added))
        turns.append(Turn(turn.role, content))
    return replace(query, turns=tuple(turns))
