"""Coefficients of agreement on plain lists."""

from __future__ import annotations

import numpy as np

from scorers.statistics.agreement import COEFFICIENTS


def plain(name: str, x, y) -> float:
    x, y = np.array(x, dtype=float), np.array(y, dtype=float)
    return float(COEFFICIENTS[name].function(x, y, np.ones((1, len(x))))[0])
