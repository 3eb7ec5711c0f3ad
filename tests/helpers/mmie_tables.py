"""The printed results of the MMIE paper (Xia et al. 2024, arXiv:2410.10139), in percent.

Each row: model, situational analysis, project-based learning, multi-step reasoning, AVG.
The paper prints one reasoning score per language model of Tables 4 and 8, which counts
for all its rows: reasoning is answered without images. LLaVA's is over the queries with
a single image; the others are skipped.
"""

from __future__ import annotations

from typing import NamedTuple


class Printed(NamedTuple):
    """One row of a table."""

    model: str
    sa: float
    pbl: float
    msr: float
    avg: float


TABLE_3 = [
    Printed("MiniGPT-5", 47.63, 55.12, 42.17, 50.92),
    Printed("EMU-2", 39.65, 46.12, 50.75, 45.33),
    Printed("GILL", 46.72, 57.57, 39.33, 51.58),
    Printed("Anole", 48.95, 59.05, 51.72, 55.22),
]
"""Interleaved models, full set."""

TABLE_4 = [
    Printed("GPT-4o+Openjourney", 53.05, 71.40, 53.67, 63.65),
    Printed("GPT-4o+SD-3", 53.00, 71.20, 53.67, 63.52),
    Printed("GPT-4o+SD-XL", 56.12, 73.25, 53.67, 65.47),
    Printed("GPT-4o+Flux", 54.97, 68.80, 53.67, 62.63),
    Printed("Gemini-1.5+Openjourney", 48.08, 67.93, 60.05, 61.57),
    Printed("Gemini-1.5+SD-3", 47.48, 68.70, 60.05, 61.87),
    Printed("Gemini-1.5+SD-XL", 49.43, 71.85, 60.05, 64.15),
    Printed("Gemini-1.5+Flux", 47.07, 68.33, 60.05, 61.55),
    Printed("LLaVA-34b+Openjourney", 54.12, 73.47, 47.28, 63.93),
    Printed("LLaVA-34b+SD-3", 54.72, 72.55, 47.28, 63.57),
    Printed("LLaVA-34b+SD-XL", 55.97, 74.60, 47.28, 65.05),
    Printed("LLaVA-34b+Flux", 54.23, 71.32, 47.28, 62.73),
    Printed("Qwen2-VL-72b+Openjourney", 52.73, 71.63, 55.63, 64.05),
    Printed("Qwen2-VL-72b+SD-3", 54.98, 71.87, 55.63, 64.75),
    Printed("Qwen2-VL-72b+SD-XL", 52.58, 73.57, 55.63, 65.12),
    Printed("Qwen2-VL-72b+Flux", 54.23, 69.47, 55.63, 63.18),
]
"""Language models with text-to-image models, full set."""
