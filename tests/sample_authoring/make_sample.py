"""Writes the bundled sample set: `python -m sample_authoring.make_sample [FOLDER]`.

Words and drawings are this project's own (`tests/sample_authoring`); the photographs
are those that scikit-image and scikit-learn ship, so both must be installed. With the
same versions of Pillow and of these two, the folder comes out the same byte for byte.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from benchmarks.tasks.mmie.reader import SAMPLE
from sample_authoring import steps_learning, steps_living, steps_making
from sample_authoring.coding import coding
from sample_authoring.mathematics import mathematics
from sample_authoring.photos import PHOTOS, photo, source_of
from sample_authoring.physics import physics
from sample_authoring.query import Figure, Query
from sample_authoring.statistics import statistics
from sample_authoring.words import howtos, stories

_JPEG_QUALITY = 85

_HEAD = """\
# Where the pictures of the sample set come from

The queries and answers in `data.json` and all drawings (`.png`) are made for this
project by `tests/sample_authoring` and come under its licence, Apache-2.0. The
photographs (`.jpg`) are shipped by scikit-image and scikit-learn, where their terms are
stated. They have been made smaller, some have been cropped, and all are saved as JPEG.

## Photographs

"""


def queries() -> list[Query]:
    """All queries: situational analysis, project-based learning, multi-step reasoning."""
    modules = (steps_making, steps_learning, steps_living)
    drawn = {f.name.removesuffix(".png"): f for m in modules for f in m.drawings()}

    def find(name: str) -> Figure:
        return drawn[name] if name in drawn else photo(name)

    reasoned = [*mathematics(), *physics(), *coding(), *statistics()]
    return [*stories(find), *howtos(find), *reasoned]


def write(folder: Path) -> None:
    """Write `data.json`, `images/` and `ATTRIBUTION.md` into `folder`."""
    made = queries()
    figures = {f.name: f for q in made for f in q.figures}
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for figure in figures.values():
        _save(figure, folder / "images" / figure.name)
    rows = json.dumps([query.row() for query in made], indent=1, ensure_ascii=False)
    (folder / "data.json").write_text(rows + "\n", encoding="utf-8")
    (folder / "ATTRIBUTION.md").write_text(attribution(sorted(figures)), encoding="utf-8")


def _save(figure: Figure, path: Path) -> None:
    if path.suffix == ".jpg":
        figure.picture.save(path, "JPEG", quality=_JPEG_QUALITY, optimize=True)
    else:
        figure.picture.save(path, "PNG", optimize=True)


def attribution(names: list[str]) -> str:
    """Every picture of the sample set with its author, licence and source."""
    photographs = [n for n in names if n.endswith(".jpg")]
    drawings = [n for n in names if n.endswith(".png")]
    lines = [
        "| file | author | licence | source | changes |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in photographs:
        about = PHOTOS[source_of(name.removesuffix(".jpg"))]
        changes = "cropped, resized" if "-" in name else "resized"
        cells = (f"`{name}`", about.author, about.licence, about.source, changes)
        lines.append(f"| {' | '.join(cells)} |")
    drawn = ["", "## Drawings (this project, Apache-2.0)", ""]
    drawn += [f"- `{name}`" for name in drawings]
    return _HEAD + "\n".join([*lines, *drawn]) + "\n"


def main() -> None:
    """Write the sample set anew, by default where it is bundled."""
    if len(sys.argv) > 1:
        write(Path(sys.argv[1]))
        return
    shutil.rmtree(SAMPLE / "images", ignore_errors=True)
    write(SAMPLE)


if __name__ == "__main__":
    main()
