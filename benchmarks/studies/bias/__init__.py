"""Bias of judges, from the judgements of a run: `plait bias`."""

from __future__ import annotations

from benchmarks.studies.bias.report import bias, sections

__all__ = ["bias", "sections"]
