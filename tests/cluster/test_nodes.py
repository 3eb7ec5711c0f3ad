"""Several Ray nodes on one machine: shared folders, private folders, a node that goes.

These run on clusters of their own, in processes of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import CHECKOUT, HELPERS

pytestmark = pytest.mark.slow


def run_script(script: str, *arguments: str, timeout: float = 180) -> dict[str, object]:
    """Run `script` with this Python; what it printed last, as JSON."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(CHECKOUT), str(HELPERS)]))
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    last: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return last


TWO_NODES = """
import json, sys, threading, time
from dataclasses import replace
from pathlib import Path
from ray.cluster_utils import Cluster
import ray
from trial import LIGHT, board, painter, plan_of, run, sample, writer

root, remove = Path(sys.argv[1]), sys.argv[2] == "remove"
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
second = cluster.add_node(num_cpus=2)
ray.init(cluster.address, logging_level="ERROR", log_to_driver=False)
cluster.wait_for_nodes()
place = replace(LIGHT, num_cpus=1, workers=2, batch_size=2)
write = replace(writer(place), options={"sleep_s": 0.2, "log": str(root) + ".log"})
plan = plan_of([sample(i) for i in range(24)], write=write, paint=[painter(0, place)])
if remove:
    def later():
        while sum(1 for _ in root.glob("stages/writer*/part-*")) < 3:
            time.sleep(0.05)
        cluster.remove_node(second)
    threading.Thread(target=later, daemon=True).start()
result = run(plan, root, address=cluster.address)
hosts = {n["NodeID"] for n in ray.nodes() if n["Alive"]}
outcome = {"counts": dict(result.counts), "nodes": len(hosts), "board": board(plan, root)}
print(json.dumps(outcome))
ray.shutdown()
cluster.shutdown()
"""


def test_two_nodes_share_the_work_and_one_may_go(tmp_path: Path) -> None:
    calm = run_script(TWO_NODES, str(tmp_path / "calm"), "keep")
    assert calm["counts"]["done"] == 24  # type: ignore[index]
    loads = (tmp_path / "calm.log").read_text().count("load")
    assert loads == 2  # a worker of the stage on each node
    reduced = run_script(TWO_NODES, str(tmp_path / "reduced"), "remove")
    assert reduced["nodes"] == 1
    assert reduced["counts"] == calm["counts"]
    assert reduced["board"] == calm["board"]


PRIVATE_FOLDERS = """
import json, os, sys
from dataclasses import replace
from pathlib import Path
import numpy as np, ray
from generators.document import Image
from generators.pictures import Drawing
from trial import LIGHT, Witness, board, painter, plan_of, run, sample, writer

root, data, address = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
images = []
for shade in range(6):
    picture = Drawing(np.full((8, 8, 3), shade, np.uint8)).encoded()
    file = data / f"{shade}.png"
    file.write_bytes(picture.read())
    images.append(Image(picture.digest, place=str(file)))
ray.init(address, logging_level="ERROR", log_to_driver=False)
far = replace(LIGHT, num_cpus=2, batch_size=2)  # only the second node has two CPUs
plan = plan_of([sample(i, images=[images[i]]) for i in range(6)],
               write=writer(far), paint=[painter(0, far)], measure=far)
result = run(plan, root, address=address)
tokens = [p.name for p in (root / ".nodes").glob("*")]
print(json.dumps({"counts": dict(result.counts), "board": board(plan, root),
                  "tokens": tokens, "nodes": len(ray.nodes())}))
"""


@pytest.fixture
def private_node(tmp_path: Path) -> Iterator[tuple[Path, Path, str]]:
    """A head of one CPU, and a node of two CPUs that sees nothing of the two folders."""
    root, data = tmp_path / "run", tmp_path / "data"
    root.mkdir()
    data.mkdir()
    if subprocess.run(
        ["unshare", "-m", "true"], capture_output=True, check=False
    ).returncode:
        pytest.skip("needs the right to make a mount namespace")
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(CHECKOUT), str(HELPERS)]))
    python = sys.executable
    head = (
        "import ray; from ray.cluster_utils import Cluster; import os, sys, time\n"
        "c = Cluster(initialize_head=True, head_node_args={'num_cpus': 1})\n"
        "print(c.address, flush=True)\n"
        # Ray prints to the standard output that a node has given up.
        "out = os.fdopen(os.dup(1), 'w'); os.dup2(2, 1)\n"
        "ray.init(c.address, logging_level='ERROR', log_to_driver=False)\n"
        "while sum(n['Alive'] for n in ray.nodes()) < 2: time.sleep(0.1)\n"
        "print('joined', file=out, flush=True)\n"
        "sys.stdin.read(); ray.shutdown(); c.shutdown()\n"
    )
    first = subprocess.Popen(
        [python, "-c", head],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None
    assert first.stdin is not None
    address = first.stdout.readline().strip()
    mounts = f"mount -t tmpfs none {root} && mount -t tmpfs none {data}"
    join = f"{python} -m ray.scripts.scripts start --address={address} --num-cpus=2 --block"
    command = ["unshare", "-m", "sh", "-c", f"{mounts} && exec {join}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    second = subprocess.Popen(command, env=env, start_new_session=True, **quiet)
    while not select.select([first.stdout], [], [], 1.0)[0]:
        # A node whose agent starts too slowly on a busy machine gives up at once.
        if second.poll() is not None:
            second = subprocess.Popen(command, env=env, start_new_session=True, **quiet)
    assert first.stdout.readline().strip() == "joined"
    yield root, data, address
    second.terminate()
    second.wait(timeout=30)
    first.stdin.close()
    first.wait(timeout=30)


def test_folders_need_not_be_shared(private_node: tuple[Path, Path, str]) -> None:
    """Question pictures travel to the node, and results come back to the driver."""
    root, data, address = private_node
    outcome = run_script(PRIVATE_FOLDERS, str(root), str(data), address)
    assert outcome["counts"]["done"] == 6  # type: ignore[index]
    assert outcome["counts"]["scored"] == 6  # type: ignore[index]
    assert list(root.glob("stages/*/part-*.parquet"))


USERS_MODULES = """
import json, sys
from dataclasses import replace
from pathlib import Path

root, folder, address = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
(folder / "words").mkdir()
(folder / "words" / "__init__.py").write_text("GREETING = 'hello'")
(folder / "mine.py").write_text(
    "from stages import Writer; import words\\n"
    "class Greeter(Writer):\\n"
    "    def __init__(self, **settings):\\n"
    "        super().__init__(**settings | {'style': words.GREETING})\\n"
)
sys.path.append(str(folder))
import mine  # as the command line does for a system `mine:Greeter`
from cluster.store import Store
from trial import LIGHT, painter, plan_of, run, sample, writer

far = replace(LIGHT, num_cpus=2, batch_size=2)  # only the second node has two CPUs
write = replace(writer(far), target="mine:Greeter", secrets=())
plan = plan_of([sample(0)], write=write, paint=[painter(0, far)], measure=far)
result = run(plan, root, address=address)
print(json.dumps({"counts": dict(result.counts),
                  "texts": [r["text"] for r in Store(root).columns(write, ["text"])]}))
"""


def test_a_users_modules_reach_a_node_that_lacks_them(
    private_node: tuple[Path, Path, str],
) -> None:
    root, folder, address = private_node
    outcome = run_script(USERS_MODULES, str(root), str(folder), address)
    assert outcome["counts"]["done"] == 1  # type: ignore[index]
    assert outcome["texts"][0].startswith("hello: ")  # type: ignore[index]


def test_a_run_is_a_ray_job(tmp_path: Path) -> None:
    """`ray job submit` with the checkout as working directory, on a head of its own."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = dict(os.environ, RAY_AUTH_MODE="disabled", PATH=path)
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    # Ports of its own: the session's Ray holds the usual ones.
    agent = "--dashboard-agent-listen-port=28365"
    ports = ["--port=26379", "--dashboard-port=28265", agent]
    start = [*ray, "start", "--head", *ports, "--num-cpus=2", "--include-dashboard=true"]
    head = subprocess.Popen(
        [*start, "--block", "--disable-usage-stats"],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        done = _submitted(tmp_path, env, ray)
    finally:
        head.terminate()
        head.wait(timeout=30)
    assert "succeeded" in done, done[-3000:]
    board = json.loads((tmp_path / "run" / "leaderboard.json").read_text())
    assert [row["system"] for row in board] == ["gt"]
    assert board[0]["done"] > 30


def _wait_for(page: str, within_s: float = 60.0) -> None:
    """Return once `page` is there: a command that finds out takes seconds itself."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        with contextlib.suppress(OSError), urllib.request.urlopen(page, timeout=5):
            return
        time.sleep(0.2)


def _submitted(tmp_path: Path, env: dict[str, str], ray: list[str]) -> str:
    """What `ray job submit` printed; the head needs some seconds before it takes jobs."""
    out = str(tmp_path / "run")
    entry = [
        "python",
        "plait.py",
        "run",
        "--system",
        "gt",
        "--weights",
        "tiny",
        "--scorer",
        "bleu",
        "--out",
        out,
    ]
    address = "http://127.0.0.1:28265"
    _wait_for(f"{address}/api/version")
    submit = ["job", "submit", "--address", address, "--working-dir", str(CHECKOUT)]
    excludes = json.dumps({"excludes": [".git", ".venv", "tests", "runs"]})
    command = [*ray, *submit, "--runtime-env-json", excludes, "--", *entry]
    output = ""
    for _ in range(15):
        pipe = subprocess.PIPE
        done = subprocess.run(
            command, env=env, stdout=pipe, stderr=pipe, text=True, check=False
        )
        output = done.stdout + done.stderr
        if "try again later" not in output and "Failed to connect" not in output:
            return output
        time.sleep(1.0)
    return output
