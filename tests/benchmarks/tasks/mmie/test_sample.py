"""The bundled sample set: what it covers, that it is right, and how it is made."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from mmie_helpers import good
from PIL import Image as Pillow
from sample_authoring import coding, make_sample, mathematics, physics, statistics
from sample_authoring import steps_learning as learning
from sample_authoring.query import reasoning

from benchmarks.tasks.mmie.reader import SAMPLE
from benchmarks.tasks.task_set import load
from generators.document import Image, Sample, Text
from generators.pictures import decode


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return load("sample", cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def samples(task):
    assert all(isinstance(s, Sample) for s in task.samples)
    return {s.id: s for s in good(task)}


def test_it_covers_all_categories_fields_and_kinds(task, samples):
    assert task.name == "mmie-sample"
    assert len(samples) == 40
    assert Counter(s.category for s in samples.values()) == {"SA": 10, "PBL": 14, "MSR": 16}
    fields = Counter(s.field for s in samples.values())
    assert set(fields) == set(task.fields)
    assert min(fields.values()) == 2
    pictures = Counter(len(images(s.question)) for s in samples.values())
    assert pictures[1] >= 25
    assert sum(n for count, n in pictures.items() if count > 1) >= 6
    kinds = Counter(s.metadata["format"] for s in samples.values())
    assert kinds["multiple-choice"] >= 4
    assert kinds["open-ended"] >= 20
    words = [len("".join(texts(s.question)).split()) for s in samples.values()]
    assert words.count(1) >= 2


def images(content):
    return [s for s in content if isinstance(s, Image)]


def texts(content):
    return [s.text for s in content if isinstance(s, Text)]


def test_every_query_has_a_ground_truth_of_its_category(samples):
    for sample in samples.values():
        truth = sample.reference
        assert truth is not None
        if sample.category == "MSR":
            assert len(truth.segments) == 1
            assert not truth.images
            assert len(truth.text) <= 30
        else:
            assert len(truth.images) >= 2
            assert len(texts(truth.segments)) >= 2


def test_how_tos_begin_with_title_method_and_first_step(samples):
    for sample in samples.values():
        if sample.category == "PBL":
            title, method, step = texts(sample.question)
            assert re.fullmatch(r"How to .*\?", title)
            assert method.startswith("Method 1: ")
            assert step.startswith("Step 1: ")
            assert "\n" in step
            steps = [t.split(":")[0] for t in texts(sample.reference.segments)]
            assert steps == [f"Step {i}" for i in range(2, 2 + len(steps))]


def test_it_is_written_in_the_published_layout_and_small():
    rows = json.loads((SAMPLE / "data.json").read_bytes())
    for value in rows:
        assert set(value) >= {"id", "catagory", "field", "conversations"}
        assert [turn["from"] for turn in value["conversations"]] == ["human", "gpt"]
        for turn in value["conversations"]:
            for item in turn["content"]:
                assert set(item) == {"text", "image"}
                assert item["image"] is None or item["image"].startswith("./images/")
    files = [p for p in SAMPLE.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < 2_000_000
    used = {i["image"] for v in rows for t in v["conversations"] for i in t["content"]}
    assert {f"./images/{p.name}" for p in (SAMPLE / "images").iterdir()} == used - {None}


def test_every_picture_is_attributed():
    text = (SAMPLE / "ATTRIBUTION.md").read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert all(len(row) == 5 and all(cell.strip("| ") for cell in row) for row in rows)
    named = re.findall(r"`([\w-]+\.(?:png|jpg))`", text)
    assert sorted(named) == sorted(p.name for p in (SAMPLE / "images").iterdir())
    licences = {row[2] for row in rows}
    known = ("CC0", "CC BY", "public domain", "no known copyright")
    assert all(licence.startswith(known) for licence in licences)


def test_the_script_makes_the_folder_that_is_bundled(tmp_path):
    make_sample.write(tmp_path)
    for name in ("data.json", "ATTRIBUTION.md"):
        assert (tmp_path / name).read_bytes() == (SAMPLE / name).read_bytes()
    made = sorted(p.name for p in (tmp_path / "images").iterdir())
    assert made == sorted(p.name for p in (SAMPLE / "images").iterdir())
    for name in made:
        new, old = (decode((f / "images" / name).read_bytes()) for f in (tmp_path, SAMPLE))
        assert new.size == old.size
        # Other builds of the codecs round a little differently.
        difference = np.abs(np.asarray(new).astype(int) - np.asarray(old))
        assert difference.mean() < 1.5, name


# The answers once more, by hand or by another way than the script's.
ANSWERS = {
    "MSR-001": "36",  # 9, 12, 15
    "MSR-002": "30.9",  # 144 - 36 * 3.14159 = 30.90
    "MSR-003": "B",  # 14 squares and 15 squares
    "MSR-004": "9",  # (24 - 6) / 2
    "MSR-005": "3",  # (20 - 8) / 4
    "MSR-006": "(C) 2 A",  # 6 | 3 = 2, 2 + 4 = 6, 12 / 6
    "MSR-007": "80",  # 16 + 48 + 16
    "MSR-008": "(A) only in A",  # 60 = 60, 50 < 60
    "MSR-009": "19",  # 1 + 2 + 4 + 5 + 7
    "MSR-010": "B",  # dots first, fewer each row
    "MSR-011": "8",  # 6 3 10 5 16 8 4 2 1
    "MSR-012": "(C) 1, 6, 3, 14, 10, 8",
    "MSR-013": "No",  # 590 and 620
    "MSR-014": "B",
    "MSR-015": "2",
    "MSR-016": "(A) Jan",  # 34, 26, 15, 4, 15, 30
}


def test_the_reasoning_answers(samples):
    found = {s.id: s.reference.text for s in samples.values() if s.category == "MSR"}
    assert found == ANSWERS


def test_the_drawn_data_give_these_answers():
    assert mathematics.shoelace(mathematics._SHAPES["A"]) == 4 * 2 + 2 * 3
    assert mathematics.shoelace(mathematics._SHAPES["B"]) == 6 * 5 / 2
    area = np.trapezoid([v for _, v in physics._SPEEDS], [t for t, _ in physics._SPEEDS])
    assert area == 80
    assert coding.printed(coding._PROGRAM) == [str(sum({*range(1, 8)} - {3, 6}))]
    assert sum(statistics._VISITORS.values()) == 590 + 620
    strengths = [
        abs(np.corrcoef(np.array(points).T)[0, 1]) for points in statistics._CLOUDS.values()
    ]
    assert strengths[1] > 0.95 > 0.8 > strengths[0]
    counts = Counter(statistics._GOALS)
    assert counts[2] == 4 > max(n for goals, n in counts.items() if goals != 2)


def test_the_tree_is_a_search_tree_so_that_its_inorder_is_sorted():
    def inorder(node):
        if node is None:
            return []
        left, right = coding._TREE.get(node, (None, None))
        return [*inorder(left), node, *inorder(right)]

    order = inorder(8)
    assert order == sorted(order)
    assert all(a < b for a, b in pairwise(order))


def test_a_choice_must_have_exactly_one_right_option():
    for options in ({"A": "1", "B": "2"}, {"A": "3", "B": "3"}):
        with pytest.raises(ValueError, match="of the options"):
            reasoning(1, "Physics", "x", [("q", None)], "3", options)


def test_the_numbers_in_the_how_tos(samples):
    led = "".join(texts(samples["PBL-003"].reference.segments))
    assert f"{(9 - 2) / 390 * 1000:.0f} mA" in led
    resistor = " ".join(texts(samples["PBL-004"].reference.segments))
    ohm = 47 * 10**2
    assert f"makes {ohm} ohm, or {ohm / 1000} kilo-ohm" in resistor
    assert f"between {ohm * 95 // 100} and {ohm * 105 // 100} ohm" in resistor
    first = texts(samples["PBL-007"].question)[-1]
    assert f"rent of {learning.SHARES['Rent']}, {900 / learning.INCOME:.1%}" in first
    budget = " ".join(texts(samples["PBL-007"].reference.segments))
    rent, food, travel, saving = learning.SHARES.values()
    assert f"Food takes {food} and travel {travel}" in budget
    assert f"Now {rent + food + travel} of {learning.INCOME} are spoken for" in budget
    assert saving == learning.INCOME // 10
    left = learning.INCOME - rent - food - travel - saving
    assert f"the income, {saving}, aside" in budget
    assert f"rest of the bar, {left}, is yours" in budget


def test_the_drawings_are_to_scale():
    width, height, area = coloured("triangle.png", (207, 227, 245))
    # Legs of 12 and 9 units of 22 pixels, less the outline; the area also less the mark.
    assert width == pytest.approx(12 * 22, abs=14)
    assert height == pytest.approx(9 * 22, abs=14)
    assert area == pytest.approx(12 * 9 / 2 * 22**2, rel=0.12)
    width, height, _ = coloured("corners.png", (224, 165, 38))
    assert (width, height) == pytest.approx((240, 240), abs=6)


def coloured(name, colour):
    """Width, height and area of what has this colour, in pixels."""
    seen = np.asarray(decode((SAMPLE / "images" / name).read_bytes())).astype(int)
    rows, columns = np.nonzero(np.abs(seen - colour).sum(axis=2) < 12)
    return np.ptp(columns) + 1, np.ptp(rows) + 1, len(rows)


def test_photographs_are_jpegs_of_moderate_size():
    for path in (SAMPLE / "images").glob("*.jpg"):
        with Pillow.open(path) as picture:
            assert picture.format == "JPEG"
            assert max(picture.size) == 420
