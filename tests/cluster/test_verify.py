"""`plait verify` sees what is damaged, counts what a repair costs, and changes nothing."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from store_helpers import SPEC, damage, draft_table, drafted, without_checksums
from trial import painter
from typer.testing import CliRunner

import plait
from benchmarks.plain_console import PlainConsole
from benchmarks.runs.integrity import DAMAGED, INTACT, verify_run
from cluster.records import Item, encode
from cluster.store import Store, write_part
from cluster.verify import verify
from generators.base import Kind, Result
from generators.document import Image, ImageRequest
from generators.errors import UsageError
from generators.pictures import encode as as_png


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A run directory with two stages: five texts in two parts, three pictures in one."""
    from PIL import Image as Pillow

    (tmp_path / "manifest.json").write_text("{}")
    store = Store(tmp_path)
    store.commit(SPEC, draft_table(*((k, drafted(k)) for k in "abc")))
    store.commit(SPEC, draft_table(*((k, drafted(k)) for k in "cde")))
    colours = [(i, i, i) for i in range(3)]
    pictures = [as_png(Pillow.new("RGB", (8, 8), colour)) for colour in colours]
    items = [Item(f"p{i}", "l", ImageRequest(prompt="x")) for i in range(3)]
    store.commit(painter(), encode(Kind.RENDER, items, [Result(d) for d in pictures], 0.1))
    return tmp_path


def contents(root: Path) -> dict[str, bytes]:
    files = (p for p in root.rglob("*") if p.is_file())
    return {str(p.relative_to(root)): p.read_bytes() for p in files}


def verified(root: Path, *, repair: bool = False) -> tuple[int, str]:
    file = io.StringIO()
    status = verify_run(root, PlainConsole(file=file, width=200), repair=repair)
    return status, file.getvalue()


def test_an_intact_run_is_counted_and_left_as_it_is(finished: Path) -> None:
    before = contents(finished)
    status, text = verified(finished)
    assert status == INTACT
    assert "No part is damaged" in text
    stages = {s.name.partition("-")[0]: s for s in verify(finished)}
    writer, paint = stages["writer"], stages["painter0"]
    assert (len(writer.checks), writer.records, writer.pictures) == (2, 6, 0)
    assert (len(paint.checks), paint.records, paint.pictures) == (1, 3, 3)
    assert contents(finished) == before


@pytest.mark.parametrize("column", ["text", "notes", "segments", "label"])
def test_a_damaged_part_is_named_and_what_only_it_holds_is_counted(
    finished: Path, column: str
) -> None:
    part = Path(Store(finished).rows(SPEC)["a"].part)
    damage(part, column)
    before = contents(finished)
    status, text = verified(finished)
    assert status == DAMAGED
    assert str(part) in text
    assert "A repair makes 2 records again" in text  # the other part holds c as well
    assert "Nothing was changed" in text
    assert contents(finished) == before


def test_a_part_that_is_no_longer_parquet_is_said_to_be_uncounted(finished: Path) -> None:
    part = Path(Store(finished).rows(SPEC)["a"].part)
    part.write_bytes(b"")
    status, text = verified(finished)
    assert status == DAMAGED
    assert "0 records again, and those of 1 parts that cannot be counted" in text


def test_repair_sets_damaged_parts_aside_for_the_next_run(finished: Path) -> None:
    (part,) = Store(finished).parts(painter())
    damage(part, "image.bytes")
    status, text = verified(finished, repair=True)
    assert status == INTACT
    assert "1 part set aside" in text
    assert part.with_suffix(".unreadable").exists()
    assert Store(finished).rows(painter()) == {}
    assert verified(finished)[0] == INTACT


def test_what_a_repair_cannot_set_aside_is_left(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = Store(finished).parts(painter())
    damage(part, "image.bytes")
    monkeypatch.setattr(Store, "set_aside", lambda self, parts: 0)
    assert verified(finished, repair=True)[0] == DAMAGED


@pytest.mark.parametrize("repair", [False, True])
def test_what_a_stage_made_and_is_no_picture_is_told_from_damage(
    finished: Path, repair: bool
) -> None:
    items = [Item("odd", "l", ImageRequest(prompt="x"))]
    undecodable = Result(Image.of(b"\x89PNG not really"))
    write_part(
        Store(finished).folder(painter()), encode(Kind.RENDER, items, [undecodable], 0.1)
    )
    status, text = verified(finished, repair=repair)
    assert status == DAMAGED
    assert "not a picture 1 of painter0" in text
    assert "odd" in text
    assert "No part is damaged" in text


def test_comparisons_of_the_run_are_checked_too(finished: Path) -> None:
    inside = Store(finished / "compare" / "creation")
    inside.commit(SPEC, draft_table(("z", drafted("z"))))
    (part,) = inside.parts(SPEC)
    damage(part, "text")
    assert verified(finished)[0] == DAMAGED
    verified(finished, repair=True)
    assert part.with_suffix(".unreadable").exists()


def test_parts_of_earlier_versions_are_said_to_carry_no_checksums(finished: Path) -> None:
    (part,) = Store(finished).parts(painter())
    without_checksums(part)
    status, text = verified(finished)
    assert status == INTACT
    assert "1 parts of an earlier version carry no checksums" in text


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run directory"):
        verified(tmp_path)


def test_the_command_ends_with_the_status(finished: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(plait.app, ["verify", str(finished)]).exit_code == INTACT
    damage(Path(Store(finished).rows(SPEC)["a"].part), "text")
    assert runner.invoke(plait.app, ["verify", str(finished)]).exit_code == DAMAGED
