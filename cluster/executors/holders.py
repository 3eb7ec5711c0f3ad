"""Which other drivers hold resources of a Ray cluster, for a run that waits for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import psutil  # type: ignore[import-untyped]

from plait.cluster.placement import Resources


def in_words(
    actors: Sequence[Any],
    drivers: Mapping[str, Any],
    own: str,
    address: str,
) -> list[str]:
    """Return a line for each job but one's `own` whose actors hold anything.

    `actors` are as Ray lists them, `drivers` by job. `address` is that of this machine.
    """
    nothing = Resources()
    # By job, what its actors hold together.
    held: dict[str, Resources] = defaultdict(Resources)
    for actor in actors:
        amounts = actor.required_resources or {}
        need = Resources(
            amounts.get("CPU", 0.0), amounts.get("GPU", 0.0), amounts.get("memory", 0.0)
        )
        if actor.job_id != own and need != nothing:
            held[actor.job_id] += need
    lines: list[str] = []
    for job, holds in sorted(held.items()):
        driver = drivers.get(job)
        holder = f"job {job}"
        if driver is not None:
            holder = f"process {driver.pid} on {driver.node_ip_address}"
            if driver.node_ip_address == address and is_stopped(int(driver.pid)):
                holder += ", which is stopped"
        lines.append(f"{holds} by {holder}")
    return lines


def is_stopped(pid: int) -> bool:
    """Return whether a process of this machine is frozen, as by SIGSTOP or Ctrl-Z."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False
