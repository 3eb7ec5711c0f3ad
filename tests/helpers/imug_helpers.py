"""IMUG-Bench's layout with one crafted session, and what its program made of it.

`UPSTREAM` holds what the functions of scripts/auxiliary of ccccEsion/IMUG-Bench@63de63a
return: of letters, of replies, of the session's requests by which images were drawn, and
of records to be summed up; recorded once, by running them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from picture_helpers import flat

UPSTREAM: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data/imug_upstream.json").read_text()
)
ROW: dict[str, Any] = UPSTREAM["row"]
_KEY = {name: ROW[name] for name in ("domain", "subdomain", "sample_id")}
PLANT = flat()


def write_imug(root: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    """A data set of these rows, of the crafted one by default; all have its references."""
    (root / "images").mkdir(parents=True)
    (root / "images/plant.png").write_bytes(PLANT)
    links = {**_KEY, "reference_links": UPSTREAM["links"]}
    files = {
        "benchmark": [ROW] if rows is None else rows,
        "image_references": [links],
        "dynamic_references": [{**_KEY, **one} for one in UPSTREAM["dynamic"]],
    }
    for name, lines in files.items():
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (root / f"{name}.jsonl").write_text(text)
    return root
