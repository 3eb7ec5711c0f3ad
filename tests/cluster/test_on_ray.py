"""What only Ray shows: workers that are processes, and processes that are killed for real.

`make soak` runs many more seeds of the same.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from faults import command, disturbed, undisturbed
from ray.exceptions import RayError, RuntimeEnvSetupError
from trial import (
    LIGHT,
    Witness,
    as_asked,
    board,
    outcomes,
    painter,
    plan_of,
    run,
    sample,
    system_of_stages,
    writer,
)

from plait.cluster.executors import exits, holders, on_ray, probe
from plait.cluster.executors.base import ClusterError
from plait.cluster.lock import self_description
from plait.cluster.plan import EngineOptions, Evaluation, Plan, evaluations
from plait.cluster.run import execute
from plait.cluster.store import Store, StoreError
from plait.cluster.tracing.sessions import read_sessions
from plait.cluster.watcher import LOG, RunProgress
from plait.generators.base import Failure, Fault, Result
from plait.pipelines.composition import text_only

pytestmark = pytest.mark.ray


@pytest.mark.usefixtures("ray_address")
def test_processes_make_what_threads_make_whatever_the_batch_size(tmp_path: Path) -> None:
    samples, boards = [sample(i) for i in range(9)], []
    for size, executor in ((1, "ray"), (16, "local")):
        placement = replace(LIGHT, batch_size=size)
        plan = plan_of(samples, write=writer(placement), paint=[painter(0, placement)])
        run(plan, tmp_path / executor, executor=executor)
        boards.append(board(plan, tmp_path / executor))
    assert boards[0] == boards[1]


@pytest.mark.usefixtures("ray_address")
def test_two_stages_share_a_process(tmp_path: Path) -> None:
    """The session's Ray has 4 CPUs: one worker at a time."""
    log, wide = tmp_path / "log", replace(LIGHT, num_cpus=3)
    specs = [
        replace(writer(wide, style=name, log=log), name=name, stage="writer")
        for name in ("first", "second")
    ]
    systems = [system_of_stages(name=s.name, draft=s, compose=text_only) for s in specs]
    samples = [sample(i) for i in range(6)]
    plan = Plan(systems=systems, queries=samples, scorers=[], prompt=as_asked)
    assert run(plan, tmp_path / "run").counts["done"] == 12
    first, second = (x for x in log.read_text().splitlines() if "load" in x)
    assert first == second
    (session,) = read_sessions(tmp_path / "run")
    assert [w.stage for w in session.workers] == ["first", "second"]
    assert session.workers[0].end <= session.workers[1].begin
    assert all(w.ready is not None and w.batches for w in session.workers)


def own_system(given: object) -> Plan:
    spec = replace(writer(), given=given, target="__main__:Given")
    system = system_of_stages(name="own", draft=spec, compose=text_only)
    return Plan(systems=[system], queries=[sample(0)], scorers=[], prompt=as_asked)


@pytest.mark.usefixtures("ray_address")
def test_a_stage_that_no_module_has_is_sent_by_value(tmp_path: Path) -> None:
    class Inner:
        def __init__(self, word: str) -> None:
            self.word = word

        def __call__(self, requests: list[object]) -> list[list[str]]:
            return [[self.word] for _ in requests]

    plan = own_system(Inner("by value"))
    assert run(plan, tmp_path).counts["done"] == 1
    (evaluation,) = evaluations(plan, Store(tmp_path))
    assert isinstance(evaluation.document, Result)
    assert evaluation.document.value.text == "by value"


@pytest.mark.usefixtures("ray_address")
def test_a_stage_that_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    class Locked:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __call__(self, requests: list[object]) -> list[object]:
            return []

    with pytest.raises(ClusterError, match=r"writer.*lock.*local"):
        run(own_system(Locked()), tmp_path)


@pytest.mark.usefixtures("ray_address")
def test_workers_do_not_give_way_to_tests_that_compute() -> None:
    """As `WORKERS_IN_TIME` asks of Ray, which heeds no name that it does not know."""
    niceness = ray.remote(num_cpus=0.1)(lambda: os.nice(0))
    assert ray.get(niceness.remote()) == os.nice(0)


def unreadable(evaluations: Iterator[Evaluation], store: Store) -> Iterator[Evaluation]:
    raise StoreError("Input/output error")


@pytest.mark.usefixtures("ray_address")
def test_a_record_that_kills_or_hangs_its_process_is_set_aside_and_all_is_logged(
    tmp_path: Path,
) -> None:
    texts = ["", "!raise", "!kill", "!hang", "!complain"]
    samples = [sample(i, text) for i, text in enumerate(texts)]
    place = replace(LIGHT, batch_size=1, batch_timeout_s=2.0)
    plan, witness = plan_of(samples, write=writer(place), paint=[painter()]), Witness()
    with pytest.raises(StoreError):
        execute(plan, tmp_path, EngineOptions(), {}, witness, unreadable)
    assert json.loads((tmp_path / "manifest.json").read_text())["status"] == "interrupted"
    ended = {id: o for (_, id), o in outcomes(plan, tmp_path).items()}
    faults = {s.id: o.fault for s in samples if isinstance(o := ended[s.id], Failure)}
    assert list(faults.values()) == [Fault.ERROR, Fault.DIED, Fault.TIMEOUT]
    assert {(f.stage, f.kind) for f in witness.failures} == {
        ("writer", "died"),
        ("writer", "timed out"),
    }
    about = json.loads((tmp_path / "manifest.json").read_text())["worker_failures"]
    assert about["total"] == len(witness.failures) >= 6  # three for each of the two
    run(plan_of(samples[:1], write=writer(place)), tmp_path)
    again = json.loads((tmp_path / "manifest.json").read_text())["worker_failures"]
    assert again == about  # of all commands

    log = (tmp_path / LOG).read_text()
    for text in (
        "complaint about 'query 4 !complain'",
        "complaint of a native library",
        "Traceback (most recent call last)",
        "cannot draft 'query 1 !raise'",
    ):
        assert text in log
    assert log.count("took longer than 2 s") >= 3
    (session, _) = read_sessions(tmp_path)
    lost = [d for w in session.workers for d in w.did if d.name == "lost"]
    assert len(lost) >= 6
    killed = {f.reason for f in witness.failures if f.kind == "died"}
    known = "the worker was killed (signal 9)" if kernel_tells() else exits.UNKNOWN
    assert killed == {f"worker died: {known}"}


NO_ENVIRONMENT = RuntimeEnvSetupError("Could not create the actor.\nTypeError: no path")
NO_IMPORT = RayError(
    "The actor died because of an error raised in its creation task, ray::Worker\n"
    "ImportError: no module"
)
KILLED = RayError(
    "The actor died.\n\tWorker killed by SIGKILL. Some common causes include: x"
)


def of_end(detail: str, actor: str = "") -> RayError:
    """As Ray 2.60 says it."""
    return RayError(
        "The actor died unexpectedly before finishing this task.\n\tclass_name: A\n"
        f"\tactor_id: {actor}\n\tpid: 1\n\tip: 192.0.2.2\n"
        "The actor is dead because its worker process has died. "
        f"Worker exit type: SYSTEM_ERROR Worker exit detail: {detail}"
    )


def silent(actor: str) -> RayError:
    return of_end(
        "Worker unexpectedly exits with a connection error code 2. End of file. Some "
        "common causes include: (1) the process was killed by the OOM killer",
        actor,
    )


TERMINATED = of_end(
    "Worker exits unexpectedly. Worker exits with an exit code 1. The process receives a "
    "SIGTERM."
)
ENDED = of_end("Worker exits unexpectedly. Worker exits with an exit code 3.")
NO_MEMORY = RayError(
    "1 worker(s) were killed due to the node running low on memory. Memory on the node "
    "(IP: 192.0.2.2, ID: 52) was 5.20GB used / 23.54GB limit (0.221038)\n"
    "OOM kill reason: Memory usage 5578588160B exceeded threshold of 5560830464B"
)


@pytest.mark.parametrize(
    ("error", "reason", "refused"),
    [
        (NO_ENVIRONMENT, "TypeError: no path", True),
        (NO_IMPORT, "ImportError: no module", True),
        (KILLED, "Worker killed by SIGKILL.", False),
        (silent("a1"), exits.UNKNOWN, False),
        (TERMINATED, "the worker was killed (signal 15)", False),
        (ENDED, "the worker's process ended itself (exit status 3)", False),
        (
            NO_MEMORY,
            "Ray has killed the worker because memory was short: "
            "5.20GB used / 23.54GB limit",
            False,
        ),
    ],
)
def test_what_ray_says_of_a_lost_host(error: Exception, reason: str, refused: bool) -> None:
    lost = on_ray.host_lost(error)
    assert (str(lost), lost.refused) == (reason, refused)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("kill -9 $$", "the worker was killed (signal 9)"),
        ("kill -11 $$", "the worker was killed (signal 11)"),
        ("exit 4", "the worker's process ended itself (exit status 4)"),
    ],
)
def test_the_kernel_knows_how_a_process_ended(command: str, reason: str) -> None:
    if not kernel_tells():
        pytest.skip("Linux 6.15 and later tell how a process ended")
    watched = exits.LocalExits()
    words = ["sh", "-c", f"read word; {command}"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE)
    watched.follow("a1", {**self_description(), "pid": process.pid})
    process.communicate(b"go\n")
    assert str(on_ray.host_lost(silent("a1"), watched)) == reason
    assert str(on_ray.host_lost(silent("a1"), watched)) == exits.UNKNOWN


def test_a_process_of_another_system_is_not_asked_about() -> None:
    watched = exits.LocalExits()
    watched.follow("a1", {**self_description(), "namespace": "pid:[1]"})
    assert watched.status("a1") is None


def kernel_tells() -> bool:
    release = tuple(map(int, platform.release().split("-")[0].split(".")[:2]))
    return platform.system() == "Linux" and release >= (6, 15)


def test_who_holds_the_resources_of_a_cluster_is_said_by_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holders, "is_stopped", lambda pid: pid in (8, 9))
    holds = [("01", {"CPU": 2.0}), ("02", {"CPU": 1.0, "GPU": 1.0}), ("02", {"GPU": 0.5})]
    holds += [("03", {}), ("04", {"CPU": 8.0}), ("05", {"CPU": 1.0}), ("06", {"GPU": 1.0})]
    actors = [SimpleNamespace(job_id=j, required_resources=r) for j, r in holds]
    known = {"02": SimpleNamespace(pid="7", node_ip_address="10.0.0.1")}
    known["05"] = SimpleNamespace(pid="8", node_ip_address="10.0.0.1")
    known["06"] = SimpleNamespace(pid="9", node_ip_address="10.0.0.2")
    lines = holders.in_words(actors, known, "04", "10.0.0.1")
    assert lines == [
        "2 CPU by job 01",
        "1.5 GPU, 1 CPU by process 7 on 10.0.0.1",
        "1 CPU by process 8 on 10.0.0.1, which is stopped",
        "1 GPU by process 9 on 10.0.0.2",
    ]


def test_a_ray_that_a_run_starts_for_itself_never_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert probe.is_local(None)
    assert not probe.is_local("auto")
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert not probe.is_local(None)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("alive", [True, False])
def test_a_head_that_is_gone_ends_a_run_and_is_not_waited_for(
    alive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it Ray does not answer; after a minute it would end the process.

    The nodes may be lost just before it, so that Ray has named none.
    """
    head, answered = "10.0.0.1:6379", threading.Event()
    about = {"Alive": alive, "Resources": {"CPU": 2.0}, "NodeID": "n"}
    about |= {"NodeManagerAddress": "10.0.0.1", "NodeManagerPort": 1}
    monkeypatch.setattr("ray.nodes", lambda: [about])
    executor = on_ray.RayExecutor(fixed=False, head=head)
    nodes = executor.nodes()
    assert [node.id for node in nodes] == ["n"] * alive
    monkeypatch.setattr("ray.nodes", lambda: answered.wait() and [])
    monkeypatch.setattr(on_ray, "_NODES_LIMIT_S", 0.01)
    assert executor.nodes() == nodes
    assert executor.signs is not None
    executor.signs.note(head, executor.now() - 100, accepted=True)
    executor.signs.note(head, executor.now() - 98, accepted=False)
    with pytest.raises(ClusterError, match=head):
        executor.nodes()
    answered.set()


@pytest.mark.parametrize(
    ("late", "reason", "raised"),
    [
        (2, "timed out during startup", False),
        (3, "timed out during startup", True),
        (1, "no such port", True),
    ],
)
def test_a_local_ray_that_starts_late_is_ended_and_started_again(
    monkeypatch: pytest.MonkeyPatch, late: int, reason: str, raised: bool
) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    def init(**_: object) -> str:
        begun.append(subprocess.Popen(["sleep", "600"]))
        if len(begun) <= late:
            raise Exception(f"The current node {reason}.")
        return "context"

    monkeypatch.setattr("ray.init", init)
    try:
        if raised:
            with pytest.raises(Exception, match=reason):
                on_ray.start_local()
        else:
            assert on_ray.start_local() == "context"
        assert len(begun) == late + (not raised)
        assert [p.wait(60) for p in begun[:-1]] == [-signal.SIGKILL] * (len(begun) - 1)
        assert begun[-1].poll() is None
    finally:
        for process in begun:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("environ", "sent"),
    [
        ({}, True),
        ({"RAY_AUTH_MODE": "token"}, True),
        ({"RAY_AUTH_MODE": "disabled"}, False),
        ({"RAY_AUTH_TOKEN": "x" * 64}, False),
    ],
)
def test_a_local_ray_has_a_token_of_its_own_and_leaves_none_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environ: dict[str, str], sent: bool
) -> None:
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    seen: list[dict[str, str]] = []

    def init(**_: object) -> None:
        seen.append({name: os.environ[name] for name in names if name in os.environ})
        os.environ["RAY_AUTH_MODE"] = "token"  # as Ray does

    monkeypatch.setattr("ray.init", init)
    on_ray.start_local()
    on_ray.start_local()
    # Ray remembers the first token of a process.
    assert seen[0] == seen[1]
    assert (seen[0] != environ) == sent
    if sent:
        assert len(seen[0]["RAY_AUTH_TOKEN"]) == 64
    assert {name: os.environ[name] for name in names if name in os.environ} == environ


@pytest.mark.parametrize(
    "error",
    [OSError("AF_UNIX path length"), PermissionError("ray"), FileNotFoundError("ray")],
)
def test_a_temporary_folder_that_ray_cannot_use_is_named(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def init(**_: object) -> None:
        raise error

    monkeypatch.setenv("RAY_TMPDIR", "/no/such/folder")
    monkeypatch.setattr("ray.init", init)
    with pytest.raises(ClusterError, match="/no/such/folder"):
        on_ray.start_local()


# ------------------------------------------------------------------- drivers and kills


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, trial_env: dict[str, str]) -> bytes:
    return undisturbed(tmp_path_factory.mktemp("calm") / "run", trial_env)


def test_kills_at_random_moments_change_nothing(
    tmp_path: Path, trial_env: dict[str, str], calm: bytes
) -> None:
    disturbance = disturbed(tmp_path / "run", trial_env, 1, calm)
    assert disturbance.worker_kills + disturbance.driver_kills >= 1
    assert (disturbance.missing, disturbance.duplicated) == (0, 0)
    assert disturbance.identical


def test_an_interrupt_leaves_a_store_that_resumes(
    tmp_path: Path, trial_env: dict[str, str], calm: bytes
) -> None:
    """SIGINT, as of Ctrl-C; Slurm's tests send SIGTERM."""
    root, log, gate = tmp_path / "run", tmp_path / "log", tmp_path / "gate"
    words = [*command(root, log), "--gate", str(gate)]
    with (tmp_path / "said").open("w") as said:
        driver = subprocess.Popen(words, env=trial_env, stdout=said, stderr=said)

    def wait_until(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 240
        while not condition():
            assert driver.poll() is None, (tmp_path / "said").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    wait_until(lambda: list(root.glob("stages/writer*/part-*")))
    driver.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping" in (root / "run.log").read_text())
    gate.touch()  # batches in flight end
    assert driver.wait(timeout=240) == 128 + signal.SIGINT
    manifest = json.loads((root / "manifest.json").read_text())
    assert manifest["status"] == "interrupted"
    assert manifest["counts"]["missing"] > 0
    assert not (root / "run.lock").exists()
    again = subprocess.run(command(root, log), env=trial_env, capture_output=True)
    assert again.returncode == 1  # the poisoned records, as in the calm run
    assert (root / "leaderboard.json").read_bytes() == calm


# Sends TERM to itself before or after a call of Ray's.
TOLD_TO_STOP = """
import os, ray, runpy, signal, sys
name, moment, *sys.argv = sys.argv[1:]
real = getattr(ray, name)
def call(*args, **options):
    if moment == "before":
        os.kill(os.getpid(), signal.SIGTERM)
    answer = real(*args, **options)
    if moment == "after":
        os.kill(os.getpid(), signal.SIGTERM)
    return answer
setattr(ray, name, call)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("name", "moment", "drafted"),
    [
        pytest.param("init", "before", 0, marks=pytest.mark.slow),
        ("init", "after", 0),
        ("shutdown", "before", 6),
    ],
)
def test_a_signal_while_ray_starts_or_ends_is_kept_from_ray(
    tmp_path: Path, trial_env: dict[str, str], name: str, moment: str, drafted: int
) -> None:
    root = tmp_path / "run"
    words = [*command(root, tmp_path / "log"), "--samples", "6"]
    words[1:1] = ["-c", TOLD_TO_STOP, name, moment]
    done = subprocess.run(words, env=trial_env, capture_output=True, text=True, check=False)
    assert done.returncode == 143, done.stderr
    manifest = json.loads((root / "manifest.json").read_text())
    assert manifest["status"] == "interrupted"
    assert len(Store(root).rows(writer())) == drafted
    assert (root / "leaderboard.json").exists()
    assert not (root / "run.lock").exists()
    log = (root / "run.log").read_text()
    assert log.index("stopping") < log.index("run ended")


class Backlog(Witness):
    """Holds up the scorer until 100 images wait; watches how large this process grows."""

    def __init__(self, gate: Path) -> None:
        super().__init__()
        self.gate = gate
        self.sizes: list[int] = []

    def turn(self, progress: RunProgress) -> None:
        super().turn(progress)
        by_name = {s.name: sum(s.outcomes.values()) for s in progress.stages}
        ahead = by_name.get("painter0", 0) - by_name.get("measure", 0)
        if ahead >= 100:
            self.gate.touch()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.sizes.append(pages * 4096)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_address")
def test_memory_stays_bounded_when_the_last_stage_is_slow(tmp_path: Path) -> None:
    """Images wait in the store, not in the driver and not in Ray's object store."""
    one = replace(LIGHT, batch_size=4, workers=1)
    large = painter(0, one, pixels=512)
    witness = Backlog(tmp_path / "gate")
    options = {"paint": [large], "measure": one, "after": str(witness.gate)}
    plan = plan_of([sample(i) for i in range(120)], **options)
    assert run(plan, tmp_path, witness).counts["scored"] == 120
    assert witness.gate.exists()
    stored = sum(p.stat().st_size for p in tmp_path.glob("stages/painter*/part-*"))
    assert stored > 80 << 20
    assert max(witness.sizes) - witness.sizes[0] < 40 << 20
    used = ray.cluster_resources()["object_store_memory"]
    free = ray.available_resources().get("object_store_memory", used)
    assert used - free < 40 << 20
