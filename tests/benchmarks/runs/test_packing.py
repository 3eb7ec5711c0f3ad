"""A run as one file: what is in it, who reads it, and what it says of its maker."""

from __future__ import annotations

import errno
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_helpers import plait
from golden_runs import HERE, RUNS

from plait import api
from plait.benchmarks.runs import packing

pytestmark = pytest.mark.slow

KEY = "sk-of-nobody-0123456789"


def copy_of_run(folder: Path, name: str = "mmie") -> Path:
    """A recorded run that is reported, in a folder of its own; as its maker has it."""
    shutil.copytree(RUNS / name, folder, dirs_exist_ok=True)
    file = folder / "run" / "manifest.json"
    content = json.loads(file.read_text().replace(HERE, str(folder)))
    content["argv"] = [str(folder / "bin" / "plait"), "run", "--ids", f"{folder}/ids.txt"]
    content["config"]["cluster"]["environment"] = {"OTHER": KEY}
    content["notes_of_a_test"] = f"cannot read '{folder}/data/x y.png': {KEY}"
    file.write_text(json.dumps(content))
    said = plait("report", str(folder / "run"))
    assert not said.returncode, said.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_run(tmp_path_factory.mktemp("of") / "jane doe" / "work")


@pytest.fixture(scope="module")
def pack(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as one file, in a folder where nothing else of it is."""
    return packed(run, tmp_path_factory.mktemp("pack") / "run.zip")


def packed(run: Path, target: Path, *more: str) -> Path:
    said = plait("pack", str(run), str(target), *more, TEST_API_KEY=KEY)
    assert (said.returncode, said.stderr) == (0, "")
    assert str(target) in said.stdout
    return target


def texts_in(file: Path) -> Iterator[tuple[str, str]]:
    """All that a pack says, by member; of tables, their rows and metadata."""
    with zipfile.ZipFile(file) as pack:
        for name in pack.namelist():
            data = pack.read(name)
            if name.endswith(".parquet"):
                table = pq.read_table(pa.BufferReader(data))
                yield name, f"{table.schema.metadata} {table.to_pylist()}"
            elif not name.endswith(".webp"):
                yield name, data.decode()


def test_a_pack_holds_results_tables_and_page_and_no_records(run, pack):
    with zipfile.ZipFile(pack) as file:
        members = {about.filename: about for about in file.infolist()}
        assert file.testzip() is None
    beside = [p.relative_to(run) for p in run.glob("*.*")]
    assert {str(name) for name in beside} <= {*members}
    assert {name.partition("/")[0] for name in members if "/" in name} == {
        "results",
        "report",
    }
    assert [*members] == sorted(members, key=lambda name: Path(name))
    assert {about.date_time[0] for about in members.values()} == {1980}
    for name, about in members.items():
        stored = name.endswith(".parquet") or "/pictures-" in name
        assert (about.compress_type == zipfile.ZIP_STORED) == stored


@pytest.mark.parametrize("more", [(), ("--all",)])
def test_a_pack_names_no_key_and_no_folder_of_its_maker(run, tmp_path, more):
    file = packed(run, tmp_path / "other name.zip", *more)
    for name, text in texts_in(file):
        assert "jane doe" not in text, name
        assert KEY not in text, name
        assert str(tmp_path) not in text, name
    manifest = api.open_run(file).manifest
    assert manifest["config"]["data"] == "data"
    assert manifest["argv"] == ["plait", "run", "--ids", "ids.txt"]
    assert manifest["notes_of_a_test"] == "cannot read 'data/x y.png': ***"


def test_equal_runs_make_equal_bytes_also_from_elsewhere_and_from_a_pack(
    run, pack, tmp_path
):
    other = shutil.copytree(run, tmp_path / "elsewhere" / "run")
    assert packed(other, tmp_path / "run.zip").read_bytes() == pack.read_bytes()
    assert packed(pack, tmp_path / "again" / "run.zip").read_bytes() == pack.read_bytes()


@pytest.mark.parametrize("more", [(), ("--all",)])
def test_open_run_takes_a_pack_as_the_folder(run, pack, tmp_path, more):
    file = packed(run, tmp_path / "all.zip", *more) if more else pack
    one, other = api.open_run(run), api.open_run(file)
    assert other.table.arrow.equals(one.table.arrow)
    assert other.systems == one.systems
    images = 0
    for ours, theirs in zip(one.answers(), other.answers(), strict=True):
        assert (ours.outcome, ours.notes) == (theirs.outcome, theirs.notes)
        assert ours.document == theirs.document
        for image in theirs.document.images if theirs.document else ():
            assert other.read(image) == one.read(image) == image.read()
            images += 1
    assert images > 10
    for id, query in one.queries.items():
        assert other.queries[id].sample == query.sample
    assert other.damage == ()
    with zipfile.ZipFile(file) as members:
        assert any(n.startswith("stages/") for n in members.namelist()) == bool(more)


def test_what_is_no_pack_is_named_in_one_line(pack, tmp_path):
    cut, other, text = (tmp_path / f"{name}.zip" for name in ("cut", "other", "text"))
    cut.write_bytes(pack.read_bytes()[:-40])
    text.write_text("no zip")
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("photos/1.png", b"")
    found = {cut: "its end is missing", text: "not a zip file", other: "holds no results"}
    for file, what in found.items():
        for words in (("report",), ("show", "SA-1"), ("verify",)):
            said = plait(words[0], str(file), *words[1:])
            assert said.returncode == 2
            assert file.name in said.stderr
            assert what in said.stderr or words[0] == "verify"
            assert len(said.stderr.splitlines()) == 1


def test_commands_that_would_write_into_a_pack_say_so(pack, tmp_path):
    before = pack.read_bytes()
    asked = {
        ("report",): "--out",
        ("annotate",): "--out",
        ("score", "--scorer", "chrf"): "only read",
        ("forget", "--scorer", "bleu"): "only read",
        ("forget", "--prune"): "only read",
        ("verify", "--repair"): "only read",
        ("run", "--scorer", "chrf", "--out"): "only read",
        ("compare", "--protocol", "opening", "--judge", "mmie-score"): "only read",
    }
    for (command, *more), what in asked.items():
        words = (*more, str(pack)) if command == "run" else (str(pack), *more)
        said = plait(command, *words)
        assert said.returncode in (1, 2), command
        assert what in said.stderr
        assert len(said.stderr.splitlines()) == 1
    out = tmp_path / "out"
    assert plait("report", str(pack), "--out", str(out)).returncode == 0
    assert (out / "report.html").exists()
    assert pack.read_bytes() == before


def test_a_pack_is_written_whole_or_stays_as_it_was(run, tmp_path, monkeypatch):
    file = packed(run, tmp_path / "run.zip")
    before = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(packing.shutil, "copyfileobj", full)
    said = plait("pack", str(run), str(file))
    assert said.returncode == 1
    assert "No space left" in said.stderr
    assert [*tmp_path.iterdir()] == [file]
    assert file.read_bytes() == before


def test_a_run_is_packed_from_within_its_folder_with_the_tables_of_studies(run, tmp_path):
    other = shutil.copytree(run, tmp_path / "run")
    (other / "bias.json").write_text(json.dumps({"judge": f"{run}/judges/x y"}))
    (other / "annotate").mkdir()
    (other / "annotate" / "annotations.csv").write_text("rater,score\nann,3\n")
    (other / "annotate" / "key.json").write_text("{}")
    said = plait("pack", ".", str(tmp_path / "x.zip"), folder=other)
    assert not said.returncode, said.stderr
    with zipfile.ZipFile(tmp_path / "x.zip") as file:
        assert json.loads(file.read("bias.json")) == {"judge": "judges/x y"}
        assert file.read("annotate/annotations.csv") == b"rater,score\nann,3\n"
        assert "annotate/key.json" not in file.namelist()


def test_verify_names_the_damaged_file_of_a_pack(pack, tmp_path):
    assert plait("verify", str(pack)).returncode == 0
    file, data = tmp_path / "run.zip", bytearray(pack.read_bytes())
    with zipfile.ZipFile(pack) as members:
        images = next(m for m in members.infolist() if "/images-" in m.filename)
    data[images.header_offset + 500] ^= 1
    file.write_bytes(data)
    said = plait("verify", str(file))
    assert said.returncode == 1
    assert images.filename in said.stdout


def test_images_that_are_lost_are_named_and_all_else_is_packed(run, tmp_path):
    other = tmp_path / "run"
    shutil.copytree(run, other)
    (part,) = (other / "stages").glob("Pencil-*/part-*.parquet")
    part.unlink()
    said = plait("pack", str(other), str(tmp_path / "run.zip"))
    assert said.returncode == 1
    assert "cannot be read" in said.stdout
    opened = api.open_run(tmp_path / "run.zip")
    assert opened.table.arrow.equals(api.open_run(run).table.arrow)


def test_the_page_alone_is_made_up_to_a_size_that_is_named(run, tmp_path, monkeypatch):
    page = packed(run, tmp_path / "run.html", "--html")
    text = page.read_text()
    assert "jane doe" not in text
    assert KEY not in text
    assert 'data-file="index.js"' in text
    few = packed(run, tmp_path / "few.html", "--html", "--queries", "1")
    assert few.stat().st_size < page.stat().st_size
    monkeypatch.chdir(tmp_path)
    said = plait("pack", str(run), "--html", "--max-mb", "0.1", folder=tmp_path)
    assert said.returncode == 2
    assert "0.1 MB" in said.stderr
    assert "--queries" in said.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"run.html", "few.html"}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("x.txt",), ".zip"),
        (("x.zip", "--html"), ".html"),
        (("--html", "--all"), "--all"),
        (("x.zip", "--queries", "0"), "queries"),
    ],
)
def test_wrong_use(run, tmp_path, words, what):
    said = plait("pack", str(run), *words, folder=tmp_path)
    assert said.returncode == 2
    assert what in said.stderr
    assert not any(tmp_path.iterdir())
