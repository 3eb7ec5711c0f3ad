"""What notebooks show of answers and queries."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from api_helpers import OWN, SCORER, SYSTEM, colour_of, fill
from PIL import Image as Pillow
from store_helpers import damage

import plait
from plait.benchmarks.results.notebook import NotebookDocument
from plait.benchmarks.runs.run_data import RunData
from plait.cluster.store import Store
from plait.generators.base import Kind
from plait.generators.document import Image, Text


class _Parts(HTMLParser):
    """Text and images of HTML in order, and every tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        source = dict(attrs).get("src") or ""
        if source:
            assert source.startswith("data:image/webp;base64,")
            data = base64.b64decode(source.partition(",")[2])
            picture = Pillow.open(io.BytesIO(data)).convert("RGB")
            assert max(picture.size) <= 256
            self.parts.append(colour_of(picture))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.parts.append(data)


def test_an_answer_shows_text_escaped_and_pictures_in_order(run: RunData) -> None:
    shown = _Parts(run.answer("Q-1", SYSTEM)._repr_html_())
    assert set(shown.tags) == {"div", "b", "img"}
    assert shown.parts == [
        "Q-1",
        "user",
        "Tell <b>all</b> & show & tell",
        "blue",
        SYSTEM,
        "<i>first</i>\nthen",
        "red",
        "Tell <b>all</b> & show & tell; last, 1",
        "blue",
        f"{SCORER}: 2",
    ]


def test_a_query_is_shown_with_the_answers_of_some_systems(run: RunData) -> None:
    view = run.show("Q-1", systems=[SYSTEM])
    assert str(view) == str(run.queries["Q-1"]) + "\n\n" + str(run.answer("Q-1", SYSTEM))
    assert str(view).splitlines() == [
        *("Q-1", "user: Tell <b>all</b> & show & tell", "<image>", "", SYSTEM),
        *("<i>first</i>", "then", "<image>", "Tell <b>all</b> & show & tell; last, 1"),
        *("<image>", f"{SCORER}: 2"),
    ]
    assert _Parts(view._repr_html_()).parts.count("red") == 1
    everyone = _Parts(run.show("Q-3")._repr_html_()).parts
    assert [part for part in everyone if part in run.systems] == [SYSTEM, "gt"]
    assert "failed (refused): the model refused" in everyone
    assert "the truth" in everyone


def test_scores_are_shown_as_a_table_of_the_first_rows(run: RunData) -> None:
    shown = _Parts(run.table._repr_html_()).parts
    assert shown[0] == "16 rows"
    assert shown.count("Q-1") == 4
    assert shown.count("Q-4") == 0
    assert "6 more rows" in shown


def test_damaged_images_are_named_in_their_places(tmp_path: Path) -> None:
    experiment = fill(tmp_path, **OWN)
    run = plait.open_run(tmp_path)
    before = _Parts(run.answer("Q-1", SYSTEM)._repr_html_()).parts
    (draft,) = (s for s in experiment.plan.stages if s.kind is Kind.DRAFT)
    answer = run.answer("Q-1", SYSTEM)
    assert answer.document is not None
    part = Path(str(answer.document.images[0].place).partition("#")[0])
    assert part in Store(tmp_path).parts(draft)
    damage(part, "images.list.element.bytes")
    again = plait.open_run(tmp_path)
    shown = _Parts(again.answer("Q-1", SYSTEM)._repr_html_()).parts
    drawn = [i for i, text in enumerate(before) if text in ("red", "blue")][-2:]
    for place, (text, now) in enumerate(zip(before, shown, strict=True)):
        damaged = re.match(r"\[image \d cannot be read: .*damaged", now)
        assert damaged if place in drawn else now == text
    assert any(part.name in text for text in again.damage)
    with pytest.raises(Exception, match="damaged"):
        again.answer("Q-1", SYSTEM).document.pictures  # type: ignore[union-attr]  # noqa: B018


def test_a_picture_file_that_is_gone_or_changed_is_named(tmp_path: Path) -> None:
    gone = Image("0" * 64, place=str(tmp_path / "gone.png"))
    (tmp_path / "other.png").write_bytes(b"other")
    changed = Image("1" * 64, place=str(tmp_path / "other.png"))
    broken = Image.of(b"no <picture>")
    document = NotebookDocument((Text("a"), gone, changed, broken, Text("b")))
    shown = document._repr_html_()
    assert "[image 1 cannot be read: " in shown
    assert "gone.png" in shown
    assert "[image 2 cannot be read: " in shown
    assert "has changed since" in shown
    assert "[image 3: the bytes are in no known image format" in shown
    assert shown.index(">a<") < shown.index("image 1") < shown.index(">b<")
