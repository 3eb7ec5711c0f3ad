"""What a site asks of a batch job: the table `[cluster]` of a config."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel, ConfigDict, Field, model_validator

from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError

TEMPLATES = Environment(
    loader=PackageLoader("plait.cluster.launch", "."),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


_TIME = re.compile(
    r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?"
)


def seconds_of(time: str) -> int | None:
    """Return Slurm's time limit in seconds; None for none, and for what is not one.

    Its forms are `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` and `D-H:M:S`; 0 means no limit
    (sbatch's manual page, `--time`).
    """
    given = _TIME.fullmatch(time.strip())
    if given is None:
        return None
    first = int(given["first"])
    second = int(given["second"] or 0)
    third = int(given["third"] or 0)
    if given["days"] is not None:
        seconds = ((int(given["days"]) * 24 + first) * 60 + second) * 60 + third
    elif given["third"] is not None:
        seconds = (first * 60 + second) * 60 + third
    else:
        seconds = first * 60 + second
    return seconds or None


class ClusterSettings(BaseModel):
    """Of one job; none of it changes a result."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: int = Field(default=1, ge=1, strict=True)
    """Nodes of one job, with one Ray over them."""
    gpus_per_node: int = Field(default=0, ge=0, strict=True)
    """GPUs of each node."""
    cpus_per_node: int | None = Field(default=None, ge=1, strict=True)
    """CPU cores of each node; on Slurm by default the whole node."""
    memory_gib: int | None = Field(default=None, ge=1, strict=True)
    """Memory of each node."""
    image: str | None = None
    """Container image that has plait: needed on Kubernetes, possible on Slurm (pyxis)."""
    program: str | None = None
    """How plait is started on a node, such as `python -m plait`; by default
    as it was started here, and `plait` in an image."""
    environment: Mapping[str, str] = Field(default_factory=dict)
    """Environment variables of the job. API keys do not belong here: Slurm hands on those
    of the shell that submits, and Kubernetes has `secret`."""

    partition: str | None = None
    """Slurm's partition."""
    account: str | None = None
    """Slurm's account, which is charged."""
    qos: str | None = None
    """Slurm's quality of service."""
    time: str | None = None
    """Time limit in Slurm's form, such as `12:00:00` or `2-12` (days and hours)."""
    options: tuple[str, ...] = ()
    """Further options of sbatch, such as `--constraint=h100`."""
    setup: tuple[str, ...] = ()
    """Lines of bash before all else: modules, environments."""
    mounts: tuple[str, ...] = ()
    """Folders that an image on Slurm sees, such as `/shared:/shared`."""
    requeue_before_s: int = Field(default=120, ge=30, strict=True)
    """How long before the time limit plait stops and its job is queued again, unless two
    starts in a row have made no record."""

    namespace: str = "default"
    """Kubernetes namespace of the job."""
    volume_claim: str | None = None
    """PersistentVolumeClaim with the run directory, mounted by all pods at `mount_path`;
    not needed for a run in a bucket."""
    mount_path: str = "/shared"
    """Where pods see the volume; they run there."""
    secret: str | None = None
    """Kubernetes secret whose entries become environment variables, such as
    OPENAI_API_KEY."""
    gpu_resource: str = "nvidia.com/gpu"
    """Name of the GPUs among a pod's resources."""
    node_selector: Mapping[str, str] = Field(default_factory=dict)
    """Labels of the nodes that workers may run on."""
    service_account: str | None = None
    """Kubernetes service account of the pods."""
    retries: int = Field(default=3, ge=0, strict=True)
    """How often a failed job on Kubernetes is started again; it resumes."""
    keep_hours: float = Field(default=24.0, ge=0)
    """How long the head of a job that has ended stays, with its logs."""

    @model_validator(mode="after")
    def _leave_time_to_work(self) -> Self:
        limit = seconds_of(self.time) if self.time else None
        if limit is not None and limit <= self.requeue_before_s:
            raise ValueError(
                f"the time limit {self.time!r} is {limit} s, and plait stops "
                f"{self.requeue_before_s} s before it (requeue_before_s): nothing would "
                "ever be made; raise the limit"
            )
        return self

    @property
    def command(self) -> str:
        """What starts plait on a node, as a shell reads it."""
        here = "plait" if self.image else f"{sys.executable} -m plait"
        return self.program or here


@dataclass(frozen=True)
class BatchJob:
    """A command that is to run as a batch job."""

    name: str
    """Lower-case letters, digits and dashes."""
    arguments: tuple[str, ...]
    """Of plait; paths are absolute, or as an image sees them."""
    folder: Path
    """Where it runs, with modules of the user's own."""
    jobs: Path
    """Where its script and logs are."""
    root: AnyPath
    """Its run directory."""
    settings: ClusterSettings
    array: int | None = None
    """Jobs of an array of Slurm, each of which has a shard of the run."""

    @property
    def command(self) -> str:
        """The whole command, as a shell reads it."""
        shard = f" --shard $SLURM_ARRAY_TASK_ID/{self.array}" if self.array else ""
        return f"{self.settings.command} {shlex.join(self.arguments)}{shard}"


def said_by(command: list[str], what: str, else_do: str, text: str | None = None) -> str:
    """Return what a program of the cluster prints, given `text` to read.

    Raises:
        UsageError: Where it is not here, with what to do instead; or where it refuses
            `what` it was given, with its words.
    """
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        raise UsageError(f"there is no {command[0]} here: {else_do}") from None
    except subprocess.CalledProcessError as error:
        raise UsageError(f"{command[0]} refuses {what}: {error.stderr.strip()}") from None
    return done.stdout
