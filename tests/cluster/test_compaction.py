"""Parts are joined while more are written; who knows a former place finds the record."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_helpers import damage, flip
from trial import Witness, painter, plan_of, run, sample, writer

from plait.cluster import compaction
from plait.cluster.compaction import Compaction
from plait.cluster.executors.simulated import World
from plait.cluster.ledger import missing_parts
from plait.cluster.parts import DamagedPart, forget_open_parts
from plait.cluster.placement import Node, Resources
from plait.cluster.records import Item, decode, encode
from plait.cluster.store import Store, read_blob
from plait.cluster.watcher import RunProgress
from plait.generators.base import Kind, Placement, Result
from plait.generators.document import Image, ImageRequest

pytestmark = [
    pytest.mark.slow,
]

SPEC = painter()
MOST_PARTS = 200
"""Of a stage, at any moment."""


class AtOnce:
    """Does what a pool of threads would do, when it is told to."""

    def __init__(self, *_: Any) -> None:
        self.shutdown = lambda: None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future = Future[Any]()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "ThreadPoolExecutor", AtOnce)


def picture(number: int) -> Image:
    return Image.of(b"picture %d" % number)


class Clock:
    """Stands until it is set."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def committed(store: Store, joining: Compaction, number: int) -> Image:
    """One picture as a reader has it that was told of its part, which is noted."""
    item = Item(f"{number:032x}", "label", ImageRequest(prompt=str(number)))
    table = encode(Kind.RENDER, [item], [Result(picture(number))], 0.1)
    (row,) = store.commit(SPEC, table).values()
    joining.note(SPEC, [row.part])
    joining.turn()
    outcome = decode(Kind.RENDER, row)
    assert isinstance(outcome, Result)
    return replace(outcome.value, data=None)


def test_records_are_found_wherever_their_parts_were_joined_to(tmp_path: Path) -> None:
    clock, store = Clock(), Store(tmp_path)
    joining = Compaction(store, clock)
    with store.noting_parts(None):
        told = []
        for number in range(150):
            told.append(committed(store, joining, number))
            clock.seconds += 1.0
            assert len(store.parts(SPEC)) < MOST_PARTS
        joining.close()
        assert len(store.parts(SPEC)) < 48
        assert [read_blob(image) for image in told] == [picture(i).data for i in range(150)]
        for number in range(150):
            row = store.record(SPEC, f"{number:032x}")
            assert row is not None
            assert Path(row.part).exists()
    assert missing_parts(tmp_path) == []
    again = Store(tmp_path)
    assert len(again.rows(SPEC)) == 150
    assert again.notices == []


def test_former_parts_are_kept_for_a_while(tmp_path: Path) -> None:
    """A file server may show a worker of another machine the joined one later."""
    clock, store = Clock(), Store(tmp_path)
    joining = Compaction(store, clock)
    told = [committed(store, joining, number) for number in range(48)]
    joining.turn()
    assert len(store.parts(SPEC)) == 49
    assert all(Path(str(image.place).partition("#")[0]).exists() for image in told)
    clock.seconds += 61.0
    joining.turn()
    assert len(store.parts(SPEC)) == 9


def test_a_record_made_meanwhile_under_the_same_key_is_the_one_that_counts(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    joining = Compaction(store, Clock())
    first = committed(store, joining, 0)
    for number in range(1, 60):
        committed(store, joining, number)
    # Of another process, which the driver has not heard of when it joins the parts.
    item = Item(f"{0:032x}", "label", ImageRequest(prompt="0"))
    Store(tmp_path).commit(SPEC, encode(Kind.RENDER, [item], [Result(picture(99))], 0.1))
    joining.close()
    assert read_blob(first) == picture(0).data
    assert len(Store(tmp_path).rows(SPEC)) == 60


def test_a_damaged_part_is_left_for_the_end_of_the_run(tmp_path: Path) -> None:
    store = Store(tmp_path)
    joining = Compaction(store, Clock())
    damaged = Path(str(committed(store, joining, 0).place).partition("#")[0])
    flip(damaged, *range(60, 200))
    for number in range(1, 120):
        committed(store, joining, number)
    joining.close()
    assert str(damaged) in store.suspects
    assert damaged.exists()
    assert len(store.parts(SPEC)) < 60


def test_damage_of_a_joined_part_is_told_with_its_own_name(tmp_path: Path) -> None:
    store = Store(tmp_path)
    joining = Compaction(store, Clock())
    told = [committed(store, joining, number) for number in range(48)]
    joining.close()
    row = store.record(SPEC, f"{0:032x}")
    assert row is not None
    damage(Path(row.part), "image.bytes")
    forget_open_parts()
    with pytest.raises(DamagedPart) as found:
        read_blob(told[0])
    assert (found.value.part, type(found.value)) == (row.part, DamagedPart)


def test_parts_that_somebody_removed_end_no_run(tmp_path: Path) -> None:
    store = Store(tmp_path)
    joining = Compaction(store, Clock())
    for number in range(47):
        committed(store, joining, number)
    for part in store.parts(SPEC):
        Path(str(part)).unlink()
    last = [committed(store, joining, number) for number in range(47, 56)]
    joining.close()
    assert [read_blob(image) for image in last[-8:]] == [
        picture(number).data for number in range(48, 56)
    ]


class Counting(Witness):
    """Counts the parts of each stage, turn by turn."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root, self.most = root, 0

    def turn(self, progress: RunProgress) -> None:
        for folder in self.root.glob("stages/*"):
            self.most = max(self.most, len([*folder.glob("part-*")]))


def test_a_run_has_few_parts_at_any_moment(tmp_path: Path) -> None:
    single = Placement(num_cpus=0.1, batch_size=1)
    samples = [sample(number) for number in range(400)]
    plan = plan_of(
        samples, write=writer(single), paint=[painter(0, single)], measure=single
    )
    seen, world = Counting(tmp_path), World([Node("n", Resources(cpus=8), "address")])
    with world.driver() as driver:
        result = run(plan, tmp_path, seen, executor=nullcontext(driver))
    assert result.counts["scored"] == 400
    assert 10 < seen.most < MOST_PARTS
