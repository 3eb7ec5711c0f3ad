"""Which other drivers hold resources of a Ray cluster, for a run that waits for them."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
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
    held: dict[str, list[Resources]] = defaultdict(list)
    for actor in actors:
        amounts = actor.required_resources or {}
        need = Resources(*(amounts.get(name, 0.0) for name in ("CPU", "GPU", "memory")))
        if actor.job_id != own and need != Resources():
            held[actor.job_id].append(need)
    lines = []
    for job, needs in sorted(held.items()):
        driver = drivers.get(job)
        holder = f"job {job}"
        if driver is not None:
            holder = f"process {driver.pid} on {driver.node_ip_address}"
            if driver.node_ip_address == address and is_stopped(int(driver.pid)):
                holder += ", which is stopped"
        lines.append(f"{reduce(operator.add, needs)} by {holder}")
    return lines


def is_stopped(pid: int) -> bool:
    """Return whether a process of this machine is frozen, as by SIGSTOP or Ctrl-Z."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False
