"""Runs on a Ray cluster by its address, as users start them: in processes of their own.

The cluster is started by `ray start`, and neither its nodes nor the command see the
process of the tests; see `helpers/ray_cluster.py`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machine_faults import CONFIG_FILE, submission
from paths import HELPERS, PYTHON_PATH, SOURCE
from ray_cluster import RayCluster, free_port, users_environ

pytestmark = pytest.mark.processes

MINE = """
import words
from plait.generators.base import Result
from plait.generators.document import Draft, Text

class Greeter:
    kind, version, seeded = "draft", 1, False
    def __init__(self, **_): ...
    def __call__(self, requests):
        return [Result(Draft((Text(words.GREETING),))) for _ in requests]
"""
DASHBOARD = free_port()
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def cluster(nodes: Path) -> Iterator[RayCluster]:
    with RayCluster(nodes, 2, f"--dashboard-port={DASHBOARD}") as cluster:
        yield cluster


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with a module and a package of the user's own."""
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "__init__.py").write_text("GREETING = 'hello'")
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def run_in(folder: Path, command: list[str], env: dict[str, str]) -> Done:
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=240
    )


def manifest(root: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((root / "manifest.json").read_text())
    return content


def check(done: Done, root: Path, records: int) -> None:
    """The command made them all, and no worker was lost."""
    said = done.stdout[-3000:] + done.stderr[-3000:]
    assert done.returncode == 0, said
    about = manifest(root)
    counts = {name: about["counts"][name] for name in ("planned", "done", "failed")}
    assert counts == {"planned": records, "done": records, "failed": 0}, said
    assert (about["status"], about["worker_failures"]["total"]) == ("finished", 0), said


CHECKED_OUT = ["python", "-m", "plait"]
CHECKED_OUT_PATH = {"PYTHONPATH": str(SOURCE)}
SAMPLE = ["--data", "sample", "--weights", "tiny"]
NOTHING_OF_ONES_OWN = ["--system", "gt", "--scorer", "bleu"]
OWN_MODULES = ["--system", "mine:Greeter@text", "--set", "scorers=[]"]


@pytest.mark.parametrize(
    ("from_wheel", "what", "by_flag"),
    [
        (False, NOTHING_OF_ONES_OWN, True),
        pytest.param(True, OWN_MODULES, False, marks=pytest.mark.slow),
    ],
    ids=["checkout", "wheel-own-modules"],
)
def test_a_run_joins_the_cluster_that_is_named(
    from_wheel: bool,
    what: list[str],
    by_flag: bool,
    cluster: RayCluster,
    folder: Path,
    request: pytest.FixtureRequest,
) -> None:
    place = request.getfixturevalue("installed" if from_wheel else "nodes")
    program = ["plait"] if from_wheel else CHECKED_OUT
    run = [*program, "run", *SAMPLE, "--limit", "4", *what]
    address = ["--address", cluster.address] if by_flag else []
    by_variable = {} if by_flag else {"RAY_ADDRESS": cluster.address}
    by_path = {} if from_wheel else CHECKED_OUT_PATH
    env = users_environ(place, **by_variable, **by_path)
    done = run_in(folder, [*run, "--out", "out", *address], env)
    check(done, folder / "out", 4)


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_tried_once_and_says_why(
    nodes: Path, folder: Path
) -> None:
    """The nodes lack a package: that does not pass, however often it is tried."""
    (folder / "broken").mkdir()
    (folder / "broken" / "pyarrow.py").write_text("raise ImportError('no arrow here')")
    broken = RayCluster(nodes, 2, "--include-dashboard=false")
    broken.environ["PYTHONPATH"] = str(folder / "broken")
    with broken:
        run = [*CHECKED_OUT, "run", *SAMPLE, "--limit", "2", *OWN_MODULES]
        where = ["--out", "out", "--address", broken.address]
        done = run_in(folder, [*run, *where], users_environ(nodes, **CHECKED_OUT_PATH))
    assert done.returncode == 1, done.stdout[-3000:]
    about = manifest(folder / "out")
    assert about["counts"]["failed"] == 2
    (failure,) = about["worker_failures"]["listed"]
    assert "no arrow here" in failure["reason"]
    assert "no arrow here" in (folder / "out" / "failures.csv").read_text()


@pytest.mark.slow
def test_a_run_is_submitted_as_the_readme_says(
    cluster: RayCluster, cloned: Path, folder: Path
) -> None:
    """From a clone, by the packages that the nodes have."""
    (folder / CONFIG_FILE).write_text(
        "data = 'sample'\nsystems = ['mine:Greeter@text']\nscorers = []\n"
        f"out = '{folder}/out'\nweights = 'tiny'\nlimit = 4\n"
    )
    words = submission(f"127.0.0.1:{DASHBOARD}", cloned)
    check(run_in(folder, words, cluster.environ), folder / "out", 4)


HELPERS_TOO = {"PYTHONPATH": PYTHON_PATH}


def trial(cluster: RayCluster, root: Path, *more: str) -> subprocess.Popen[str]:
    """A run of stages without models; a worker takes all CPUs of a node.

    It is held up after the first batch of each writer until there is the file of its gate.
    """
    size = ["--spread", "--samples", "48", "--gate", str(gate_of(root))]
    where = ["--address", cluster.address, "--log", str(root.with_suffix(".log"))]
    return subprocess.Popen(
        ["python", str(HELPERS / "trial.py"), str(root), *size, *where, *more],
        env=users_environ(cluster.bin_folder, **HELPERS_TOO),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def gate_of(root: Path) -> Path:
    return root.with_suffix(".gate")


def wait_for(driver: subprocess.Popen[str], log: Path, what: str, times: int = 1) -> None:
    """Wait until a log of a run under way says `what` so often."""
    while not log.exists() or log.read_text().count(what) < times:
        assert driver.poll() is None
        time.sleep(0.05)


@pytest.mark.slow
def test_two_nodes_share_the_work_and_one_may_be_lost(
    cluster: RayCluster, tmp_path: Path
) -> None:
    boards = []
    for lost in (False, True):
        root = tmp_path / f"lost-{lost}"
        with cluster.joined(cpus=2) as node:
            driver = trial(cluster, root)
            wait_for(driver, root.with_suffix(".log"), "call", 2)
            if lost:
                node.raylet().kill()
                wait_for(driver, root / "run.log", "lost with its node")
            gate_of(root).touch()
            said = driver.communicate(timeout=240)[0]
        assert driver.returncode == 0, said[-3000:]
        boards.append((root / "leaderboard.json").read_text())
        kinds = {f["kind"] for f in manifest(root)["worker_failures"]["listed"]}
        assert kinds == ({"lost with its node"} if lost else set())
    assert boards[0] == boards[1]


@pytest.mark.slow
def test_a_driver_that_waits_for_a_frozen_one_says_so(
    cluster: RayCluster, tmp_path: Path
) -> None:
    frozen = trial(cluster, tmp_path / "frozen")
    try:
        wait_for(frozen, tmp_path / "frozen.log", "call")
        frozen.send_signal(signal.SIGSTOP)
        waiting = trial(cluster, tmp_path / "waiting", "--asks-after", "3")
        gate_of(tmp_path / "waiting").touch()
        wait_for(waiting, tmp_path / "waiting" / "run.log", f"process {frozen.pid} on")
        log = (tmp_path / "waiting" / "run.log").read_text()
        assert "2 CPU" in log
        assert "which is stopped" in log
    finally:
        frozen.kill()
    assert waiting.communicate(timeout=240)[0]
    assert waiting.returncode == 0


PRIVATE_FOLDERS = """
import json, sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from plait.generators.document import Image
from plait.generators.images import Drawing
from trial import LIGHT, painter, plan_of, run, sample, writer

root, data, address = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
images = []
for shade in range(6):
    picture = Drawing(np.full((8, 8, 3), shade, np.uint8)).encoded()
    file = data / f"{shade}.png"
    file.write_bytes(picture.read())
    images.append(Image(picture.digest, place=str(file)))
far = replace(LIGHT, num_cpus=3, batch_size=2)  # only the second node has three CPUs
plan = plan_of([sample(i, images=[images[i]]) for i in range(6)],
               write=writer(far), paint=[painter(0, far)], measure=far)
print(json.dumps(dict(run(plan, root, address=address).counts)))
"""


@pytest.mark.slow
def test_folders_need_not_be_shared(cluster: RayCluster, tmp_path: Path) -> None:
    """Question images travel to the node, and results come back to the driver."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("needs the right to make a mount namespace")
    root, data = tmp_path / "run", tmp_path / "data"
    root.mkdir()
    data.mkdir()
    hide = f"mount -t tmpfs none {root} && mount -t tmpfs none {data}"
    within = ["unshare", "-m", "sh", "-c", f'{hide} && exec "$@"', "sh"]
    script = ["python", "-c", PRIVATE_FOLDERS, str(root), str(data), cluster.address]
    with cluster.joined(cpus=3, within=within):
        env = users_environ(cluster.bin_folder, **HELPERS_TOO)
        done = run_in(tmp_path, script, env)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    assert (counts["done"], counts["scored"]) == (6, 6)
    assert list(root.glob("stages/*/part-*.parquet"))
