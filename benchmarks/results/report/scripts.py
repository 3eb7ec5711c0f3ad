"""The data files of a page: pages opened from disk may load scripts but may not fetch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from generators.files import write_whole


def write_script(folder: Path, name: str, rows: Any) -> str:
    """Write the data file `name`; its name."""
    write_whole(folder / name, as_script(name, rows), durable=False)
    return name


def as_script(name: str, rows: Any) -> str:
    """A script that hands the page the `rows` of the data file `name`.

    Everything outside ASCII is escaped, and so is `<`: no text can end the script or be
    read as markup.
    """
    texts = (json.dumps(a, separators=(",", ":"), allow_nan=False) for a in (name, rows))
    return f"plait({','.join(texts)});\n".replace("<", "\\u003c")
