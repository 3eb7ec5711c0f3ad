"""`plait list systems`: what it says of each system, and nothing that is not known."""

from __future__ import annotations

import io
import re

import pytest
from paths import CHECKOUT
from rich.console import Console

from plait import listing
from plait.generators.catalogue import Named, by_name, entries


def rows() -> dict[str, list[str]]:
    """By name, the last cells of each row: those of `_COLUMNS`."""
    return {
        f"{table.title}|{row[0].text}": [cell.text for cell in row]
        for table in listing._systems()
        for row in table.rows
    }


@pytest.mark.parametrize(
    ("row", "about"),
    [
        ("anole", ["7.15 B", "Chameleon Research License", "yes", "at most 3", "authors"]),
        ("bagel-7b-mot", ["14.7 B", "Apache-2.0", "no", "at most 1", "authors"]),
        ("emu2", ["76.7 B", "non-commercial", "no", "at most 1", "authors"]),
        ("janus-pro-1b", ["2.08 B", "DeepSeek", "no", "at most 1", "transformers"]),
        ("sensenova-u1", ["16 B", "Apache-2.0", "yes", "any number", "-"]),
        ("bagel", ["14 B", "Apache-2.0", "no", "1", "-"]),
        ("hunyuan-image-3", ["80 B", "Tencent", "no", "1", "-"]),
        ("qwen2-vl-7b", ["8.29 B", "Apache-2.0", "no", "0", "transformers"]),
        ("gpt-6.1-sol", ["not stated", "not published", "no", "0", "-"]),
        ("glm-image", ["16 B", "MIT", "no", "1, or as marked", "diffusers"]),
        ("flux", ["16.9 B", "Non-Commercial", "no", "1, or as marked", "diffusers"]),
    ],
)
def test_what_is_known_of_a_system_is_shown(row: str, about: list[str]) -> None:
    (shown,) = (cells[-5:] for name, cells in rows().items() if name.endswith(f"|{row}"))
    assert all(part in cell for part, cell in zip(about, shown, strict=True)), shown


def test_every_system_is_listed_and_every_comparison_exists() -> None:
    names = {name.rpartition("|")[2] for name in rows()}
    kinds = (Named.NATIVE, Named.SERVED, Named.LVLM, Named.T2I)
    assert names >= {name for kind in kinds for name in by_name(kind)}
    for entry in entries(Named.NATIVE, Named.LVLM, Named.T2I):
        for file in re.findall(r"\((\S+\.py)\)", entry.facts.compared or ""):
            assert (CHECKOUT / file).is_file(), file
            assert any(file in line for line in listing._places())
    said = io.StringIO()
    assert listing.show("systems", Console(file=said, width=80)) == 0
    lines = said.getvalue().splitlines()
    assert names <= {line.strip().split("  ")[0] for line in lines}
    assert max(map(len, lines)) <= 80
    words = {word for row in rows().values() for cell in row for word in cell.split()}
    assert words <= {*said.getvalue().split()}, "none is broken"


def test_licences_are_stated() -> None:
    for name, cells in rows().items():
        if not name.startswith("Other models"):
            assert cells[-4] not in ("", "?", "not stated"), name
