"""What `make bench` writes beside the files of its measurements."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance_line
from benchmarks.runs.run_directory import read_manifest
from benchmarks.speed.reporting.tables import markdown_table, number

FIGURES = (
    "request_throughput",
    "image_throughput",
    "output_token_throughput",
    "request_latency",
    "time_to_first_token",
    "inter_token_latency",
    "denoise_step_latency",
)
"""Shown in the summary: a value, or the median of a distribution."""


def summary(out: Path, names: Sequence[str]) -> str:
    """The main figures of those of the measurements `names` whose pages are in a folder."""
    lines = [
        "# Measured speeds",
        "",
        "Written by `make bench`. Each file names its command, its versions and its "
        "machine; random weights (`tiny`) and `mini` weights are far smaller than the "
        "published models of these names, so the figures say how fast plait is around a "
        "model and not how fast the models are. *upstream* is the original program's loop "
        "around the same weights, one query at a time.",
    ]
    for name in names:
        page = out / f"{name}.md"
        if page.exists():
            lines += ["", f"## [{name}]({page.name})", ""]
            lines += _section(out / f"{name}.json", page)
    others = sorted(p for p in out.glob("*.md") if p.stem not in (*names, "summary"))
    if others:
        links = ", ".join(f"[{page.stem}]({page.name})" for page in others)
        lines += ["", f"Measured apart, by commands that the pages name: {links}."]
    return "\n".join(lines) + "\n"


def _section(file: Path, page: Path) -> list[str]:
    data = json.loads(file.read_text()) if file.exists() else {}
    if "speeds" not in data:
        return _titled_table(page.read_text())
    speeds, about = data["speeds"], data["about"]
    names = [n for n in FIGURES if any(n in speed["figures"] for speed in speeds)]
    beside = any(speed.get("ratio") for speed in speeds)
    head = ["way", *(_headed(n, speeds) for n in names)]
    rows = [[s["way"], *(_shown(s["figures"].get(n)) for n in names)] for s in speeds]
    if beside:
        head += [f"times {speeds[0]['way']}", "same answers"]
        for row, speed in zip(rows, speeds, strict=True):
            ratio, same = speed.get("ratio"), speed.get("same_answers")
            row += [f"{ratio:.2f}" if ratio else "–"]
            row += ["–" if same is None else f"{same} of {speed['records']}"]
    table = markdown_table([head, *rows])
    return [f"{about['measured']}; {about['device']}", "", *table]


def _headed(name: str, speeds: Sequence[Mapping[str, Any]]) -> str:
    figure = next(s["figures"][name] for s in speeds if name in s["figures"])
    median = "median, " if "median" in figure else ""
    return f"{name} ({median}{figure['unit']})"


def _shown(figure: Mapping[str, Any] | None) -> str:
    return "–" if figure is None else number(figure.get("median", figure.get("value")))


def _titled_table(page: str) -> list[str]:
    """Title and lines of a page's first table, or of that of costs; none without tables.

    Pairings begin with scores, which are not speeds.
    """
    title, tables = "", dict[str, list[str]]()
    for of_table, lines in groupby(page.splitlines(), lambda line: line.startswith("|")):
        if of_table:
            tables.setdefault(title, list(lines))
        else:
            for heading in (line for line in lines if line.startswith("#")):
                title = heading.lstrip("# ")
    if not tables:
        return []
    title = next((t for t in tables if t.startswith("Cost ")), next(iter(tables)))
    return [title, "", *tables[title]]


def pairings_pages(root: Path) -> dict[str, str]:
    """Pairings of the run directory `root` by form; the page says where they are from."""
    manifest = read_manifest(root)
    head, _, rest = (root / "pairings.md").read_text().partition("\n")
    begun = f"`plait bench pairings`, begun {manifest['started']}."
    origin = f"{begun} {provenance_line(manifest)}"
    return {
        "json": (root / "pairings.json").read_text(),
        "md": f"{head}\n\n{origin}\n{rest}",
    }
