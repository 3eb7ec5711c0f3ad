"""`plait verify` sees what is damaged, counts what a repair costs, and changes nothing."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image as Pillow
from store_helpers import SPEC, damage, draft_table, drafted, without_checksums
from trial import painter
from typer.testing import CliRunner

import plait.cli
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.runs.integrity import DAMAGED, INTACT, verify_run
from plait.cluster import verify as verifying
from plait.cluster.records import Item, encode
from plait.cluster.store import Store
from plait.cluster.verify import verify
from plait.generators.base import Kind, Result
from plait.generators.document import Image, ImageRequest
from plait.generators.errors import UsageError
from plait.generators.images import encode as as_png


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A run directory with two stages: five texts in two parts, three images in one."""
    (tmp_path / "manifest.json").write_text("{}")
    store = Store(tmp_path)
    store.commit(SPEC, draft_table(*((k, drafted(k)) for k in "abc")))
    store.commit(SPEC, draft_table(*((k, drafted(k)) for k in "cde")))
    drawn = {f"p{i}": as_png(Pillow.new("RGB", (8, 8), (i, i, i))) for i in range(3)}
    commit_images(tmp_path, drawn)
    return tmp_path


def commit_images(root: Path, drawn: dict[str, Image]) -> None:
    items = [Item(key, "l", ImageRequest(prompt="x")) for key in drawn]
    table = encode(Kind.RENDER, items, [Result(d) for d in drawn.values()], 0.1)
    Store(root).commit(painter(), table)


def contents(root: Path) -> dict[str, bytes]:
    files = (p for p in root.rglob("*") if p.is_file())
    return {str(p.relative_to(root)): p.read_bytes() for p in files}


def verified(root: Path, *, repair: bool = False) -> tuple[int, str]:
    file = io.StringIO()
    status = verify_run(root, PlainConsole(file=file, width=200), repair=repair)
    return status, file.getvalue()


def test_an_intact_run_is_counted_and_left_as_it_is(finished: Path) -> None:
    before = contents(finished)
    assert verified(finished)[0] == INTACT
    stages = {s.name.partition("-")[0]: s for s in verify(finished)}
    counts = {name: (len(s.checks), s.records, s.images) for name, s in stages.items()}
    assert counts == {"writer": (2, 6, 0), "painter0": (1, 3, 3)}
    assert contents(finished) == before


def drop_part(root: Path) -> None:
    (part, _) = Store(root).parts(SPEC)
    part.unlink()


def drop_stage(root: Path) -> None:
    shutil.rmtree(root / "stages" / painter().folder)


def drop_all(root: Path) -> None:
    shutil.rmtree(root / "stages")


def damage_and_drop(root: Path) -> None:
    drop_stage(root)
    damage(Store(root).parts(SPEC)[0], "text")


@pytest.mark.parametrize("place", ["", "compare/creation"])
@pytest.mark.parametrize(
    ("harm", "missing"),
    [
        (drop_part, {"writer": 2}),
        (drop_stage, {"painter0": 3}),
        (drop_all, {"writer": 5, "painter0": 3}),
        (damage_and_drop, {"painter0": 3}),
    ],
)
def test_records_that_are_gone_are_counted(
    finished: Path, place: str, harm: Callable[[Path], None], missing: dict[str, int]
) -> None:
    """Records of two parts count once, as c does, and may be more than were noted."""
    folders = {SPEC.folder: 5, painter().folder: 3}
    if place:
        inner = ("stages", "manifest.json")
        (finished / place).mkdir(parents=True)
        for name in inner:
            (finished / name).rename(finished / place / name)
        (finished / "manifest.json").write_text("{}")
    root = finished / place
    for fewer in (1, 0):
        noted = {name: n - fewer for name, n in folders.items()}
        (root / "manifest.json").write_text(json.dumps({"records": noted}))
        assert verified(finished)[0] == INTACT
    harm(root)
    assert verified(finished)[0] == DAMAGED
    found = {s.name.partition("-")[0]: s.missing for s in verify(root, folders)}
    assert {name: n for name, n in found.items() if n} == missing


def test_parts_that_others_are_joined_to_meanwhile_are_not_missed(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, once = verifying.check_part, iter([True])

    def joining(part: Path, **options: bool) -> verifying.PartCheck:
        if next(once, False):
            Store(finished).compact(SPEC)
        return check(part, **options)

    monkeypatch.setattr(verifying, "check_part", joining)
    noted = {SPEC.folder: 5, painter().folder: 3}
    assert [stage.missing for stage in verify(finished, noted)] == [0, 0]


def empty(part: Path) -> None:
    part.write_bytes(b"")


@pytest.mark.parametrize(
    ("harm", "lost", "uncounted"),
    [
        *((lambda p, c=c: damage(p, c), 2, 0) for c in ("text", "segments")),
        (empty, 0, 1),
    ],
)
def test_a_damaged_part_is_named_and_what_only_it_holds_is_counted(
    finished: Path, harm: Callable[[Path], None], lost: int, uncounted: int
) -> None:
    """The other part holds c as well."""
    part = Path(Store(finished).rows(SPEC)["a"].part)
    harm(part)
    before = contents(finished)
    status, text = verified(finished)
    assert (status, str(part) in text) == (DAMAGED, True)
    (stage,) = (s for s in verify(finished) if s.damaged)
    assert (stage.lost, stage.uncounted) == (lost, uncounted)
    assert contents(finished) == before
    command = CliRunner().invoke(plait.cli.app, ["verify", str(finished)])
    assert command.exit_code == DAMAGED


def test_a_part_that_was_removed_is_named(finished: Path) -> None:
    with Store(finished).noting_parts(None):
        (part,) = Store(finished).parts(painter())
    part.unlink()
    status, text = verified(finished)
    assert (status, str(part) in text) == (DAMAGED, True)
    (stage,) = (s for s in verify(finished) if s.gone)
    assert (stage.name, [*stage.gone]) == (painter().folder, [part])


def test_repair_sets_damaged_parts_aside_for_the_next_run(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = Store(finished).parts(painter())
    damage(part, "image.bytes")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "set_aside", lambda self, parts: 0)
        assert verified(finished, repair=True)[0] == DAMAGED
    assert verified(finished, repair=True)[0] == INTACT
    assert part.with_suffix(".unreadable").exists()
    assert Store(finished).rows(painter()) == {}
    assert verified(finished)[0] == INTACT


@pytest.mark.parametrize("repair", [False, True])
def test_what_a_stage_made_and_is_no_picture_is_told_from_damage(
    finished: Path, repair: bool
) -> None:
    commit_images(finished, {"odd": Image.of(b"\x89PNG not really")})
    status, text = verified(finished, repair=repair)
    assert (status, "odd" in text) == (DAMAGED, True)
    assert not any(stage.damaged for stage in verify(finished))


def test_comparisons_of_the_run_are_checked_too(finished: Path) -> None:
    inside = Store(finished / "compare" / "creation")
    inside.commit(SPEC, draft_table(("z", drafted("z"))))
    (part,) = inside.parts(SPEC)
    damage(part, "text")
    assert verified(finished)[0] == DAMAGED
    verified(finished, repair=True)
    assert part.with_suffix(".unreadable").exists()


def test_parts_of_earlier_versions_carry_no_checksums_and_folders_may_be_no_runs(
    finished: Path,
) -> None:
    (part,) = Store(finished).parts(painter())
    without_checksums(part)
    assert verified(finished)[0] == INTACT
    assert sum(stage.unsigned for stage in verify(finished)) == 1
    with pytest.raises(UsageError, match="is not a run directory"):
        verified(finished / "stages")
