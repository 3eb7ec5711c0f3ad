"""What tables call stages of one name."""

from __future__ import annotations

from typing import Any

import pytest

from plait.benchmarks.runs.stage_labels import label_stages
from plait.generators.base import Kind, StageSpec


def spec(name: str, **about: Any) -> StageSpec:
    return StageSpec(name=name, kind=Kind.DRAFT, target="m:M", **about)


@pytest.mark.parametrize(
    ("specs", "labels"),
    [
        ([], []),
        ([spec("A"), spec("B", settings={"n": 1})], ["A", "B"]),
        (
            [spec("A"), spec("A", settings={"n": 1, "same": 2})],
            ["A", "A (n=1, same=2)"],
        ),
        (
            [spec("A", settings={"n": n, "same": 2}) for n in (1, 2)],
            ["A (n=1)", "A (n=2)"],
        ),
        (
            [spec("A", weights="tiny"), spec("A", weights="mini")],
            ["A (weights='tiny')", "A (weights='mini')"],
        ),
    ],
)
def test_stages_of_one_name_are_told_apart(
    specs: list[StageSpec], labels: list[str]
) -> None:
    found = label_stages(specs)
    assert [found[one.digest] for one in specs] == labels
