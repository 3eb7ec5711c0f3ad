"""Shared by the scripts beside it: options, files, and the processor time of processes."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from plait.benchmarks.bench_program import check_outs, write_outs
from plait.benchmarks.provenance import provenance_line
from plait.benchmarks.results.table import ResultTable, markdown_page
from plait.benchmarks.terminal import console


class Script:
    """The command line of a script, and the files that it writes."""

    def __init__(self, doc: str | None, name: str, words: Sequence[str] | None) -> None:
        self._words = list(sys.argv[1:] if words is None else words)
        self._command = f"python -m plait.benchmarks.speed.scripts.{name}"
        self.parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
        self.parser.add_argument("--out", type=Path, action="append", default=[])

    def options(self) -> argparse.Namespace:
        """Read the options; UsageError for a file of another ending, before measuring."""
        options = self.parser.parse_args(self._words)
        check_outs(options.out)
        return options

    def report(self, title: str, table: ResultTable, about: Mapping[str, Any]) -> None:
        """Print the table, and write it with its origin."""
        command = " ".join([self._command, *self._words])
        page = markdown_page(title, [command, provenance_line(about)], [table])
        head = [column.heading for column in table.columns]
        rows = [dict(zip(head, (c.full for c in r), strict=True)) for r in table.rows]
        console().print(table.rich)
        write_outs(self.options().out, lambda: {"about": about, "rows": rows}, lambda: page)


class CpuClock:
    """Processor time of this process and all its descendants, sampled in a thread."""

    def __init__(self, every_s: float = 0.05) -> None:
        self.points: list[tuple[float, float]] = []
        self._every_s = every_s
        self._seen: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> CpuClock:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def at(self, moment: float) -> float:
        """Return the seconds used from the start to `moment`, to the sampling step."""
        return max(used for when, used in self.points if when <= moment) - self.points[0][1]

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._sample()

    def _sample(self) -> None:
        own = psutil.Process()
        for process in (own, *own.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                # A process that has ended keeps its last reading.
                self._seen[process.pid] = times.user + times.system
        self.points.append((time.time(), sum(self._seen.values())))
