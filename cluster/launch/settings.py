"""What a site asks of a batch job: the table `[cluster]` of a config."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

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


_NO_LIMIT = ("INFINITE", "UNLIMITED")


def seconds_of(time: str) -> int | None:
    """Return Slurm's time limit in seconds; None for none.

    Its forms are `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` and `D-H:M:S`; 0 means no limit
    (sbatch's manual page, `--time`), and so do the words that it takes for that.

    Raises:
        ValueError: For what is of no such form.
    """
    if time.strip().upper() in _NO_LIMIT:
        return None
    given = _TIME.fullmatch(time.strip())
    if given is None:
        raise ValueError(
            f"{time!r} is not a time limit of Slurm: give minutes, minutes:seconds, "
            "hours:minutes:seconds, days-hours, days-hours:minutes or "
            "days-hours:minutes:seconds, such as 12:00:00 or 2-12"
        )
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


_SCRATCH = re.compile(r"[/$][\w/.${}+-]*")

MailType = Literal[
    "NONE",
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "ALL",
    "INVALID_DEPEND",
    "STAGE_OUT",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
    "ARRAY_TASKS",
]
"""Events of sbatch's `--mail-type` (its manual page)."""


class ClusterSettings(BaseModel):
    """Of one job; none of it changes a result."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: int = Field(default=1, ge=1, strict=True)
    """Nodes of one job, with one Ray over them; of a job of an array always one."""
    gpus_per_node: int = Field(default=0, ge=0, strict=True)
    """GPUs of each node."""
    cpus_per_node: int | None = Field(default=None, ge=1, strict=True)
    """On Slurm by default all of a node that is the job's own, else the site's number."""
    exclusive: bool | None = None
    """Whether a job of Slurm has its nodes to itself; by default where neither
    `cpus_per_node` nor `gpus_per_node` says what part of them it needs."""
    memory_gib: int | None = Field(default=None, ge=1, strict=True)
    """Memory of each node."""
    image: str | None = None
    """Container image that has plait: needed on Kubernetes, possible on Slurm."""
    container: Literal["pyxis", "apptainer"] = "pyxis"
    """What runs the image on Slurm: its plugin pyxis, or Apptainer."""
    program: str | None = None
    """How plait is started on a node, such as `/shared/venv/bin/plait`; by default as it
    was started here, and `plait` in an image."""
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
    array_throttle: int | None = Field(default=None, ge=1, strict=True)
    """How many jobs of an array run at a time at most."""
    mail_user: str | None = Field(default=None, pattern=r"^[^\s,]+$")
    """Who gets mail about a job of Slurm; by default nobody."""
    mail_type: tuple[MailType, ...] = ()
    """What about; of a `mail_user` by default `END` and `FAIL`."""
    scratch: str | None = None
    """Folder of each node for temporary files, Ray's too, such as
    `/scratch/$USER/$SLURM_JOB_ID`; it is made where it is not there, and stays. Ray takes
    no long path."""
    setup: tuple[str, ...] = ()
    """Lines of bash before all else: modules, environments."""
    mounts: tuple[str, ...] = ()
    """Folders that an image on Slurm sees, such as `/shared:/shared`, besides those of the
    run, of its config and data, and of where it was submitted."""
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

    @field_validator("scratch")
    @classmethod
    def _a_path_that_a_script_holds(cls, scratch: str | None) -> str | None:
        if scratch is not None and not _SCRATCH.fullmatch(scratch):
            raise ValueError(
                "must be a whole path of letters, digits, / . _ + - and variables such as "
                "$SLURM_JOB_ID"
            )
        return scratch

    @field_validator("time")
    @classmethod
    def _a_time_limit(cls, time: str | None) -> str | None:
        if time is not None:
            seconds_of(time)
        return time

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
    def has_whole_nodes(self) -> bool:
        """Whether a job of Slurm has its nodes to itself."""
        if self.exclusive is not None:
            return self.exclusive
        return self.cpus_per_node is None and not self.gpus_per_node

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
    reads: tuple[Path, ...] = ()
    """Folders with the files that its command reads."""

    @property
    def command(self) -> str:
        """The whole command, as a shell reads it."""
        shard = f" --shard $SLURM_ARRAY_TASK_ID/{self.array}" if self.array else ""
        return f"{self.settings.command} {shlex.join(self.arguments)}{shard}"


def output_of(command: list[str], what: str, else_do: str, text: str | None = None) -> str:
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
