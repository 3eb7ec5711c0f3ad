"""What orchestration costs, as a table for the terminal and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.provenance import provenance_line
from benchmarks.results.table import ResultTable, markdown_page

HEAD = (
    *("sleep", "method", "records/s", "range", "ideal/wall"),
    *("CPU ms/record", "start-up s"),
)


def table_of(content: Mapping[str, Any]) -> ResultTable:
    """One row per sleep and method, of `about` and `summary` of a measurement."""
    about = content["about"]
    title = (
        f"{about['batches']} batches of {about['batch_size']} records, "
        f"{about['actors']} actors (the loop: none), median of {about['repeats']}"
    )
    return ResultTable.of(title, HEAD, map(_row, content["summary"]))


def _row(summary: Mapping[str, Any]) -> list[str]:
    low, high = summary["records_per_s_range"]
    sleep = summary["sleep_ms"]
    return [
        f"{sleep} ms",
        summary["method"],
        f"{summary['records_per_s']:,.0f}",
        f"{low:,.0f}-{high:,.0f}",
        f"{summary['ideal_over_wall']:.1%}" if sleep else "-",
        f"{summary['cpu_ms_per_record']:.2f}",
        f"{summary['startup_s']:.1f}",
    ]


def page_of(content: Mapping[str, Any]) -> str:
    """The table in Markdown, and how it was taken."""
    about = content["about"]
    remarks = (
        f"plait bench orchestration --batches {about['batches']}: a stage that sleeps; "
        "what is not sleep is overhead.",
        provenance_line(about),
    )
    return markdown_page("What orchestration costs", remarks, [table_of(content)])
