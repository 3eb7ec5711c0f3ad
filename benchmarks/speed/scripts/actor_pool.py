"""The peer of `engine_cost`: what a careful researcher writes around Ray's ActorPool.

    python actor_pool.py DATA OUT --batch 8 [--calls 2] [--systems 2] [--scorers 3]

Two actors answer batches of queries and score the answers, in the same call or, with
`--calls 2`, in a second one that reads the answers back from their file. Each batch is one
Parquet file under a temporary name that is renamed once it is complete; the same command
again leaves out what is there, by system and id. There is no fsync, no checksum, no key, no
retry, and no table beyond the means. It imports nothing of plait.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import ray
from PIL import Image
from ray.util import ActorPool

ACTORS = 2
SCORERS = {
    "brevity": lambda text: float(len(text)),
    "words": lambda text: float(len(text.split())),
    "vowels": lambda text: float(sum(map(text.count, "aeiou"))),
}
Row = dict[str, Any]


def scores_place(answers: Path) -> Path:
    """Return the file of the scores of a file of answers."""
    return answers.with_name(answers.name.replace("answers", "scores", 1))


class Actor:
    """Answers and scores; both write what they have made."""

    def __init__(self, out: str, scorers: Sequence[str], calls: int) -> None:
        self.out = Path(out)
        self.scorers = scorers
        self.calls = calls

    def answer(self, system: int, queries: Sequence[Row]) -> tuple[str, list[Row]]:
        """Answer; return the file, and the scores where they are made in this call."""
        rows = [self._answer(system, query) for query in queries]
        if self.calls == 1:
            rows = [row | self._scores(row["text"]) for row in rows]
        place = self._write(f"answers-{system}-{rows[0]['id']}", rows)
        return place, self._heads(rows) if self.calls == 1 else []

    def score(self, place: str) -> tuple[str, list[Row]]:
        """Score the answers of a file; return the new file and the scores."""
        answers = pq.read_table(place, columns=["id", "system", "text"]).to_pylist()
        rows = [a | self._scores(a.pop("text")) for a in answers]
        return self._write(scores_place(Path(place)).stem, rows), rows

    def _answer(self, system: int, query: Row) -> Row:
        content = query["conversations"][0]["content"]
        asked = "".join(part["text"] for part in content)
        number = int(hashlib.md5(asked.encode()).hexdigest()[:6], 16) + system
        file = io.BytesIO()
        colour = (number % 256, number // 256 % 256, 7)
        Image.new("RGB", (32, 32), colour).save(file, "PNG")
        said = f"An answer: {asked[-(100 + number % 100) :]}"
        return {"id": query["id"], "system": system, "text": said, "image": file.getvalue()}

    def _scores(self, text: str) -> Row:
        return {name: SCORERS[name](text) for name in self.scorers}

    def _heads(self, rows: Sequence[Row]) -> list[Row]:
        return [self._head(row) for row in rows]

    def _head(self, row: Row) -> Row:
        return {name: row[name] for name in ("id", "system", *self.scorers)}

    def _write(self, name: str, rows: Sequence[Row]) -> str:
        place = self.out / f"{name}.parquet"
        unfinished = place.with_suffix(".tmp")
        pq.write_table(pa.Table.from_pylist(list(rows)), unfinished, compression="zstd")
        os.replace(unfinished, place)
        return str(place)


def read_back(out: Path, kind: str, columns: Sequence[str]) -> list[Row]:
    """Return what the files of one kind hold, without texts and pictures."""
    rows: list[Row] = []
    for place in out.glob(f"{kind}-*.parquet"):
        rows += pq.read_table(place, columns=["id", "system", *columns]).to_pylist()
    return rows


def options_of_command() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--calls", type=int, choices=(1, 2), default=1)
    parser.add_argument("--systems", type=int, default=1)
    parser.add_argument("--scorers", type=int, choices=range(1, 4), default=1)
    return parser.parse_args()


def calls_of(options: argparse.Namespace, rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Return what is missing beside `rows`: the name of each call and its arguments."""
    queries = json.loads((options.data / "data.json").read_text())
    in_one_call = options.calls == 1
    answers = rows if in_one_call else read_back(options.out, "answers", ())
    answered = {(row["system"], row["id"]) for row in answers}
    calls: list[tuple[Any, ...]] = []
    for system in range(options.systems):
        missing = [query for query in queries if (system, query["id"]) not in answered]
        for first in range(0, len(missing), options.batch):
            calls.append(("answer", system, missing[first : first + options.batch]))
    if not in_one_call:
        places = options.out.glob("answers-*.parquet")
        calls += [("score", str(p)) for p in places if not scores_place(p).exists()]
    return calls


def compute(
    calls: Sequence[tuple[Any, ...]], options: argparse.Namespace, scorers: Sequence[str]
) -> list[Row]:
    """Make the calls on two actors; return the scores."""
    ray.init(
        address="local",
        num_cpus=ACTORS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    remote = ray.remote(num_cpus=1)(Actor)
    made = (str(options.out), scorers, options.calls)
    pool = ActorPool([remote.remote(*made) for _ in range(ACTORS)])
    rows: list[Row] = []
    for call in calls:
        pool.submit(lambda actor, c: getattr(actor, c[0]).remote(*c[1:]), call)
    while pool.has_next():
        place, scored = pool.get_next_unordered()
        rows += scored
        if not scored:
            pool.submit(lambda actor, p: actor.score.remote(p), place)
    return rows


def mean_of(rows: Sequence[Row], scorer: str) -> float:
    """Return the mean score."""
    return float(sum(row[scorer] for row in rows) / len(rows))


def main() -> None:
    """Answer and score what is missing; print as JSON what there is, and when."""
    options = options_of_command()
    scorers = list(SCORERS)[: options.scorers]
    options.out.mkdir(parents=True, exist_ok=True)
    rows = read_back(options.out, "answers" if options.calls == 1 else "scores", scorers)
    if calls := calls_of(options, rows):
        rows += compute(calls, options, scorers)
    committed = time.time()
    means = {name: mean_of(rows, name) for name in scorers}
    print(json.dumps({"committed": committed, "answers": len(rows), "means": means}))


if __name__ == "__main__":
    main()
