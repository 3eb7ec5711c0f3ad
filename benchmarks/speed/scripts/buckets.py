"""A run in a bucket beside the same run in a folder: seconds, and requests to the server.

    python -m plait.benchmarks.speed.scripts.buckets --records 100000

Run it in the checkout, with what `.[dev]` installs: moto's S3 server, which answers in
milliseconds where a provider takes tens of them, so that requests say more than seconds.
`run` makes the records in one process by a stage that does nothing, in batches of 8, and
joins their parts. `open` reads what is kept in memory of every record, as each command
does: of that run, and of one that was killed before its parts were joined.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server

from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.speed.scripts.common import Script
from plait.benchmarks.speed.scripts.orchestration import BATCH_SIZE, samples_of, spec_of
from plait.cluster.manifest import environment
from plait.cluster.plan import EngineOptions, Plan
from plait.cluster.records import Item, encode
from plait.cluster.run import execute
from plait.cluster.store import Store, write_part
from plait.cluster.watcher import Watcher
from plait.generators.base import Kind, Result
from plait.generators.buckets import AnyPath, any_path
from plait.generators.document import Draft, Request, Text
from plait.generators.writing import NativeSystem

SPEC = spec_of(0)
_REQUEST = re.compile(rb'"[A-Z]+ [^"]* HTTP/1\.1"')


@contextmanager
def server(folder: Path) -> Iterator[Callable[[], int]]:
    """Start an S3 server with the bucket `measured`; how many requests it has answered."""
    with create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    endpoint = f"http://127.0.0.1:{port}"
    log = folder / "server.log"
    os.environ |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
    os.environ |= {"AWS_ACCESS_KEY_ID": "measured", "AWS_SECRET_ACCESS_KEY": "measured"}
    command = [sys.executable, "-m", "moto.server", "-p", port]
    with log.open("wb") as file, subprocess.Popen(command, stderr=file) as process:
        try:
            _create_bucket(f"{endpoint}/measured")
            yield lambda: len(_REQUEST.findall(log.read_bytes()))
        finally:
            process.kill()


def _create_bucket(url: str) -> None:
    """Ask until the server answers."""
    request = urllib.request.Request(url, method="PUT")
    for attempt in range(100):
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except urllib.error.URLError:
            if attempt == 99:
                raise
            time.sleep(0.2)
        else:
            return


def run(root: AnyPath, records: int) -> None:
    """Make records as `plait run` does, by workers that are threads."""
    samples = samples_of(records // BATCH_SIZE)
    system = NativeSystem(name="idle", draft=SPEC)
    plan = Plan(systems=[system], queries=samples, scorers=[], prompt=lambda s, _: s.turns)
    execute(plan, root, EngineOptions(executor="local"), {}, Watcher())


def leave_parts(root: AnyPath, records: int) -> None:
    """Write parts as a run leaves them that is killed at its end."""
    answer = Result(Draft((Text("words " * 40),)))
    for start in range(0, records, BATCH_SIZE):
        names = (f"s{i}" for i in range(start, start + BATCH_SIZE))
        items = [Item(name, name, Request(())) for name in names]
        table = encode(Kind.DRAFT, items, [answer] * BATCH_SIZE, 0.0)
        write_part(root / "stages" / SPEC.folder, table)


def open_run(root: AnyPath, records: int) -> None:
    """Read the heads of all records; RuntimeError where some are not there."""
    if len(Store(root).rows(SPEC)) != records:
        raise RuntimeError(f"{root} does not hold {records} records")


def _measure(
    step: Callable[[AnyPath, int], None],
    root: AnyPath,
    records: int,
    requests: Callable[[], int],
) -> tuple[float, int]:
    """Return the seconds that a step takes, and the requests that it sends."""
    before = requests()
    began = time.perf_counter()
    step(root, records)
    return time.perf_counter() - began, requests() - before


def main(words: list[str] | None = None) -> None:
    """Measure each once in a folder and in a bucket, and print and write the table."""
    script = Script(__doc__, "buckets", words)
    script.parser.add_argument("--records", type=int, default=100_000)
    records: int = script.options().records // BATCH_SIZE * BATCH_SIZE
    about = environment()
    rows = []
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as requests:
        for place, root in (
            ("folder", Path(folder)),
            ("bucket", any_path("s3://measured")),
        ):
            for what, name, step in (
                ("run", "run", run),
                ("open", "run", open_run),
                ("leave parts", "killed", leave_parts),
                ("open, killed", "killed", open_run),
            ):
                seconds, sent = _measure(step, root / name, records, requests)
                each = f"{sent / records:.4f}"
                rows.append((what, place, f"{seconds:.2f}", f"{sent:,}", each))
    head = ("what", "where", "seconds", "requests", "requests per record")
    title = f"{records:,} records in a folder and in a bucket"
    script.report(title, ResultTable.of(title, head, rows), about)


if __name__ == "__main__":
    main()
