"""InterleavedBench as a task set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from picture_helpers import flat

from benchmarks.tasks.task_set import load
from generators.document import Malformed, Sample, Text

ROW: dict[str, Any] = {
    "id": "w1",
    "image": ["wiki/a.png", "wiki/b.png", "wiki/c.png"],
    "task_name": "wikihow_next_step",
    "conversations": [
        {"from": "human", "value": "<BEGIN> Go on. <image>. Step 1: cut."},
        {"from": "gpt", "value": "Step 2: fold. <image>"},
    ],
}


def test_images_go_to_the_question_then_to_the_ground_truth(tmp_path: Path) -> None:
    (tmp_path / "zipped_images" / "wiki").mkdir(parents=True)
    for name, colour in zip("abc", ("red", "green", "blue"), strict=True):
        (tmp_path / "zipped_images" / "wiki" / f"{name}.png").write_bytes(flat(colour))
    alone = ROW | {"conversations": ROW["conversations"][:1], "image": ["wiki/a.png"]}
    short = ROW | {"image": ["wiki/a.png"], "conversations": [{"value": "<image><image>"}]}
    rows = [ROW, alone, short, ROW | {"conversations": []}]
    (tmp_path / "interleaved_bench.json").write_text(json.dumps(rows))
    task = load(f"interleavedbench:{tmp_path}", cache=tmp_path / "cache")
    first, second, *broken = task.samples
    assert isinstance(first, Sample)
    assert isinstance(second, Sample)

    def told(content: Any) -> list[str]:
        return [s.text if isinstance(s, Text) else Path(s.place).stem for s in content]

    assert told(first.question) == ["Go on.", "a", "Step 1: cut."]
    assert first.reference is not None
    assert told(first.reference.segments) == ["Step 2: fold.", "b", "c"]
    assert (first.id, first.category) == ("0", "wikihow_next_step")
    assert second.reference is None
    assert all(isinstance(b, Malformed) for b in broken)
    assert [b.reason.split(": ")[1] for b in broken if isinstance(b, Malformed)] == [
        "missing picture",
        "no human turn",
    ]
