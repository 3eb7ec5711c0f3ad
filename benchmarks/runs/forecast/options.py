"""What `plan` and `run` are told about their forecast. None of it changes a result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from generators.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """Sources of rates, the machines it is for, and a budget."""

    rates: tuple[Path, ...] = ()
    """Files that `plait bench stage --out` wrote."""
    on: str | None = None
    """Machines such as 8xH100; by default this one."""
    budget_hours: float | None = None
    """GPU-hours where a stage takes a GPU, else hours of wall time."""
    trim: bool = False
    """Answer fewer queries rather than refuse."""

    def __post_init__(self) -> None:
        if self.budget_hours is not None and not self.budget_hours > 0:
            raise UsageError(
                f"--budget-hours {self.budget_hours:g} is not a valid budget: it must be "
                "more than 0"
            )
        if self.trim and self.budget_hours is None:
            raise UsageError("--trim needs --budget-hours, which it trims to")
