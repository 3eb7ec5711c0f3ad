"""Shared by the scripts beside it: options, files, and the processor time of processes."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

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

    def report(
        self, title: str, table: ResultTable, about: Mapping[str, Any], **more: Any
    ) -> None:
        """Print the table, and write it with its origin; `more` goes to .json files."""
        command = " ".join([self._command, *self._words])
        page = markdown_page(title, [command, provenance_line(about)], [table])
        head = [column.heading for column in table.columns]
        rows = []
        for row in table.rows:
            texts = [cell.full for cell in row]
            rows.append(dict(zip(head, texts, strict=True)))
        console().print(table.rich)
        data = {"about": about, "rows": rows, **more}
        write_outs(self.options().out, lambda: data, lambda: page)


class CpuClock:
    """Processor time of a process and all its descendants, sampled in a thread.

    By default of this process.
    """

    def __init__(self, every_s: float = 0.05, pid: int | None = None) -> None:
        self.points: list[tuple[float, float]] = []
        self._root = psutil.Process(pid)
        self._every_s = every_s
        self._seen: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
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
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                self._look_at(process)
        self.points.append((time.time(), sum(self._seen.values())))

    def _tree(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            return [self._root, *self._root.children(recursive=True)]
        return [self._root]

    def _look_at(self, process: psutil.Process) -> None:
        times = process.cpu_times()
        # A process that has ended keeps its last reading.
        self._seen[process.pid] = times.user + times.system
