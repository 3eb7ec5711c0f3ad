"""Rows with named columns, as whatever the reader works with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.wording import quantity
from plait.generators.extras import import_extra

if TYPE_CHECKING:
    import pandas
    import polars

_SHOWN = 10
"""Rows that a notebook shows."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Frame:
    """Rows with named columns: a data frame of pandas or polars, an Arrow table, or dicts.

    What reads Arrow's C stream (`pyarrow.table`, `polars.DataFrame`, DuckDB) takes it as
    it is.

    Examples:
        >>> scores = plait.open_run("runs/quickstart").scores
        >>> len(scores)
        72
        >>> scores.to_pylist()[0]["scorer"]
        'clipscore'
        >>> frame = scores.to_pandas()
        >>> frame.groupby(["scorer", "system"])["value"].mean().round(2).unstack()
        system       anole  qwen2-vl-7b+openjourney@outline      gt
        scorer
        clipscore     1.87                             1.93    1.92
        truth:match  96.19                           100.00  100.00
    """

    arrow: pa.Table

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns."""
        return tuple(self.arrow.column_names)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame of pandas; UsageError where that is not installed.

        Names are categories; a value that is not there is NaN.
        """
        import_extra("pandas", "to_pandas()")
        return self.arrow.to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return a data frame of polars; UsageError where that is not installed."""
        return import_extra("polars", "to_polars()").from_arrow(self.arrow)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return one dictionary per row; None for a value that is not there."""
        rows: list[dict[str, Any]] = self.arrow.to_pylist()
        return rows

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.arrow.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def _repr_html_(self) -> str:
        """The first rows."""
        rows = []
        for row in self.arrow.slice(0, _SHOWN).to_pylist():
            rows.append([_text(value) for value in row.values()])
        left = len(self) - len(rows)
        notes = [f"{left:,} more rows"] if left else []
        return ResultTable.of(quantity(len(self), "row"), self.columns, rows, notes).html

    def __repr__(self) -> str:
        return f"Frame({quantity(len(self), 'row')}: {', '.join(self.columns)})"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
