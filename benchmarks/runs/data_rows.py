"""Rows of values that a notebook shows, and that pandas takes where it is installed."""

from __future__ import annotations

from collections import UserList
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.results.table import ResultTable
from generators.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHOWN = 20


class DataRows(UserList[dict[str, Any]]):
    """A list of dicts, all with the same keys."""

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        super().__init__(list(rows))

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`; UsageError where pandas is not installed."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            text = "pandas is not installed; add it with `pip install pandas`"
            raise UsageError(text) from None
        return pandas.DataFrame(self.data)

    def _repr_html_(self) -> str:
        return self._table.html

    @property
    def _table(self) -> ResultTable:
        head = list(self.data[0]) if self.data else []
        rows = [
            ["" if v is None else str(v) for v in row.values()]
            for row in self.data[:_SHOWN]
        ]
        hidden = len(self.data) - len(rows)
        more = [f"and {hidden:,} more rows"] if hidden else []
        return ResultTable.of(f"{len(self.data):,} rows", head, rows, more)
