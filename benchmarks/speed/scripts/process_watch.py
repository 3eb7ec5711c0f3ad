"""What a command uses, told apart by what its processes are: CPU time, memory, part files.

    measured, watch, printed = run_watched(["plait", "run", ...], cwd=folder, parts=out)

A command is the driver; its descendants are workers, Ray's own processes (GCS, raylet,
agents, monitors) and others. All are read from /proc five times a second, so a process that
ends is charged up to its last reading; the driver itself is read once more after it has
ended, and its figures are exact to the clock tick (10 ms).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import psutil  # type: ignore[import-untyped]

from plait.benchmarks.speed.scripts.common import CpuClock

Role = Literal["driver", "worker", "Ray", "other"]
"""What a process of a command is."""
ROLES: tuple[Role, ...] = get_args(Role)
EVERY_S = 0.2
MOMENTS = 200
HOW = (
    f"Every {EVERY_S:g} s the process tree of the command is read from /proc: user and "
    "system time by process (of one that has ended, its last reading; of the driver, one "
    "more after its end), resident memory (the driver's own high-water mark; of all "
    "processes the largest sum, in which pages that they share count in each), and the "
    "names of part files. Workers are processes that Ray calls so; `Ray` are its GCS, "
    "raylet, agents and monitors. CPU time of anything else on the machine is what the "
    "machine used less what the command used."
)


class Resident(NamedTuple):
    """Resident memory at a moment."""

    moment: float
    driver_mib: float
    all_mib: float


class ProcessWatch(CpuClock):
    """The processor time of a command by role, its memory, and the part files it keeps."""

    def __init__(self, pid: int, parts: Path) -> None:
        """Watch the process `pid`, the driver, and the part files below `parts`."""
        super().__init__(EVERY_S, pid)
        self.driver_bytes = 0
        """The most memory that the driver has had resident."""
        self.files = 0
        """The most part files at a time, of all stages."""
        self.files_of_stage = 0
        """The most of one stage."""
        self.memory: list[Resident] = []
        self._parts = parts
        self._by_role: list[tuple[float, Mapping[Role, float]]] = []
        self._roles: dict[int, Role] = {}
        self._resident: dict[int, int] = {}

    def used(self, role: Role, moment: float) -> float:
        """Return the CPU seconds of `role` up to `moment`, to the sampling step."""
        return max((by[role] for when, by in self._by_role if when <= moment), default=0.0)

    def driver_mib(self, moment: float) -> float:
        """Return what the driver had resident at `moment`, in MiB."""
        return next(
            (r.driver_mib for r in reversed(self.memory) if r.moment <= moment), 0.0
        )

    def _sample(self) -> None:
        self._resident.clear()
        super()._sample()
        used: dict[Role, float] = dict.fromkeys(ROLES, 0.0)
        for pid, seconds in self._seen.items():
            used[self._roles[pid]] += seconds
        moment = self.points[-1][0]
        self._by_role.append((moment, used))
        if resident := self._resident.get(self._root.pid):
            every = sum(self._resident.values())
            self.memory.append(Resident(moment, resident / 2**20, every / 2**20))
        counts = _part_counts(self._parts)
        self.files = max(self.files, sum(counts))
        self.files_of_stage = max(self.files_of_stage, *counts)

    def _look_at(self, process: psutil.Process) -> None:
        # Its role first: whatever has used time has one.
        self._roles[process.pid] = self._role(process)
        super()._look_at(process)
        self._resident[process.pid] = process.memory_info().rss
        if process == self._root:
            self.driver_bytes = max(self.driver_bytes, peak_bytes(process.pid))

    def _role(self, process: psutil.Process) -> Role:
        if process == self._root:
            return "driver"
        line = " ".join(process.cmdline())
        if not line:  # it is ending
            return self._roles.get(process.pid, "other")
        if line.startswith("ray::") or "default_worker.py" in line:
            return "worker"
        return "Ray" if "/ray/" in line else "other"


def peak_bytes(pid: int) -> int:
    """Return the high-water mark of resident memory; without /proc, what is resident."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return int(psutil.Process(pid).memory_info().rss)


def _part_counts(root: Path) -> list[int]:
    """Count the part files in `root` itself and in the folder of each of its stages."""
    folders = [root]
    counts = [0]
    with contextlib.suppress(OSError):
        folders += (root / "stages").iterdir()
    for folder in folders:
        with contextlib.suppress(OSError):
            counts.append(sum(name.endswith(".parquet") for name in os.listdir(folder)))
    return counts


@dataclass(frozen=True, slots=True)
class Used:
    """What a command has used up to some moment."""

    wall_s: float
    cpu_s: Mapping[Role, float]

    @property
    def all_cpu_s(self) -> float:
        """CPU seconds of all its processes."""
        return sum(self.cpu_s.values())


@dataclass(frozen=True, slots=True)
class Measured:
    """What one command has used from its start to its end."""

    total: Used
    driver_mib: float
    all_mib: float
    files: int
    files_of_stage: int
    others_cpu_s: float
    """CPU seconds that everything else on the machine used meanwhile."""
    load: float
    """Processes ready to run when it began, as the mean of a minute."""
    began: float
    """Seconds since the epoch."""
    memory: Sequence[Resident]
    """At about `MOMENTS` of its samples."""


def run_watched(
    command: Sequence[str],
    *,
    cwd: Path,
    parts: Path,
    environment: Mapping[str, str] | None = None,
) -> tuple[Measured, ProcessWatch, str]:
    """Run a command to its end; what it used, the watch to ask, and what it printed.

    RuntimeError with the end of what it printed where its exit status is not 0.
    """
    load = os.getloadavg()[0]
    machine = _machine_cpu_s() - _own_cpu_s()
    with tempfile.TemporaryFile("w+") as printed:
        began = time.time()
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
        with ProcessWatch(process.pid, parts) as watch:
            # Not reaped yet, so that its last figures can still be read.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            ended = time.time()
        status = process.wait()
        printed.seek(0)
        said = printed.read()
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with {status}: {said[-2000:]}")
    total = used_until(watch, began, float("inf"), ended)
    meanwhile = _machine_cpu_s() - _own_cpu_s() - machine
    measured = Measured(
        total,
        driver_mib=watch.driver_bytes / 2**20,
        all_mib=max((resident.all_mib for resident in watch.memory), default=0.0),
        files=watch.files,
        files_of_stage=watch.files_of_stage,
        others_cpu_s=max(0.0, meanwhile - total.all_cpu_s),
        load=load,
        began=began,
        memory=watch.memory[:: 1 + len(watch.memory) // MOMENTS],
    )
    return measured, watch, said


def used_until(watch: ProcessWatch, began: float, moment: float, ended: float) -> Used:
    """Return what a command that `began` and `ended` then had used by `moment`."""
    cpu_s = {role: watch.used(role, moment) for role in ROLES}
    return Used(min(moment, ended) - began, cpu_s)


def _machine_cpu_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def _own_cpu_s() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)
