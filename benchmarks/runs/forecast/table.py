"""A forecast as a table and as lines of text."""

from __future__ import annotations

from benchmarks.durations import in_words
from benchmarks.results.table import ResultTable
from benchmarks.runs.forecast.forecast import Forecast, StageForecast
from benchmarks.runs.forecast.rates import FigureRange, Origin

_HEAD = (
    *("stage", "records", "s each", "load s", "workers", "tokens in", "tokens out"),
    *("disk", "cost", "from"),
)


def forecast_table(forecast: Forecast) -> ResultTable:
    """One row per stage with work; the totals and what is not known below."""
    rows = [_row(stage) for stage in forecast.stages]
    return ResultTable.of(
        f"Forecast for {forecast.machine}", _HEAD, rows, forecast_notes(forecast)
    )


def forecast_notes(forecast: Forecast) -> list[str]:
    """The totals, what is not known, and remarks."""
    notes = [headline(forecast)]
    if forecast.missing:
        notes.append(f"not known, so not counted: {', '.join(forecast.missing)}")
        notes.append(
            "run a few queries (--limit 8) into a folder beside it, or name files of "
            "`plait bench stage` with --rates"
        )
    published = [s for s in forecast.stages if s.rates.origin is Origin.PUBLISHED]
    notes += [f"{s.spec.name}, published: {s.rates.detail}" for s in published]
    return [*notes, *forecast.notes]


def headline(forecast: Forecast) -> str:
    """The totals on one line."""
    if forecast.stages and all(s.rates.origin is Origin.UNKNOWN for s in forecast.stages):
        return "none yet, as nothing of this run was measured here before"
    least = "" if forecast.complete else "at least "
    parts = [f"{least}{span_text(forecast.seconds)}"]
    if forecast.on_gpus:
        hours = forecast.gpu_hours
        parts.append(
            f"{least}{hours.mean:.3g} GPU-hours ({hours.low:.3g} to {hours.high:.3g})"
        )
    read, knows_read = forecast.total("input_tokens")
    written, knows_written = forecast.total("output_tokens")
    if read or written or (knows_read and knows_written):
        parts.append(
            f"{_least(knows_read and knows_written)}{read:,.0f} tokens read and "
            f"{written:,.0f} written"
        )
    disk, knows_disk = forecast.total("disk_bytes")
    if disk or knows_disk:
        parts.append(f"{_least(knows_disk)}{bytes_text(disk)} of records")
    money, knows_money = forecast.total("money")
    if money or not knows_money:
        parts.append(f"{_least(knows_money)}{money:,.4g} in the unit of the prices")
    return "; ".join(parts)


def _least(known: bool) -> str:
    return "" if known else "at least "


def span_text(span: FigureRange) -> str:
    """`41 s (35 to 50)`, or hours and minutes."""
    if span.low == span.high:
        return time_text(span.mean)
    return f"{time_text(span.mean)} ({time_text(span.low)} to {time_text(span.high)})"


def time_text(seconds: float) -> str:
    """`93 s`, `12 min 05 s` or `3 h 20 min`."""
    return in_words(seconds, seconds_below=120)


def bytes_text(amount: float) -> str:
    """`0.12 MB` or `3.4 GB`."""
    return f"{amount / 1e9:.3g} GB" if amount >= 1e9 else f"{amount / 1e6:.3g} MB"


def _row(stage: StageForecast) -> list[str]:
    rates = stage.rates
    most = "at most " if stage.work.bound else ""
    money = stage.money
    disk = stage.used("disk_bytes")
    return [
        stage.spec.name,
        f"{most}{stage.jobs:,.0f}",
        _figure(rates.seconds),
        _figure(rates.load_s),
        str(stage.workers),
        _amount(stage.used("input_tokens")),
        _amount(stage.used("output_tokens")),
        "?" if disk is None else bytes_text(disk),
        "?" if money is None else (f"{money:,.4g}" if money else ""),
        _origin(stage),
    ]


def _figure(span: FigureRange | None) -> str:
    if span is None:
        return "?"
    if f"{span.low:.2g}" == f"{span.high:.2g}":
        return f"{span.mean:.3g}"
    return f"{span.mean:.3g} ({span.low:.2g}-{span.high:.2g})"


def _amount(amount: float | None) -> str:
    return "" if amount is None else f"{amount:,.0f}"


def _origin(stage: StageForecast) -> str:
    rates = stage.rates
    if rates.origin in (Origin.UNKNOWN, Origin.PUBLISHED):
        return rates.origin.value
    return f"{rates.origin.value}: {rates.detail}"
