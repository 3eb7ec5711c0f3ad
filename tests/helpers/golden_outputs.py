"""What every command that reads a run says of the recorded runs in `tests/golden/runs`.

python tests/helpers/golden_outputs.py [NAME]...            what differs from what was said
python tests/helpers/golden_outputs.py [NAME]... --accept   write it as what is to be said
python tests/helpers/golden_outputs.py [NAME]... --moved    the same of runs that were moved
python tests/helpers/golden_outputs.py [NAME]... --packed   the same of runs as one file
python tests/helpers/golden_outputs.py [NAME]... --locked   and that cannot be written

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
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import matplotlib
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from bare_reader import same_tokens
from cli_helpers import plait
from golden_runs import CORPUS, HERE, RUNS, forget_outputs, stand_in_rubrics
from judging_helpers import stand_in_digests
from paths import HELPERS, SOURCE, TESTS
from PIL import Image as Pillow

from plait import api
from plait.benchmarks.results.table import plain
from plait.benchmarks.runs.exports import FORMATS
from plait.benchmarks.runs.run_data import RunData

EXPECTED = TESTS / "golden" / "expected"
_WIDE = "1000"
"""Columns of the terminal: lines are not wrapped by the length of a path."""
_NOT_OUTPUTS = ("stages", "data", "cache", "compare", "results", "manifest.json")
_TRAVELS = ("run", "other", "annotate", "ratings.csv")
"""What is copied when a run is moved: runs, and what raters gave."""
_INTO_THE_RUN = ("report", "bias", "compare", "bench")
"""Commands that write into the run's folder unless they are told where with `--out`."""
_ASKING = "benchmarks/studies/compare.py"
"""May ask for a user's judge, and goes on without one that is not there."""
_PRINTED = "-printed"
"""Ends the labels of commands of a locked run that are not told where to write."""
_NOT_OF_PACKS = ("/verify.txt:", "-compare", "/compare-")
"""What is other of a pack: `verify` checks its files, and nothing can be compared in it."""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+)(?![\w.])")
_LONG = re.compile(r"(?<![\w.])-?\d+\.\d{9,}(?:[eE][+-]?\d+)?(?![\w.])")
"""Numbers in full, whose last digits differ between machines."""
_ROUNDING = 1e-12
_IMAGE = re.compile(r"data:image/[a-z]+;base64,([A-Za-z0-9+/=]+)")
_MANIFEST = re.compile(r'<pre class="raw">.*?</pre>', re.DOTALL)
_DRAWN = re.compile(r"<(style|script|svg)\b.*?</\1>", re.DOTALL)
_LEFT_OUT = (
    (re.compile(r"^Time: .*\n(Workers held .*\n)?", re.MULTILINE), ""),
    (re.compile(r"<p>Time: .*?</p>", re.DOTALL), ""),
    (re.compile(r"\b(in|of) \d+(\.\d+)? s\b"), r"\1 * s"),
    # The prompts of a query are remembered with the first file that held its image.
    (re.compile(r"\(image /\S*/(data|cache)/"), rf"(image {HERE}/\1/"),
    # Said where that takes more than five seconds.
    (re.compile(r"^Matplotlib is building the font cache.*\n", re.MULTILINE), ""),
    (re.compile(r'("retrieved_timestamp": "|"evaluation_id": "[^"]*/)\d+"'), r'\1*"'),
)
_ROUNDED = (".json", ".jsonl", ".csv", ".js", ".parquet")
_IMAGES = (".png", ".webp", ".jpg")
_SHOWN_AS = {".parquet": ".jsonl", **dict.fromkeys(_IMAGES, ".txt")}
"""What is added to the names of files that are no text."""


@stand_in_rubrics()
@same_tokens()
def outputs(name: str, folder: Path) -> dict[str, str]:
    """What commands say of a copy, in `folder`, of the run `name`: texts by file name."""
    _copy_run(name, folder)
    recorded, places = _contents(folder), {folder: HERE}
    run = api.open_run(folder / "run")
    found = {"open_run.jsonl": _rounded(_lines(run.table.arrow))}
    about = {"COLUMNS": _WIDE, "XDG_CACHE_HOME": str(folder / "cache")}
    for label, words in (*_commands(run), *_own_commands(name)):
        done = plait(*_words_in(folder, words), **about)
        said = f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
        found[f"{label}.txt"] = _rounded(_without(said, places), _LONG)
    found["changed_records.txt"] = _changed(folder, recorded)
    return found | _written(folder, recorded, places)


@stand_in_rubrics()
def moved_differences(
    name: str, folder: Path, *, locked: bool = False, packed: bool = False
) -> list[str]:
    """Return what differs once the run `name` was reported and then moved in `folder`.

    Without its data, and without models' libraries and modules: who asks for one is named.
    A `locked` run cannot be written: commands that write into its folder are told another
    place, and where they are told none they still print what they print. So for one that
    was `packed` into a file, which is read in the run's place.
    """
    made, moved = folder / "made", folder / "moved"
    _copy_run(name, made)
    run = api.open_run(made / "run")
    commands = dict([*_commands(run), *_own_commands(name)])
    writing = {k: words for k, words in commands.items() if words[0] in _INTO_THE_RUN}
    if locked or packed:
        for label, words in writing.items():
            commands[f"{label}{_PRINTED}"] = words
            commands[label] = (*words, "--out", f"{HERE}/out/run")
    if packed:
        asked = (
            (label, words) for label, words in commands.items() if words[0] != "compare"
        )
        commands = {label: _of_packs(words) for label, words in asked}
    _move(made, moved, packed=packed)
    recorded = _contents(moved)
    said, asked_for = _read_bare(moved, commands, locked=locked)
    places = {moved: HERE, made: HERE}
    for root in ("run", "other") if packed else ():
        places = {moved / f"{root}.zip": f"{HERE}/{root}"} | places
    if locked or packed:
        places = {moved / "out" / "run": f"{HERE}/run"} | places
    found = {
        f"{label}.txt": _rounded(_without(text, places), _LONG)
        for label, text in said.items()
    }
    table = moved / "out" / "open_run.parquet"
    if table.exists():
        found["open_run.jsonl"] = _rounded(_lines(pq.read_table(table)))
        table.unlink()
    found |= _written(moved, recorded, places)
    accepted = found["changed_records.txt"] = _accepted(name, "changed_records.txt")
    may_change = [] if locked or packed else accepted.splitlines()
    changed = _changed(moved, recorded).splitlines()
    lines = [
        f"{name} asks for {module}: {who}"
        for module, who in asked_for.items()
        if _ASKING not in who
    ]
    lines += [f"{name}: {file} was changed" for file in changed if file not in may_change]
    lines += _unprinted(name, found)
    if not packed:
        return lines + differences(name, found)
    lines += differences(name, found, _as_packed)
    return [line for line in lines if not any(words in line for words in _NOT_OF_PACKS)]


def _copy_run(name: str, folder: Path) -> None:
    shutil.copytree(RUNS / name, folder, dirs_exist_ok=True)
    for manifest in folder.rglob("manifest.json"):
        manifest.write_text(manifest.read_text().replace(HERE, str(folder)))


def _as_packed(text: str) -> str:
    """The text without what a pack leaves out: the folder of a run, and settings."""
    return _MANIFEST.sub("", text).replace(f"{HERE}/", "")


def _of_packs(words: Sequence[str]) -> list[str]:
    runs = {f"{HERE}/{root}": f"{HERE}/{root}.zip" for root in ("run", "other")}
    return [runs.get(word, word) for word in words]


def _move(made: Path, moved: Path, *, packed: bool = False) -> None:
    """Report the runs in `made` once, and leave of that folder only what travels."""
    moved.mkdir()
    for root in filter(Path.is_dir, (made / "run", made / "other")):
        plait("report", str(root), XDG_CACHE_HOME=str(made / "cache"))
        forget_outputs(root)
    for part in filter(Path.exists, (made / name for name in _TRAVELS)):
        if packed and part.name in ("run", "other"):
            file = str(moved / f"{part.name}.zip")
            done = plait("pack", str(part), file, XDG_CACHE_HOME=str(made / "cache"))
            assert not done.returncode, done.stderr
        elif part.is_dir():
            shutil.copytree(part, moved / part.name, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(part, moved / part.name)
    shutil.rmtree(made)


def _read_bare(
    folder: Path, commands: Mapping[str, Sequence[str]], *, locked: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """What `commands` print, by label, in a process of `bare_reader.py`.

    And who of plait asks first, by each module that is absent there.
    """
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for home in ("home", "here"):
            (place / home).mkdir()
        env = {"COLUMNS": _WIDE, "XDG_CACHE_HOME": str(folder / "cache")}
        asked = {
            "run": str(next(folder.glob("run*"))),
            "table": str(folder / "out" / "open_run.parquet"),
            "commands": {k: _words_in(folder, words) for k, words in commands.items()},
            "locked": [str(folder / "run"), str(folder / "other")] if locked else [],
            "rubrics": stand_in_digests(),
            "env": env,
        }
        (place / "asked.json").write_text(json.dumps(asked))
        files = (str(place / "asked.json"), str(place / "answer.json"))
        own = {"PYTHONPATH": str(SOURCE), "HOME": str(place / "home")}
        own["MPLCONFIGDIR"] = matplotlib.get_cachedir()  # a list of fonts takes seconds
        done = subprocess.run(
            [sys.executable, str(HELPERS / "bare_reader.py"), *files],
            cwd=place / "here",
            env=os.environ | own,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode, done.stderr
        answer = json.loads((place / "answer.json").read_text())
    return answer["said"], answer["asked_for"]


def _unprinted(name: str, found: dict[str, str]) -> Iterator[str]:
    """Take from `found` what was printed where nothing could be written; what is missing.

    The tables are to come before the error, which names what to do.
    """
    for label in [label for label in found if label.endswith(f"{_PRINTED}.txt")]:
        now = found.pop(label)
        before = _accepted(name, label.replace(_PRINTED, "")).partition("\n")[2]
        tables = before[: before.index(f" {HERE}/run/")].rpartition("\n")[0]
        if tables not in now or "--out" not in now or now.startswith("exit status 0"):
            yield f"{name}/{label}: {now[:160]!r}"


def _accepted(name: str, file: str) -> str:
    return (EXPECTED / name / file).read_bytes().decode()


def _words_in(folder: Path, words: Sequence[str]) -> list[str]:
    return [word.replace(HERE, str(folder)) for word in words]


def _changed(folder: Path, recorded: Mapping[Path, bytes]) -> str:
    """The files of `recorded` that are not as they were, one a line."""
    after = _contents(folder)
    changed = (below for below, data in recorded.items() if after.get(below) != data)
    return "".join(f"{below}\n" for below in changed)


def _written(
    folder: Path, recorded: Collection[Path], places: Mapping[Path, str]
) -> dict[str, str]:
    """Texts of the files that are new since those of `recorded`, where each was to be."""
    found = {}
    for below in _contents(folder).keys() - recorded:
        if not set(below.parts) & set(_NOT_OUTPUTS):
            shown = f"{folder / below}{_SHOWN_AS.get(below.suffix, '')}"
            name = _without(shown, places).removeprefix(f"{HERE}/")
            found[name] = _without(_text(folder / below), places)
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
    yield "agreement", ("agreement", root, "--all", "--out", f"{out}/agreement.json")
    yield "diff-itself", ("diff", root, root, "--out", f"{out}/diff-itself.json")
    yield "verify", ("verify", root)
    yield "cite", ("cite", root)
    yield "annotate", ("annotate", root, "--items", "4", "--out", f"{out}/annotate")
    for query in dict.fromkeys(q.sample.id for q in run.queries.values()):
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


def _without(text: str, places: Mapping[Path, str]) -> str:
    """The text without durations, and with what stands for them in place of `places`."""
    for place, instead in places.items():
        # Markdown escapes a name that begins or ends with underscores.
        for spelling in (str(place), plain(str(place))):
            text = text.replace(spelling, instead)
    for pattern, instead in _LEFT_OUT:
        text = pattern.sub(instead, text)
    return text


def differences(
    name: str, found: Mapping[str, str], change: Callable[[str], str] = str
) -> list[str]:
    """Return a line for each place where outputs of the run `name` are not the accepted.

    As `change` returns both.
    """
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
            lines += _line_differences(place, change(accepted), change(found[file]))
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
        was, is_now = before[start : column + 80], now[start : column + 80]
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
    moved: Annotated[bool, typer.Option("--moved", help="Once they were moved.")] = False,
    locked: Annotated[
        bool, typer.Option("--locked", help="Moved, and not to be written to.")
    ] = False,
    packed: Annotated[bool, typer.Option("--packed", help="As one file.")] = False,
) -> None:
    """Say what differs of all runs or those that are named; exit status 1 if any does."""
    total = 0
    with tempfile.TemporaryDirectory() as place:
        for name in names or CORPUS:
            folder = Path(place) / name
            if moved or locked or packed:
                lines = moved_differences(name, folder, locked=locked, packed=packed)
            else:
                found = outputs(name, folder)
                lines = differences(name, found)
            total += len(lines)
            print(*lines, sep="\n", end="\n" if lines else "")
            if accepted and not (moved or locked or packed):
                accept(name, found)
    print(f"{total} differences" + (", accepted" if accepted and total else ""))
    raise typer.Exit(int(bool(total) and not accepted))


if __name__ == "__main__":
    typer.run(main)
