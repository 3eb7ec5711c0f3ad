"""The bundled sample set: what it covers, its layout, and that its answers are right."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from plait.benchmarks.tasks.mmie.reader import SAMPLE
from plait.benchmarks.tasks.task_set import load
from plait.generators.document import Query, Text


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return load("sample", cache=tmp_path_factory.mktemp("cache"))


def test_it_covers_all_categories_and_fields_with_a_ground_truth_each(task):
    assert all(isinstance(s, Query) for s in task.samples)
    assert Counter(s.category for s in task.samples) == {"SA": 10, "PBL": 14, "MSR": 16}
    assert {s.field for s in task.samples} == set(task.fields)
    for sample in task.samples:
        if sample.category == "MSR":
            assert len(sample.reference.segments) == 1
            assert not sample.reference.images
        else:
            texts = [s for s in sample.reference.segments if isinstance(s, Text)]
            assert min(len(sample.reference.images), len(texts)) >= 2


def test_it_has_the_published_layout_and_uses_and_attributes_every_image():
    rows = json.loads((SAMPLE / "data.json").read_bytes())
    turns = [turn for row in rows for turn in row["conversations"]]
    assert all(row.keys() >= {"id", "catagory", "field"} for row in rows)
    assert [turn["from"] for turn in turns] == ["human", "gpt"] * len(rows)
    used = {item["image"] for turn in turns for item in turn["content"]} - {None}
    files = {p.name for p in (SAMPLE / "images").iterdir()}
    assert used == {f"./images/{name}" for name in files}
    attribution = (SAMPLE / "ATTRIBUTION.md").read_text()
    assert set(re.findall(r"`([\w-]+\.(?:png|jpg))`", attribution)) == files
