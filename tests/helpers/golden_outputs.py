"""What every command that reads a run says of the recorded runs in `tests/golden/runs`.

python tests/helpers/golden_outputs.py [NAME]...            what differs from what was said
python tests/helpers/golden_outputs.py [NAME]... --accept   write it as what is to be said

Numbers of JSON and CSV, and those that are printed in full, are rounded to 9 significant
digits; images stand as a digest of their pixels, Parquet as lines of JSON. Left out are
styles, scripts and drawings of pages, the place of the folder, and when and how long a
command read. All else is kept byte for byte, recorded durations too.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, zip_longest
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from cli_helpers import plait
from golden_runs import CORPUS, HERE, RUNS, stand_in_rubrics
from paths import TESTS
from PIL import Image as Pillow

from benchmarks import api
from benchmarks.runs.exports import FORMATS
from benchmarks.runs.run_data import RunData

EXPECTED = TESTS / "golden" / "expected"
_WIDE = "1000"
"""Columns of the terminal: lines are not wrapped by the length of a path."""
_NOT_OUTPUTS = ("stages", "data", "cache", "compare", "manifest.json")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+)(?![\w.])")
_LONG = re.compile(r"(?<![\w.])-?\d+\.\d{9,}(?:[eE][+-]?\d+)?(?![\w.])")
"""Numbers in full, whose last digits differ between machines."""
_ROUNDING = 1e-12
_IMAGE = re.compile(r"data:image/[a-z]+;base64,([A-Za-z0-9+/=]+)")
_DRAWN = re.compile(r"<(style|script|svg)\b.*?</\1>", re.DOTALL)
_LEFT_OUT = (
    (re.compile(r"^Time: .*\n(Workers held .*\n)?", re.MULTILINE), ""),
    (re.compile(r"<p>Time: .*?</p>", re.DOTALL), ""),
    (re.compile(r"\b(in|of) \d+(\.\d+)? s\b"), r"\1 * s"),
    # The prompts of a query are remembered with the first file that held its image.
    (re.compile(r"\(image /\S*/(data|cache)/"), rf"(image {HERE}/\1/"),
    (re.compile(r'("retrieved_timestamp": "|"evaluation_id": "[^"]*/)\d+"'), r'\1*"'),
)
_ROUNDED = (".json", ".jsonl", ".csv", ".js", ".parquet")
_IMAGES = (".png", ".webp", ".jpg")
_SHOWN_AS = {".parquet": ".jsonl", **dict.fromkeys(_IMAGES, ".txt")}
"""What is added to the names of files that are no text."""


@contextmanager
def _same_tokens() -> Iterator[None]:
    """Within it, what is drawn at random to name items for raters is counted instead."""
    numbers = count(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_hex", lambda size: f"{next(numbers):0{2 * size}x}")
        yield


@stand_in_rubrics()
@_same_tokens()
def outputs(name: str, folder: Path) -> dict[str, str]:
    """What commands say of a copy, in `folder`, of the run `name`: texts by file name."""
    shutil.copytree(RUNS / name, folder, dirs_exist_ok=True)
    for manifest in folder.rglob("manifest.json"):
        manifest.write_text(manifest.read_text().replace(HERE, str(folder)))
    recorded = _contents(folder)
    found = {}
    run = api.open_run(folder / "run")
    found["open_run.jsonl"] = _rounded(_lines(run.table))
    about = {"COLUMNS": _WIDE, "XDG_CACHE_HOME": str(folder / "cache")}
    for label, words in (*_commands(run), *_own_commands(name)):
        own = [word.replace(HERE, str(folder)) for word in words]
        done = plait(*own, **about)
        said = f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
        found[f"{label}.txt"] = _rounded(_without(said, folder), _LONG)
    after = _contents(folder)
    changed = (below for below, data in recorded.items() if after.get(below) != data)
    found["changed_records.txt"] = "".join(f"{below}\n" for below in changed)
    for below in after.keys() - recorded.keys():
        if not set(below.parts) & set(_NOT_OUTPUTS):
            name_of = str(below) + _SHOWN_AS.get(below.suffix, "")
            found[name_of] = _without(_text(folder / below), folder)
    return found


def _contents(folder: Path) -> dict[Path, bytes]:
    """The files below `folder`, by their paths from there."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder): path.read_bytes() for path in files}


def _commands(run: RunData) -> Iterator[tuple[str, Sequence[str]]]:
    """Return what reads every run, each with the name of the file of what it prints."""
    root = f"{HERE}/run"
    out = f"{HERE}/out"
    yield "report", ("report", root, "--queries", "all")
    yield "leaderboard", ("leaderboard", root, "--out", f"{out}/leaderboard")
    yield "bias", ("bias", root)
    yield "agreement", ("agreement", root, "--out", f"{out}/agreement.json")
    yield "diff-itself", ("diff", root, root, "--out", f"{out}/diff-itself.json")
    yield "verify", ("verify", root)
    yield "annotate", ("annotate", root, "--items", "4", "--out", f"{out}/annotate")
    for query in dict.fromkeys(sample.id for sample in run.experiment.samples):
        yield f"show-{_file_name(query)}", ("show", root, query)
    for number, system in enumerate(run.systems):
        for form in FORMATS:
            label = f"export-{number}-{form}"
            asked = ("--system", system, "--format", form, "--out", f"{out}/{label}")
            yield label, ("export", root, *asked)


def _own_commands(name: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Return what reads the run `name` alone."""
    for number, words in enumerate(CORPUS[name].reads):
        yield f"own-{number}-{words[0]}", words


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.+-]", "_", text)


def _text(path: Path) -> str:
    """What a file holds, as text to be compared."""
    data = path.read_bytes()
    if path.suffix == ".parquet":
        text = _lines(pq.read_table(path))
    elif path.suffix in _IMAGES:
        text = _pixels(data)
    else:
        text = data.decode()
    if path.suffix in _ROUNDED:
        text = _rounded(text)
    if path.suffix == ".html":
        text = _DRAWN.sub(r"<\1/>", text)
    return _IMAGE.sub(lambda image: _pixels(base64.b64decode(image[1])), text)


def _rounded(text: str, numbers: re.Pattern[str] = _NUMBER) -> str:
    """The text with its `numbers`, by default all but integers, to 9 significant digits.

    What is left of 0 by rounding differs between machines, and is 0.
    """

    def shown(number: re.Match[str]) -> str:
        value = float(number[0])
        return f"{value if abs(value) > _ROUNDING else 0:.9g}"

    return numbers.sub(shown, text)


def _lines(table: pa.Table) -> str:
    """The rows of a table, one line of JSON each."""
    rows = table.to_pylist()
    return "".join(f"{json.dumps(_plain(row), ensure_ascii=False)}\n" for row in rows)


def _plain(value: Any) -> Any:
    """A row of a table with digests of pixels in place of encoded images."""
    if isinstance(value, bytes):
        return _pixels(value)
    if isinstance(value, Mapping):
        return {name: _plain(own) for name, own in value.items()}
    if isinstance(value, list):
        return [_plain(own) for own in value]
    return value


def _pixels(data: bytes) -> str:
    with Pillow.open(io.BytesIO(data)) as image:
        digest = hashlib.sha256(image.convert("RGBA").tobytes()).hexdigest()
        return f"[{image.format} {image.width}x{image.height} {digest[:16]}]"


def _without(text: str, folder: Path) -> str:
    """The text without durations and the place of the folder."""
    text = text.replace(str(folder), HERE)
    for pattern, instead in _LEFT_OUT:
        text = pattern.sub(instead, text)
    return text


def differences(name: str, found: Mapping[str, str]) -> list[str]:
    """Return a line for each place where outputs of the run `name` are not the accepted."""
    root = EXPECTED / name
    files = {str(p.relative_to(root)): p for p in root.rglob("*") if p.is_file()}
    lines = []
    for file in sorted(files.keys() | found.keys()):
        place = f"{name}/{file}"
        if file not in found:
            lines.append(f"{place}: no longer written")
        elif file not in files:
            lines.append(f"{place}: new")
        else:
            accepted = files[file].read_bytes().decode()
            lines += _line_differences(place, accepted, found[file])
    return lines


def _line_differences(place: str, accepted: str, found: str) -> Iterator[str]:
    pairs = zip_longest(accepted.split("\n"), found.split("\n"))
    for number, (before, now) in enumerate(pairs, start=1):
        if before == now:
            continue
        if before is None or now is None:
            yield f"{place}:{number}: {'lines are gone' if now is None else 'more lines'}"
            return
        column = next(
            (i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b),
            min(len(before), len(now)),
        )
        start = max(0, column - 40)
        was, is_now = before[start : column + 40], now[start : column + 40]
        yield f"{place}:{number}:{column + 1}: {was!r} is now {is_now!r}"


def accept(name: str, found: Mapping[str, str]) -> None:
    """Write the outputs of the run `name` as the accepted ones."""
    shutil.rmtree(EXPECTED / name, ignore_errors=True)
    for file, text in found.items():
        path = EXPECTED / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...")] = None,
    accepted: Annotated[bool, typer.Option("--accept", help="Write them anew.")] = False,
) -> None:
    """Say what differs of all runs or those that are named; exit status 1 if any does."""
    total = 0
    with tempfile.TemporaryDirectory() as place:
        for name in names or CORPUS:
            found = outputs(name, Path(place) / name)
            lines = differences(name, found)
            total += len(lines)
            print(*lines, sep="\n", end="\n" if lines else "")
            if accepted:
                accept(name, found)
    print(f"{total} differences" + (", accepted" if accepted and total else ""))
    raise typer.Exit(int(bool(total) and not accepted))


if __name__ == "__main__":
    typer.run(main)
