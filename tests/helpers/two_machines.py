"""Two machines on one: namespaces with an address each, joined by a switch.

Each has processes, interfaces, a host name and a folder /tmp/ray of its own, so that Ray
and Slurm take it for a machine; all other files are shared. The switch is a third, where
Slurm's controller runs. None of them has a way out, and the kernel removes them with their
processes when the process ends that has made them. By hand, as root:

    python tests/helpers/two_machines.py        a shell with two nodes of Ray, and Slurm

In it `n1 COMMAND` runs a command on the first machine, `unplug n2` and `plug n2` pull a
plug and put it back, and `n2 pkill -9 raylet` is the loss of a node.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from ray_cluster import RayCluster, environment, users_environ

_NET = "10.99.0"
_BRIDGE = "bridge0"
_TOOLS = ("ip", "unshare", "nsenter", "setpriv")
_SLURM = ("slurmctld", "slurmd", "sbatch", "srun")
_NAMESPACES = ("--net", "--pid", "--mount", "--uts")
# The first process of a machine, which waits for those whose parents have ended.
_INIT = """
hostname $0 && ip link set lo up && mkdir -p /tmp/ray && mount -t tmpfs none /tmp/ray
mount --bind $1 /etc/hosts
echo up; while :; do sleep 1d & wait; done
"""
_CLOCK = """
import time
seconds, nanoseconds = time.time, time.time_ns
time.time = lambda: seconds() + {ahead_s}
time.time_ns = lambda: nanoseconds() + {ahead_s} * 10**9
"""
_SLURM_CONF = """
ClusterName=two
SlurmctldHost=switch({net}.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
JobRequeue=1
KillWait=30
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
NodeName=n1 NodeAddr={net}.1 CPUs=2 Sockets=1 CoresPerSocket=2
NodeName=n2 NodeAddr={net}.2 CPUs=2 Sockets=1 CoresPerSocket=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=ALL PriorityTier=1 Default=YES State=UP
PartitionName=high Nodes=ALL PriorityTier=10 State=UP
"""


def missing(*, slurm: bool = False) -> str | None:
    """Why there can be no two machines here; None where there can."""
    if os.geteuid() != 0:
        return "two machines need root"
    wanted = _TOOLS + (_SLURM if slurm else ())
    if absent := [name for name in wanted if shutil.which(name) is None]:
        return f"two machines need {', '.join(absent)}"
    bridge = ["ip", "link", "add", _BRIDGE, "type", "bridge"]
    trial = ["unshare", *_NAMESPACES, "--fork", *bridge]
    made = subprocess.run(trial, capture_output=True, text=True, check=False)
    return f"no two machines: {made.stderr.strip()}" if made.returncode else None


@dataclass
class Machine:
    """Namespaces that look like a machine."""

    name: str
    address: str
    hosts: Path
    """Names and addresses of all machines."""
    sets: tuple[str, ...] = ()
    """Environment variables of what runs on it, `NAME=VALUE`."""

    def __post_init__(self) -> None:
        self.on()

    def on(self) -> None:
        """Start it, with no process but the first."""
        ends_with_us = ["setpriv", "--pdeathsig", "KILL"]
        apart = ["unshare", *_NAMESPACES, "--fork", "--mount-proc", "--kill-child"]
        self._holder = subprocess.Popen(
            [*ends_with_us, *apart, "sh", "-c", _INIT, self.name, str(self.hosts)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "up\n"
        (first,) = psutil.Process(self._holder.pid).children()
        self.pid: int = first.pid
        """Of its first process, as seen from outside."""

    @property
    def inside(self) -> list[str]:
        """What runs the command that follows it on this machine."""
        return ["nsenter", f"--target={self.pid}", *_NAMESPACES, "--", "env", *self.sets]

    @property
    def is_off(self) -> bool:
        """Whether its processes were ended."""
        return self._holder.poll() is not None

    def run(self, *command: str, **options: Any) -> str:
        """What a command on this machine prints; CalledProcessError where it fails."""
        said: str = subprocess.check_output([*self.inside, *command], text=True, **options)
        return said

    def start(
        self, *command: str, folder: Path = Path("/"), **options: Any
    ) -> subprocess.Popen[str]:
        """Start a command on this machine, in that folder."""
        # Whoever enters a machine is in its root folder.
        there = ["env", f"--chdir={folder}"]
        return subprocess.Popen([*self.inside, *there, *command], text=True, **options)

    def off(self) -> None:
        """End all its processes."""
        self._holder.kill()
        self._holder.wait()


class TwoMachines:
    """The machines n1 and n2 and the switch between them; a context manager."""

    def __init__(self) -> None:
        # Slurm's sockets need a short path.
        self.folder = Path(tempfile.mkdtemp(prefix="two-", dir="/tmp"))
        addresses = {"switch": f"{_NET}.254", "n1": f"{_NET}.1", "n2": f"{_NET}.2"}
        hosts = self.folder / "hosts"
        lines = ["127.0.0.1 localhost", *[f"{a} {name}" for name, a in addresses.items()]]
        hosts.write_text("\n".join(lines) + "\n")
        made = [Machine(name, a, hosts) for name, a in addresses.items()]
        self.switch, self.machines = made[0], made[1:]

    def __enter__(self) -> "TwoMachines":
        try:
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _connect(self) -> None:
        self.switch.run("ip", "link", "add", _BRIDGE, "type", "bridge")
        self.switch.run("ip", "address", "add", f"{_NET}.254/24", "dev", _BRIDGE)
        self.switch.run("ip", "link", "set", _BRIDGE, "up")
        for machine in self.machines:
            self._plug_in(machine)

    def _plug_in(self, machine: Machine) -> None:
        name, switch, own = machine.name, self.switch, machine.run
        # Of the switch only its network: there the machine's process has another number.
        on_switch = ["nsenter", f"--target={switch.pid}", "--net", "--"]
        former = [*on_switch, "ip", "link", "delete", name]
        subprocess.run(former, stderr=subprocess.DEVNULL, check=False)
        link = ["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0"]
        subprocess.run([*on_switch, *link, "netns", str(machine.pid)], check=True)
        switch.run("ip", "link", "set", name, "master", _BRIDGE, "up")
        own("ip", "address", "add", f"{machine.address}/24", "dev", "eth0")
        own("ip", "link", "set", "eth0", "up")
        # Ray takes the address of the interface that leads everywhere.
        own("ip", "route", "add", "default", "via", switch.address)

    def __exit__(self, *_: Any) -> None:
        for machine in (*self.machines, self.switch):
            machine.off()
        shutil.rmtree(self.folder, ignore_errors=True)

    def set_clock(self, machine: Machine, ahead_s: int) -> None:
        """Put the time of day ahead for all of Python that is started on a machine.

        No namespace has a time of day of its own, and Ray does not run with libfaketime.
        """
        (self.folder / "sitecustomize.py").write_text(_CLOCK.format(ahead_s=ahead_s))
        machine.sets = (f"PYTHONPATH={self.folder}",)

    def start_again(self, machine: Machine) -> None:
        """Start a machine that is off, and plug it in."""
        machine.on()
        self._plug_in(machine)

    def link(self, machine: Machine, state: str) -> None:
        """Set the plug of a machine `down` or `up`."""
        self.switch.run("ip", "link", "set", machine.name, state)

    @contextlib.contextmanager
    def ray(self, bin_folder: Path, cpus: int = 2) -> Iterator[RayCluster]:
        """A node of Ray on each, the head on the first."""
        first, second = self.machines
        own = "--temp-dir=/tmp/ray"
        head = RayCluster(bin_folder, cpus, own, host=first.address, within=first.inside)
        with head as cluster, cluster.joined(cpus, within=second.inside):
            yield cluster

    def start_slurm(self, environ: dict[str, str]) -> dict[str, str]:
        """Start Slurm, with a node on each; the environment in which its commands work."""
        conf = self.folder / "slurm.conf"
        conf.write_text(_SLURM_CONF.format(net=_NET, folder=self.folder))
        environ = environ | {"SLURM_CONF": str(conf)}
        for machine, daemon in [
            (self.switch, "slurmctld"),
            *[(m, "slurmd") for m in self.machines],
        ]:
            with (self.folder / f"{machine.name}.log").open("w") as log:
                machine.start(daemon, "-D", env=environ, stdout=log, stderr=log)
        until = time.monotonic() + 240
        states = ["sinfo", "--noheader", "--format=%D %t"]
        while self.switch.run(*states, env=environ).strip() != "2 idle":
            assert time.monotonic() < until, self._said()
            time.sleep(0.5)
        return environ

    def _said(self) -> str:
        return "\n".join(f.read_text()[-1000:] for f in self.folder.glob("*.log"))


def _programs(two: TwoMachines, folder: Path) -> None:
    """What the user of the shell can type, besides what is installed."""
    scripts = {m.name: f'exec {" ".join(m.inside)} "$@"' for m in two.machines}
    switch = " ".join(two.switch.inside)
    scripts["switch"] = f'exec {switch} "$@"'
    scripts["unplug"] = f'{switch} ip link set "$1" down'
    scripts["plug"] = f'{switch} ip link set "$1" up'
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)


def _shell() -> None:
    if reason := missing():
        sys.exit(reason)
    with TwoMachines() as two:
        bin_folder = environment(two.folder / "env")
        environ = users_environ(bin_folder)
        _programs(two, bin_folder)
        if missing(slurm=True) is None:
            environ = two.start_slurm(environ)
        with two.ray(bin_folder) as cluster:
            print(f"Ray: {cluster.address}; Slurm: {environ.get('SLURM_CONF')}")
            print("n1 python -m plait run --address", cluster.address, "...")
            subprocess.run(["bash", "--norc"], env=environ, check=False)


if __name__ == "__main__":
    _shell()
