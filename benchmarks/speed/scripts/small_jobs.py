"""A small job by a careful script and by plait, timed as whole processes and compared.

    python -m plait.benchmarks.speed.scripts.small_jobs --queries 40 --out small-jobs.md

Run it in the checkout. 4 LVLMs x 4 T2I models with tiny weights answer N queries, which
CLIPScore scores. `careful` is what a careful researcher would write: one process, no engine
and no store, one model after another at batch 1, every text written once. It calls plait's
own stages, which at batch 1 are as fast as a loop over transformers and diffusers, so that
answers can be compared. `plait` is `plait run`. They take turns, round by round.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import cycle, islice, product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.run_data import RunData
from plait.benchmarks.speed.scripts.common import CpuClock, Script
from plait.benchmarks.tasks.mmie.reader import SAMPLE
from plait.benchmarks.tasks.published import TaskSet
from plait.benchmarks.tasks.task_set import load
from plait.cluster.loading import load_stage
from plait.cluster.manifest import CHECKOUT, environment
from plait.cluster.record_values import with_bytes
from plait.cluster.walks import drive
from plait.generators.base import Result
from plait.generators.document import (
    Document,
    Image,
    ImageRequest,
    Query,
    Request,
    Text,
    with_blobs,
)
from plait.generators.images import decode
from plait.generators.system import Repetition
from plait.pipelines.systems import Models, lvlm_spec, t2i_spec
from plait.scorers.clipscore import ClipScorer

LVLMS = ("qwen2-vl-72b", "qwen2-vl-7b", "llava-34b", "hf:llava-hf/llava-v1.6-34b-hf")
"""Every LVLM with tiny weights; the last reads queries with several images, too."""
T2I_MODELS = ("openjourney", "sd3", "sdxl", "flux")
"""Those of the MMIE paper's Table 2."""
Times = dict[str, list[tuple[float, float]]]
"""Variant -> wall and CPU seconds of each round."""
TINY = Models(weights="tiny")
TOLERANCES = {"texts": 0.0, "images": 2.0, "scores": 0.01}
"""Largest difference of equal answers: grey levels of a pixel, CLIPScore (0 to 2.5). Where
batches are of another size, floating-point sums are too."""
HEAD = ["queries", "variant", "wall s", "range", "CPU s", "x wall", "x CPU", "equal"]
Answers = dict[tuple[str, ...], Any]
"""By kind and names: ("texts", LVLM, query), ("images" or "scores", LVLM, T2I, query)."""


def write_queries(folder: Path, queries: int) -> Path:
    """Write queries of the sample set in MMIE's format; return the folder.

    Each begins with its number, so that no two are equal.
    """
    folder.mkdir(parents=True)
    (folder / "images").symlink_to(SAMPLE / "images", target_is_directory=True)
    published = json.loads((SAMPLE / "data.json").read_text())
    rows = [copy.deepcopy(row) for row in islice(cycle(published), queries)]
    for number, row in enumerate(rows, start=1):
        first = row["conversations"][0]["content"][0]
        first["text"] = f"Query {number}. {first['text'] or ''}"
        row["id"] = f"{row['id']}-{number}"
    (folder / "data.json").write_text(json.dumps(rows))
    load(str(folder))  # images are checked once and remembered
    return folder


def careful(data: Path, out: Path) -> None:
    """Answer the queries in `data` with every pairing, score the answers, write them."""
    task = load(str(data))
    queries = [query for query in task.samples if isinstance(query, Query)]
    texts = _texts(task, queries)
    images = _images(task, queries, texts)
    answers = Answers()
    for (lvlm, query_id), text in texts.items():
        answers["texts", lvlm, query_id] = text
    scorer = ClipScorer.of("clipscore", "tiny", {})
    embed = load_stage(scorer.stage)
    queries_by_id = {query.id: query for query in queries}
    for (lvlm, t2i, query_id), image in images.items():
        document = Document((Text(texts[lvlm, query_id]), image))
        score = drive(
            scorer.judge(queries_by_id[query_id], document),
            lambda jobs: embed([job.input for job in jobs]),
        )
        if isinstance(score, Result):
            answers["scores", lvlm, t2i, query_id] = score.value.value
            answers["images", lvlm, t2i, query_id] = np.asarray(decode(image.read()))
    out.write_bytes(pickle.dumps(answers))


def _texts(task: TaskSet, queries: Sequence[Query]) -> dict[tuple[str, str], str]:
    """Return the answers of each LVLM, by its name and the query."""
    texts = {}
    for lvlm in LVLMS:
        write = load_stage(lvlm_spec(lvlm, TINY))
        for query in queries:
            request = with_blobs(Request(task.prompt(query, "text")), with_bytes)
            outcome = write([request])[0]
            if isinstance(outcome, Result):
                texts[lvlm, query.id] = outcome.value.text
    return texts


def _images(
    task: TaskSet, queries: Sequence[Query], texts: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str, str], Image]:
    """Return what each T2I model draws of each text, by LVLM, T2I model and query."""
    images = {}
    seed_of = Repetition(task.prompt).seed_at
    wanting = [query for query in queries if query.wants_images]
    for t2i in T2I_MODELS:
        draw = load_stage(t2i_spec(t2i, TINY))
        for lvlm, query in product(LVLMS, wanting):
            text = texts.get((lvlm, query.id))
            if text is None:
                continue
            request = ImageRequest(prompt=text.strip(), seed=seed_of(query, 0))
            outcome = draw([request])[0]
            if isinstance(outcome, Result):
                images[lvlm, t2i, query.id] = outcome.value.encoded()
    return images


def answers_of_run(root: Path) -> Answers:
    """Read the answers that `plait run` has stored."""
    run = RunData.at(root)
    answers = Answers()
    for answer in run.answers():
        if answer.document is None:
            continue
        names = (*answer.system.split("+"), answer.query.id)
        document = answer.document.plain
        score = answer.scores["clipscore"].value
        answers["texts", names[0], names[2]] = document.text
        if document.images and score is not None:
            answers["images", *names] = np.asarray(decode(run.read(document.images[0])))
            answers["scores", *names] = score
    return answers


def agreement(one: Answers, other: Answers) -> dict[str, tuple[int, int]]:
    """Count by kind the answers that are equal within `TOLERANCES`, and all answers."""
    same = [key[0] for key in one.keys() & other.keys() if _equal(key, one, other)]
    every = [key[0] for key in one.keys() | other.keys()]
    return {kind: (same.count(kind), every.count(kind)) for kind in TOLERANCES}


def _equal(key: tuple[str, ...], one: Answers, other: Answers) -> bool:
    a = one[key]
    b = other[key]
    if key[0] == "texts" or np.shape(a) != np.shape(b):
        return bool(np.array_equal(a, b))
    return bool(np.abs(np.subtract(a, b, dtype=float)).max() <= TOLERANCES[key[0]])


def command_of(variant: str, data: Path, out: Path) -> list[str]:
    """Return the command of `careful` or `plait`."""
    if variant == "careful":
        module = "plait.benchmarks.speed.scripts.small_jobs"
        return [sys.executable, "-m", module, "--careful", str(data), str(out)]
    run = [sys.executable, "-m", "plait", "run", "--weights", "tiny", "--data", str(data)]
    pairings = [f"--system={lvlm}+{t2i}" for lvlm, t2i in product(LVLMS, T2I_MODELS)]
    return [*run, *pairings, "--scorer=clipscore", f"--out={out}"]


def time_command(command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return wall and CPU seconds, also of all that it starts."""
    with CpuClock(every_s=0.1) as clock:
        began = time.monotonic()
        subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, check=True)
        wall_s = time.monotonic() - began
    return wall_s, clock.at(math.inf)


def measure(queries: int, rounds: int) -> tuple[Times, dict[str, tuple[int, int]]]:
    """Time both variants in every round; compare the answers of the first."""
    times: Times = {"careful": [], "plait": []}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        data = write_queries(root / "queries", queries)
        for number, variant in product(range(rounds), times):
            command = command_of(variant, data, root / f"{variant}-{number}")
            times[variant].append(time_command(command))
            print(f"round {number + 1}: {variant}, wall and CPU s:", times[variant][-1])
        script = pickle.loads((root / "careful-0").read_bytes())
        return times, agreement(script, answers_of_run(root / "plait-0"))


def table_of(
    times: Times, equal: Mapping[str, tuple[int, int]], queries: int
) -> ResultTable:
    """Return one row per variant: medians, and ratios to the script round by round."""
    cells = []
    first_walls, first_cpus = zip(*times["careful"], strict=True)
    agreed = ", ".join(f"{n:,} of {m:,} {kind}" for kind, (n, m) in equal.items())
    for variant, own in times.items():
        walls, cpus = zip(*own, strict=True)
        cells.append(
            [
                str(queries),
                variant,
                f"{median(walls):.1f}",
                f"{min(walls):.1f}-{max(walls):.1f}",
                f"{median(cpus):.1f}",
                f"{_median_ratio(walls, first_walls):.2f}",
                f"{_median_ratio(cpus, first_cpus):.2f}",
                agreed if variant == "plait" else "-",
            ]
        )
    title = "4 LVLMs x 4 T2I models, tiny weights, CLIPScore"
    notes = ["equal: same text, pixels within 2 grey levels, scores within 0.01"]
    rounds = len(first_walls)
    return ResultTable.of(f"{title}; median of {rounds}", HEAD, cells, notes)


def _median_ratio(own: Sequence[float], first: Sequence[float]) -> float:
    """Return the median of the ratios of each round."""
    return median(one / other for one, other in zip(own, first, strict=True))


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print the table and write files; return 1 where answers differ."""
    script = Script(__doc__, "small_jobs", words)
    script.parser.add_argument("--queries", type=int, default=40)
    script.parser.add_argument("--rounds", type=int, default=3)
    script.parser.add_argument("--careful", type=Path, nargs=2, help=argparse.SUPPRESS)
    options = script.options()
    if options.careful:
        careful(*options.careful)
        return 0
    times, equal = measure(options.queries, options.rounds)
    script.report("Small jobs", table_of(times, equal, options.queries), environment())
    return int(any(n < m for n, m in equal.values()))


if __name__ == "__main__":
    sys.exit(main())
