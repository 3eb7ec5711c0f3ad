"""The console of all commands: what it prints is text, whoever wrote it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from plait.generators.visible import visible


class PlainConsole(Console):
    """Reads no markup and no emoji codes; control characters become visible.

    Styles are for `rich.text.Text`, of which it prints several beside each other.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print tables within the width, and lines of text whole: they can be copied."""
        options.setdefault("soft_wrap", all(isinstance(o, str | Text) for o in objects))
        super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string before it is laid out."""
        return super().render_str(visible(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Everything else; a lone carriage return is the `end` of a print."""
        for segment in super().render(renderable, options):
            ours = segment.control or segment.text == "\r"
            yield segment if ours else Segment(visible(segment.text), segment.style)


def text_console(file: IO[str], width: int = 160) -> PlainConsole:
    """Return a console that prints into a text, also in a notebook."""
    # Without this a console would print into the notebook's cell, whatever its file.
    return PlainConsole(file=file, width=width, force_terminal=False, force_jupyter=False)
