"""What a model wrote, as data."""

from __future__ import annotations

import json
import re
from typing import Any

_FENCED = re.compile(r"\s*```(?:json)?\s*(.*?)\s*```\s*", re.DOTALL)


def json_object(reply: str) -> dict[str, Any] | None:
    """Return the one JSON object that a reply is, alone or fenced; None for any other."""
    fenced = _FENCED.fullmatch(reply)
    try:
        content = json.loads(fenced[1] if fenced else reply)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
