"""Multi-step reasoning in coding; the answers come from running what is shown."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence

from sample_authoring.canvas import BLUE, PALE, SAND, SKY, Canvas, Point
from sample_authoring.query import Figure, Query, reasoning


def coding() -> list[Query]:
    """Four queries."""
    return [_program(), _pattern(), _flowchart(), _tree()]


def printed(lines: Sequence[str]) -> list[str]:
    """What the Python program in `lines` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec("\n".join(lines), {})
    return out.getvalue().splitlines()


def _listing(name: str, lines: Sequence[str]) -> Figure:
    canvas = Canvas(440, 40 + round(24.65 * len(lines)), paper="#f7f8fa")
    canvas.code((26, 18), lines)
    return canvas.figure(name)


_PROGRAM = (
    "total = 0",
    "for n in range(1, 8):",
    "    if n % 3 == 0:",
    "        continue",
    "    total += n",
    "print(total)",
)


def _program() -> Query:
    text = "What does this Python program print?"
    (answer,) = printed(_PROGRAM)
    question = [(text, _listing("program", _PROGRAM))]
    return reasoning(9, "Coding", "Program tracing", question, answer)


_LOOPS = (
    "for row in range(4):",
    "    print('.' * (3 - row)",
    "          + '#' * (row + 1))",
)
_PATTERNS = {
    "A": ("#...", "##..", "###.", "####"),
    "B": ("...#", "..##", ".###", "####"),
}


def _pattern() -> Query:
    shown = {name: list(rows) for name, rows in _PATTERNS.items()}
    (answer,) = (name for name, rows in shown.items() if rows == printed(_LOOPS))
    question = [
        ("Here is a Python program.", _listing("loops", _LOOPS)),
        ("The second image is pattern A.", _grid("A")),
        ("The third image is pattern B.", _grid("B")),
        (
            "In the patterns a dark square stands for '#' and a light one for '.'. Which "
            "pattern does the program print, 'A' or 'B'?",
            None,
        ),
    ]
    return reasoning(10, "Coding", "Loops", question, answer)


def _grid(name: str) -> Figure:
    canvas = Canvas(240, 240)
    for y, row in enumerate(_PATTERNS[name]):
        for x, char in enumerate(row):
            left, top = 20 + 50 * x, 20 + 50 * y
            canvas.box(left, top, left + 50, top + 50, fill=BLUE if char == "#" else PALE)
    return canvas.figure(f"pattern-{name.lower()}")


def _flowchart(start: int = 6) -> Query:
    canvas = Canvas(460, 400)
    _card(canvas, (150, 35), "count = 0", SAND)
    _choice(canvas, (150, 120), "n = 1 ?")
    _choice(canvas, (150, 220), "n even ?")
    _card(canvas, (150, 310), "n = n / 2", SKY)
    _card(canvas, (345, 220), "n = 3 n + 1", SKY)
    _card(canvas, (345, 120), "print count", SAND)
    _card(canvas, (240, 370), "count = count + 1", SKY, 90)
    canvas.arrow((150, 55), (150, 85))
    _labelled(canvas, (215, 120), (280, 120), "yes", (245, 106))
    _labelled(canvas, (150, 155), (150, 185), "no", (168, 168))
    _labelled(canvas, (150, 255), (150, 290), "yes", (170, 270))
    _labelled(canvas, (215, 220), (280, 220), "no", (245, 206))
    canvas.arrow((150, 330), (190, 350))
    canvas.arrow((345, 240), (290, 350))
    canvas.line((150, 370), (40, 370), (40, 120))
    canvas.arrow((40, 120), (85, 120))
    text = f"Follow the flow chart, beginning with n = {start}. Which number is printed?"
    question = [(text, canvas.figure("flowchart"))]
    answer = str(collatz_steps(start))
    return reasoning(11, "Coding", "Algorithms", question, answer)


def collatz_steps(n: int) -> int:
    """What the flow chart prints for `n`."""
    count = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        count += 1
    return count


def _card(canvas: Canvas, middle: Point, text: str, fill: str, half: float = 65) -> None:
    x, y = middle
    canvas.box(x - half, y - 20, x + half, y + 20, fill=fill)
    canvas.text(middle, text, 16)


def _choice(canvas: Canvas, middle: Point, text: str) -> None:
    x, y = middle
    canvas.polygon((x - 65, y), (x, y - 35), (x + 65, y), (x, y + 35), fill="white")
    canvas.text(middle, text, 16)


def _labelled(canvas: Canvas, start: Point, end: Point, text: str, at: Point) -> None:
    canvas.arrow(start, end)
    canvas.text(at, text, 14)


_TREE = {8: (3, 10), 3: (1, 6), 10: (None, 14), 1: (None, None), 6: (None, None)}
_PLACES = {
    8: (220, 45),
    3: (120, 120),
    10: (320, 120),
    1: (65, 200),
    6: (175, 200),
    14: (375, 200),
}


def visited(node: int | None) -> list[int]:
    """The tree below `node`: the left part, the right part, then the node itself."""
    if node is None:
        return []
    left, right = _TREE.get(node, (None, None))
    return [*visited(left), *visited(right), node]


def _tree() -> Query:
    canvas = Canvas(440, 250)
    for parent, children in _TREE.items():
        for child in children:
            if child is not None:
                canvas.line(_PLACES[parent], _PLACES[child], width=3)
    for node, place in _PLACES.items():
        canvas.disc(place, 24, fill=SKY, width=3)
        canvas.text(place, str(node), 18)
    text = "In which order does a post-order traversal visit the nodes of this binary tree?"
    orders = (
        [1, 3, 6, 8, 10, 14],
        [8, 3, 1, 6, 10, 14],
        [1, 6, 3, 14, 10, 8],
        [14, 10, 8, 6, 3, 1],
    )
    written = [", ".join(map(str, order)) for order in orders]
    answer = ", ".join(map(str, visited(8)))
    options = dict(zip("ABCD", written, strict=True))
    question = [(text, canvas.figure("tree"))]
    return reasoning(12, "Coding", "Data structures", question, answer, options)
