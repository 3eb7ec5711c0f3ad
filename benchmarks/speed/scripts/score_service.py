"""Scores over HTTP beside a plain loop over the same scorer, by the number of clients.

    python -m plait.benchmarks.speed.scripts.score_service --out score-service.md

`loop` calls the scorer in this process, one answer after another. The others ask `plait
serve --scorer NAME` in a process of its own on the same machine: each client is a thread
with one connection that sends its next request once it has its reply, so that clients and
server share the processors. An answer is a text and an image of 64 x 64 pixels. `instant`
counts letters at once: what its scores take is what the service costs.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from PIL import Image as Pillow

from plait.benchmarks.local import LocalScorer, question
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.speed.scripts.common import Script
from plait.cluster.manifest import CHECKOUT, environment
from plait.generators.document import Image
from plait.generators.images import encode

SCORERS = {
    "instant": "plait.benchmarks.speed.scripts.instant:Brevity",
    "clipscore": "clipscore",
}
"""By the names of the table."""
CLIENTS = (1, 8, 64)
MOST_OF_REQUEST = 64
"""Items of a request of the batch form."""
HEAD = ("scorer", "how", "items/s", "x loop", "p50 ms", "p99 ms", "items a batch")
_WARMING = 16
_LEAST_FOR_TAIL = 100
_START_S = 300
_DIFFERENCE = 1e-4
"""By which a value over HTTP may differ: batched matrix products round differently."""


class Answer(NamedTuple):
    """What is scored: the same in the loop and over HTTP."""

    query: str
    text: str
    image: Image

    @property
    def item(self) -> dict[str, Any]:
        """As a request has it."""
        data = base64.b64encode(self.image.read()).decode()
        image = {"url": f"data:image/png;base64,{data}"}
        parts = [
            {"type": "text", "text": self.text},
            {"type": "image_url", "image_url": image},
        ]
        return {"query": self.query, "answer": parts}


@dataclass(frozen=True)
class Taken:
    """What was taken of one way to have items scored."""

    values: Sequence[float | None]
    """In the order of the answers."""
    wall_s: float
    request_s: Sequence[float]
    """From a request to its reply."""
    batch: float = math.nan
    """Mean size of the batches of all stages; not known of the loop."""

    @property
    def rate(self) -> float:
        """Items a second."""
        return len(self.values) / self.wall_s


@dataclass
class Client:
    """One connection to the server, which is kept."""

    root: str
    connection: http.client.HTTPConnection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(self.root).netloc)

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return a reply's body; RuntimeError for one that is not of status 200."""
        head = {"content-type": "application/json"}
        self.connection.request(method, path, body, head)
        reply = self.connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{path} answered {reply.status}: {content[:500]!r}")
        return content


def answers_of(count: int) -> list[Answer]:
    """Return answers that differ, with images of noise."""
    noise = np.random.default_rng(0)
    answers = []
    for number in range(count):
        pixels = noise.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        text = f"Picture {number}. " + "It shows a house. " * (number % 4)
        answers.append(Answer(f"query {number}", text, encode(Pillow.fromarray(pixels))))
    return answers


def with_loop(name: str, answers: Sequence[Answer]) -> Taken:
    """Score in this process, one answer after another."""
    scorer = LocalScorer.named(name, weights="tiny")
    for answer in answers[:_WARMING]:
        scorer(question(answer.query), [answer.text, answer.image.read()])
    values: list[float | None] = []
    seconds = []
    began = time.perf_counter()
    for answer in answers:
        asked = time.perf_counter()
        verdict = scorer(question(answer.query), [answer.text, answer.image.read()])
        seconds.append(time.perf_counter() - asked)
        values.append(verdict.value)
    return Taken(values, time.perf_counter() - began, seconds)


@contextlib.contextmanager
def serving(name: str) -> Iterator[str]:
    """Yield the address of `plait serve --scorer`, in a process of its own."""
    words = [sys.executable, "-m", "plait", "serve", "--scorer", name, "--weights", "tiny"]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(CHECKOUT / "src")}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [*words, "--port", "0"], env=environ, stdout=file, stderr=file
            )
        try:
            until = time.monotonic() + _START_S
            while (found := re.search(r" at (\S+)/score", log.read_text())) is None:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"{name} is not served: {log.read_text()}")
                time.sleep(0.05)
            yield found[1]
        finally:
            process.terminate()
            process.wait()


def with_server(root: str, answers: Sequence[Answer], clients: int, items: int) -> Taken:
    """Score over HTTP by so many clients, with so many items a request."""
    chunks = [answers[i : i + items] for i in range(0, len(answers), items)]
    bodies = [_body(chunk) for chunk in chunks]
    connections = [Client(root) for _ in range(clients)]
    values: dict[int, list[float | None]] = {}
    seconds: dict[int, float] = {}

    def work(client: int) -> None:
        for number in range(client, len(bodies), clients):
            asked = time.perf_counter()
            reply = json.loads(connections[client].ask("POST", "/score", bodies[number]))
            seconds[number] = time.perf_counter() - asked
            values[number] = [result["value"] for result in reply["results"]]

    before = _batches(root)
    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        for ended in [threads.submit(work, client) for client in range(clients)]:
            ended.result()
    wall_s = time.perf_counter() - began
    after = _batches(root)
    in_order: list[float | None] = []
    for number in range(len(bodies)):
        in_order += values[number]
    batch = (after.records - before.records) / (after.batches - before.batches)
    return Taken(in_order, wall_s, [*seconds.values()], batch)


def _body(answers: Sequence[Answer]) -> bytes:
    return json.dumps({"items": [answer.item for answer in answers]}).encode()


class _Batches(NamedTuple):
    records: float
    batches: float


def _batches(root: str) -> _Batches:
    """Return how many records the stages have computed, and in how many batches."""
    text = Client(root).ask("GET", "/metrics").decode()
    counted = dict.fromkeys(("sum", "count"), 0.0)
    for kind, number in re.findall(
        r"^plait_batch_size_(sum|count)\{.*\} (\S+)$", text, re.M
    ):
        counted[kind] += float(number)
    return _Batches(counted["sum"], counted["count"])


def measure(name: str, answers: Sequence[Answer]) -> dict[str, Taken]:
    """Measure every way; RuntimeError where their values differ."""
    taken = {"loop": with_loop(name, answers)}
    with serving(name) as root:
        with_server(root, answers[:_WARMING], 4, 1)
        for clients in CLIENTS:
            how = "1 client" if clients == 1 else f"{clients} clients"
            taken[how] = with_server(root, answers, clients, 1)
        how = f"1 client, {MOST_OF_REQUEST} items a request"
        taken[how] = with_server(root, answers, 1, MOST_OF_REQUEST)
    for how, one in taken.items():
        _check(name, how, taken["loop"].values, one.values)
    return taken


def _check(
    name: str, how: str, own: Sequence[float | None], other: Sequence[float | None]
) -> None:
    for number, (mine, theirs) in enumerate(zip(own, other, strict=True)):
        if mine is None or theirs is None or abs(mine - theirs) > _DIFFERENCE:
            raise RuntimeError(
                f"{name}: item {number} has the value {theirs} with {how}, and {mine} in "
                "the loop"
            )


def median_of(rounds: Sequence[Taken]) -> Taken:
    """Return the round with the median rate; of an even number the slower of the two."""
    ordered = sorted(rounds, key=lambda taken: taken.rate)
    return ordered[(len(ordered) - 1) // 2]


def row_of(scorer: str, how: str, taken: Taken, loop: Taken) -> list[str]:
    """Return one row of the table."""
    milliseconds = [1000 * seconds for seconds in taken.request_s]
    # Of fewer than a hundred requests, the 99th percentile would be the slowest one.
    tail = "-"
    if len(milliseconds) >= _LEAST_FOR_TAIL:
        tail = f"{quantiles(milliseconds, n=100, method='inclusive')[98]:.1f}"
    return [
        scorer,
        how,
        f"{taken.rate:,.0f}",
        f"{taken.rate / loop.rate:.2f}",
        f"{median(milliseconds):.1f}",
        tail,
        "-" if math.isnan(taken.batch) else f"{taken.batch:.1f}",
    ]


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write files where `--out` says."""
    script = Script(__doc__, "score_service", words)
    script.parser.add_argument("--items", type=int, default=512)
    script.parser.add_argument("--rounds", type=int, default=3)
    script.parser.add_argument("--scorer", choices=SCORERS, action="append", default=[])
    options = script.options()
    answers = answers_of(options.items)
    rows = []
    for scorer in options.scorer or SCORERS:
        rounds = [measure(SCORERS[scorer], answers) for _ in range(options.rounds)]
        for how in rounds[0]:
            taken = median_of([one[how] for one in rounds])
            loop = median_of([one["loop"] for one in rounds])
            rows.append(row_of(scorer, how, taken, loop))
    size = fmean(len(_body([answer])) for answer in answers) / 1024
    notes = [
        f"{options.items:,} answers each, of {size:.0f} KiB as a request; tiny weights. "
        f"Of {options.rounds} rounds with a server each, the one of median speed. A "
        "request's milliseconds are from sending to the whole reply. A batch that is not "
        "full waits 5 ms, so that a request of one client takes that much longer.",
    ]
    table = ResultTable.of("Scores over HTTP", HEAD, rows, notes)
    script.report("Scores over HTTP beside a loop", table, environment())


if __name__ == "__main__":
    main()
