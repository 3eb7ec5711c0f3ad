"""The bundled sample set: what it covers, its layout, and that its answers are right."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from benchmarks.tasks.mmie.reader import SAMPLE
from benchmarks.tasks.task_set import load
from generators.document import Sample, Text


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return load("sample", cache=tmp_path_factory.mktemp("cache"))


def test_it_covers_all_categories_and_fields_with_a_ground_truth_each(task) -> None:
    assert all(isinstance(s, Sample) for s in task.samples)
    assert Counter(s.category for s in task.samples) == {"SA": 10, "PBL": 14, "MSR": 16}
    assert {s.field for s in task.samples} == set(task.fields)
    for sample in task.samples:
        if sample.category == "MSR":
            assert len(sample.reference.segments) == 1
            assert not sample.reference.images
        else:
            texts = [s for s in sample.reference.segments if isinstance(s, Text)]
            assert min(len(sample.reference.images), len(texts)) >= 2


def test_it_has_the_published_layout_and_uses_and_attributes_every_image() -> None:
    rows = json.loads((SAMPLE / "data.json").read_bytes())
    turns = [turn for row in rows for turn in row["conversations"]]
    assert all(row.keys() >= {"id", "catagory", "field"} for row in rows)
    assert [turn["from"] for turn in turns] == ["human", "gpt"] * len(rows)
    used = {item["image"] for turn in turns for item in turn["content"]} - {None}
    files = {p.name for p in (SAMPLE / "images").iterdir()}
    assert used == {f"./images/{name}" for name in files}
    attribution = (SAMPLE / "ATTRIBUTION.md").read_text()
    assert set(re.findall(r"`([\w-]+\.(?:png|jpg))`", attribution)) == files


# The answers once more, by hand or by another way than whoever wrote the rows.
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


def test_the_reasoning_answers(task) -> None:
    answered = {s.id: s.reference.text for s in task.samples if s.category == "MSR"}
    assert answered == ANSWERS
