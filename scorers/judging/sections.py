"""How OpenING's programs lay out requests and answers for a judge."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from generators.document import Content, Image, Text


def section(
    content: Content, numbers: Iterator[int], head: str, blank: str, none: str
) -> Content:
    """Return texts, each with the tag of the image that follows it, and the images.

    As `parse_and_load_json` and `get_gpt4answer` of LanceZPF/OpenING@56b663b: `head` goes
    before the first text, `blank` stands for it where it is empty, and `none` for content
    without any segment. An image that follows none is one after an empty text.
    """
    items: list[tuple[str, Image | None]] = []
    for segment in content:
        if isinstance(segment, Text):
            items.append((segment.text, None))
            continue
        text = items.pop()[0] if items and items[-1][1] is None else ""
        number = next(numbers)
        items.append((f"{text} <IMG_{number}></IMG_{number}>", segment))
    texts = [text for text, _ in items] or [""]
    texts[0] = f"{head}{texts[0]}" if texts[0] else blank if items else none
    segments: list[Text | Image] = []
    for text, image in zip_longest(texts, (image for _, image in items)):
        segments += [Text(text)] if image is None else [Text(text), image]
    return tuple(segments)
