"""Runs that are disturbed at random moments, and what must hold when they are done.

python tests/helpers/faults.py --seeds 20       workers and drivers are killed
python tests/helpers/faults.py --kills 100      until there were so many
python tests/helpers/faults.py --machines       machines too, and cut off, as root

With `--checkpoint FILE` what came of each seed is kept, and the same command goes on.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import psutil
import pyarrow.parquet as pq
import typer
from checkpoint import Checkpoint
from paths import HELPERS, PYTHON_PATH, SOURCE

DRAFTED = 35
"""Samples of a trial whose drafting does not raise."""
MOST_COMMANDS = 8


@dataclass(frozen=True)
class Disturbance:
    """What was done to a run, and what came of it."""

    seed: int
    commands: int
    worker_kills: int
    driver_kills: int
    records: int
    missing: int
    duplicated: int
    identical: bool
    wasted: float
    """Records computed more than once, as a share of all."""

    @property
    def kills(self) -> int:
        return self.worker_kills + self.driver_kills

    @property
    def good(self) -> bool:
        return self.identical and not self.missing and not self.duplicated


def command(root: Path, log: Path) -> list[str]:
    script = str(HELPERS / "trial.py")
    return [
        sys.executable,
        script,
        str(root),
        "--sleep",
        "0.1",
        "--poison",
        "--log",
        str(log),
    ]


def undisturbed(root: Path, env: Mapping[str, str]) -> bytes:
    """The leaderboard of a run that nobody disturbs."""
    done = subprocess.run(
        command(root, root.with_suffix(".log")),
        env=dict(env),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr  # the poisoned records fail, and are named
    return (root / "leaderboard.json").read_bytes()


def disturbed(
    root: Path, env: Mapping[str, str], seed: int, expected: bytes
) -> Disturbance:
    """Kill workers and drivers at random moments; run the command again until it ends."""
    rng = random.Random(seed)
    log = root.with_suffix(".log")
    kills: Counter[str] = Counter()
    planned = [rng.choice(["worker", "worker", "driver"]) for _ in range(rng.randint(2, 4))]
    commands, given_up = 0, 0
    while True:
        commands += 1
        driver = subprocess.Popen(
            command(root, log),
            env=dict(env),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while planned and driver.poll() is None:
            time.sleep(rng.uniform(0.3, 2.5))
            if planned[-1] == "driver" and driver.poll() is None:
                driver.kill()
            elif planned[-1] == "worker" and not kill_a_worker(rng):
                continue
            kills[planned.pop()] += 1
        ended = driver.wait(timeout=300) >= 0
        # Three kills in a row that hit a stage while it loads end it, as for a model that
        # no machine can hold; its records are made when the command is run again.
        before, given_up = given_up, stages_given_up(root)
        if commands >= MOST_COMMANDS or (ended and not planned and given_up == before):
            break
    return _verdict(root, log, seed, commands, kills, expected)


def _result(
    root: Path, env: Mapping[str, str], seed: int, expected: bytes
) -> dict[str, Any]:
    return asdict(disturbed(root, env, seed, expected))


def stages_given_up(root: Path) -> int:
    """How often a command on `root` ended a stage whose workers died while loading."""
    log = root / "run.log"
    return log.read_text().count("times in a row while loading") if log.exists() else 0


def kill_a_worker(rng: random.Random) -> int:
    """`kill -9` a worker of a Ray this process started; its pid, 0 where there is none."""
    # Only those below this process: another run on the machine has workers as well.
    workers = [p.pid for p in psutil.Process().children(recursive=True) if _is_worker(p)]
    if not workers:
        return 0
    chosen = rng.choice(sorted(workers))
    try:
        os.kill(chosen, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return chosen


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "".join(process.cmdline()[:1]).startswith("ray::_RayWorker")
    except psutil.Error:
        return False


def _verdict(
    root: Path, log: Path, seed: int, commands: int, kills: Counter[str], expected: bytes
) -> Disturbance:
    manifest = json.loads((root / "manifest.json").read_text())
    keys: Counter[str] = Counter()
    for part in root.glob("stages/*/part-*.parquet"):
        keys.update(pq.read_table(part, columns=["key"]).column("key").to_pylist())
    computed = sum(int(x.split()[1]) for x in log.read_text().splitlines() if "call" in x)
    return Disturbance(
        seed=seed,
        commands=commands,
        worker_kills=kills["worker"],
        driver_kills=kills["driver"],
        records=len(keys),
        missing=manifest["counts"]["missing"],
        duplicated=sum(n - 1 for n in keys.values()),
        identical=(root / "leaderboard.json").read_bytes() == expected,
        wasted=computed / DRAFTED - 1,
    )


def main(
    seeds: Annotated[int, typer.Option(help="How many runs to disturb.")] = 20,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    kills: Annotated[
        int, typer.Option(help="With it, as many seeds as it takes to kill so often.")
    ] = 0,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Where what came of each seed is kept.")
    ] = None,
    machines: Annotated[
        bool, typer.Option("--machines", help="Disturb two machines, as root.")
    ] = False,
) -> None:
    """Disturb runs at random and show what became of them; 1 where one was harmed."""
    sys.path.insert(0, str(SOURCE))
    if machines:
        from machine_faults import disturb_machines

        raise typer.Exit(disturb_machines(range(first, first + seeds)))
    from plait.cluster.executors.on_ray import start_local

    context = start_local(num_cpus=4)
    env = dict(os.environ, TRIAL_RAY=context.address_info["gcs_address"])
    env["PYTHONPATH"] = PYTHON_PATH
    all_of: list[Disturbance] = []
    known = Checkpoint(checkpoint)
    with tempfile.TemporaryDirectory() as folder:
        expected = undisturbed(Path(folder) / "calm", env)
        print(
            "seed  commands  workers killed  drivers killed  records  missing  duplicated"
            "  leaderboard  drafted again"
        )
        for seed in count(first) if kills else range(first, first + seeds):
            root = Path(folder) / f"seed{seed}"
            find = partial(_result, root, env, seed, expected)
            d = Disturbance(**known.result(seed, find))
            all_of.append(d)
            same = "identical" if d.identical else "DIFFERS"
            killed = f"{d.worker_kills:14}  {d.driver_kills:14}"
            records = f"{d.records:7}  {d.missing:7}  {d.duplicated:10}"
            line = f"{seed:4}  {d.commands:8}  {killed}  {records}  {same:>11}"
            print(f"{line}  {d.wasted:12.0%}", flush=True)
            if kills and sum(d.kills for d in all_of) >= kills:
                break
    good = sum(d.good for d in all_of)
    print(
        f"{good} of {len(all_of)} disturbed runs ended as if undisturbed; "
        f"{sum(d.worker_kills for d in all_of)} workers and "
        f"{sum(d.driver_kills for d in all_of)} drivers were killed, "
        f"{sum(d.missing for d in all_of)} records are missing, "
        f"{sum(d.duplicated for d in all_of)} are there twice"
    )
    raise typer.Exit(int(good < len(all_of)))


if __name__ == "__main__":
    typer.run(main)
