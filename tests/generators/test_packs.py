"""Paths inside a zip file: what reads them, and what is said where they cannot be read."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait.cluster.parts import (
    open_part,
    parts_in,
    read_cell,
    read_part,
    stage_folders,
    write_part,
)
from plait.generators.buckets import any_path, matching
from plait.generators.errors import UsageError, WriteError
from plait.generators.files import write_whole
from plait.generators.packs import PackPath

TABLE = pa.table({"key": [f"{i:04d}" for i in range(3000)], "n": range(3000)})


def zipped(folder: Path, compression: int = zipfile.ZIP_STORED) -> Path:
    """A zip of all files of a folder, beside it."""
    file = folder.with_suffix(".zip")
    with zipfile.ZipFile(file, "w", compression) as pack:
        for path in sorted(folder.rglob("*")):
            pack.write(path, path.relative_to(folder))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = tmp_path / "a run"
    write_part(run / "stages" / "x-0123", TABLE)
    write_whole(run / "manifest.json", '{"é": 1}')
    return run


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_pack_is_read_as_the_folder_that_it_was_made_of(folder, compression):
    pack = any_path(zipped(folder, compression))
    assert isinstance(pack, PackPath)
    for path in [folder, *folder.rglob("*")]:
        below = path.relative_to(folder)
        same = any_path(pack.file / below)
        assert (same.exists() and same.is_file()) == path.is_file()
        assert same.is_dir() == path.is_dir()
        assert {p.name for p in same.iterdir()} == (
            {p.name for p in path.iterdir()} if path.is_dir() else set()
        )
        assert (same.name, same.stem) == (path.name, path.stem)
        if path.is_file():
            assert same.read_bytes() == path.read_bytes()
            assert same.stat().st_size == path.stat().st_size
            with same.open() as file:
                file.seek(-5, 2)
                assert file.read() == path.read_bytes()[-5:]
                file.seek(2)
                assert file.read(3) == path.read_bytes()[2:5]
    assert (pack / "manifest.json").read_text() == '{"é": 1}'
    assert {p.name for p in pack.walk()} == {
        p.name for p in folder.rglob("*") if p.is_file()
    }
    assert [p.name for p in matching(pack, "stages/*/part-*.parquet")] == [
        p.name for p in folder.glob("stages/*/part-*.parquet")
    ]
    ((part,),) = (parts_in(stage) for stage in stage_folders(pack))
    assert read_part(part).equals(TABLE)
    assert read_cell(str(part), 2345, "n") == 2345
    assert open_part(str(part)).metadata.num_rows == 3000
    (beside,) = folder.glob("stages/*/*")
    assert pq.read_table(beside).equals(TABLE)


def test_a_folder_whose_name_ends_as_a_pack_is_a_folder(tmp_path):
    (tmp_path / "x.zip").mkdir()
    assert any_path(tmp_path / "x.zip" / "y") == tmp_path / "x.zip" / "y"
    assert any_path(tmp_path / "none.zip") == tmp_path / "none.zip"


def test_what_is_no_pack_or_not_all_of_one_is_named(folder):
    whole = zipped(folder)
    cut, other = folder.with_name("cut.zip"), folder.with_name("other.zip")
    cut.write_bytes(whole.read_bytes()[:-100])
    other.write_text("no zip at all")
    for file, what in ((cut, "its end is missing"), (other, "not a zip file")):
        with pytest.raises(UsageError, match=rf"{file.name} is no pack.*{what}"):
            (any_path(file) / "manifest.json").exists()
    with pytest.raises(FileNotFoundError, match=r"a run\.zip/none"):
        (any_path(whole) / "none").read_bytes()


def test_damage_of_a_member_is_an_error_of_its_file(folder):
    whole = zipped(folder)
    data = whole.read_bytes()
    whole.write_bytes(data.replace('{"é": 1}'.encode(), '{"é": 2}'.encode()))
    with pytest.raises(OSError, match="damaged"):
        (any_path(whole) / "manifest.json").read_bytes()


def test_nothing_is_written_into_a_pack(folder):
    whole = zipped(folder)
    before = whole.read_bytes()
    with pytest.raises(WriteError, match=r"a run\.zip: a pack is only read"):
        write_whole(any_path(whole) / "report.html", "x")
    with pytest.raises(OSError, match="only read"):
        (any_path(whole) / "manifest.json").unlink()
    assert whole.read_bytes() == before
