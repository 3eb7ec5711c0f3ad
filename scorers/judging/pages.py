"""How a judge in corrected mode is shown question and answer: whole, images numbered."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from plait.generators.content import join_texts
from plait.generators.document import Content, Document, Image, Text

NOTHING = "(no text and no picture)"
UNKNOWN = "(not known)"
_CONTROL = re.compile(
    r"<(?P<tag>image>|/?img>|IMG_CONTEXT>)|^(?P<heading>#{1,6}[ \t]*"
    r"(?:question|answer|correct answer|feedback|verdicts|score|criterion)\b)",
    re.IGNORECASE | re.MULTILINE,
)
"""Placeholders of images (InternVL's and most others'), and our own headings."""


@dataclass
class Pages:
    """Writes question and answer with images numbered throughout, as the release does."""

    limit: int | None
    """Most images shown; None for all."""
    shown: int = 0
    left_out: int = 0
    neutralised: list[str] = field(default_factory=list)

    def write(self, content: Content) -> Content:
        """Return each segment on lines of its own, each image behind its number."""
        segments: list[Text | Image] = []
        for segment in content:
            if isinstance(segment, Text):
                segments.append(Text(self._neutral(segment.text).rstrip("\n") + "\n"))
            else:
                segments += self._number(segment)
        return join_texts(segments) or (Text(f"{NOTHING}\n"),)

    def _number(self, image: Image) -> Content:
        number = self.shown + self.left_out
        if self.shown == self.limit:
            self.left_out += 1
            return (Text(f"Image-{number}: (not shown)\n"),)
        self.shown += 1
        return (Text(f"Image-{number}: "), image, Text("\n"))

    def truth(self, reference: Document | None) -> Content:
        """Return the text of the ground truth."""
        text = reference.text.strip() if reference else ""
        return (Text(self._neutral(text) or UNKNOWN),)

    def _neutral(self, text: str) -> str:
        """`text` with a space in placeholders and a backslash before headings."""

        def neutralise(match: re.Match[str]) -> str:
            self.neutralised.append(match.group())
            return f"< {match['tag']}" if match["tag"] else f"\\{match['heading']}"

        return _CONTROL.sub(neutralise, text)
