"""Times ways of decoding in turns, and compares their answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.results.table import ResultTable
from benchmarks.speed.decoding.ways import SERVER, DecodingWay
from generators.base import Outcome, Result
from generators.document import Draft, Request

Texts = list[str | None]


@dataclass
class DecodingTimes:
    """What one way did in all rounds."""

    way: str
    seconds: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    """Written in each round."""
    texts: Texts = field(default_factory=list)
    """Of every answer of every round; None for one that failed."""
    same: int = 0
    """Answers that are those of the first way."""

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each round."""
        return [n / s for n, s in zip(self.tokens, self.seconds, strict=True)]

    @property
    def rate(self) -> float:
        """The median of `rates`."""
        return median(self.rates)

    @property
    def failures(self) -> int:
        """Answers that failed."""
        return self.texts.count(None)

    def ratio(self, other: DecodingTimes) -> float:
        """How many times as fast as another way: the median over the rounds."""
        pairs = zip(self.rates, other.rates, strict=True)
        return median(own / theirs for own, theirs in pairs)


def timed(
    ways: Sequence[DecodingWay], rounds: Iterable[Sequence[Request]]
) -> Iterator[list[DecodingTimes]]:
    """The times of all ways so far, after each round; `rounds` are their requests."""
    times = [DecodingTimes(way.name) for way in ways]
    for requests in rounds:
        texts = [_round(w, t, requests) for w, t in zip(ways, times, strict=True)]
        for own, seen in zip(texts, times, strict=True):
            pairs = zip(own, texts[0], strict=False)
            seen.same += sum(a is not None and a == b for a, b in pairs)
        yield times


def _round(way: DecodingWay, times: DecodingTimes, requests: Sequence[Request]) -> Texts:
    began = time.perf_counter()
    outcomes = way.answer(requests[: way.most])
    times.seconds.append(time.perf_counter() - began)
    results = [o for o in outcomes if isinstance(o, Result)]
    times.tokens.append(sum(r.usage.get("output_tokens", 0.0) for r in results))
    texts = [_text(outcome) for outcome in outcomes]
    times.texts += texts
    return texts


def _text(outcome: Outcome[Draft]) -> str | None:
    return outcome.value.text if isinstance(outcome, Result) else None


def server_of(times: Sequence[DecodingTimes]) -> DecodingTimes | None:
    """The way that asked a server, where one was there."""
    return next((t for t in times if t.way.startswith(SERVER)), None)


def as_data(times: DecodingTimes, every: Sequence[DecodingTimes]) -> dict[str, Any]:
    """One way's entry of `ways`, with figures named as those of `plait bench stage`."""
    server, first = server_of(every), every[0]
    rates = times.rates
    throughput = {"median": times.rate, "min": min(rates), "max": max(rates)}
    return {
        "way": times.way,
        "seconds": times.seconds,
        "tokens": times.tokens,
        "figures": {"output_token_throughput": throughput | {"unit": "tokens/s"}},
        "ratio": times.ratio(first),
        "ratio_to_server": None if server is None else times.ratio(server),
        "same_answers": times.same,
        "answers": len(times.texts),
        "failures": times.failures,
    }


def table_of(times: Sequence[DecodingTimes], about: Mapping[str, Any]) -> ResultTable:
    """The ways side by side."""
    head = ["way", "tokens/s", "lowest", "highest", "x first way"]
    head += ["x server", "same answers", "failed"]
    return ResultTable.of(
        "Decoding: " + str(about["measured"]),
        head,
        [_row(as_data(t, times)) for t in times],
        [
            f"Medians of {len(times[0].seconds)} rounds in turns, each with requests of "
            "its own; ratios are medians of the rounds' ratios. Same answers: texts equal "
            "to the first way's.",
            f"{about['device']}, torch {about['packages'].get('torch')}"
            + (f"; server: {about['server']}" if about.get("server") else ""),
        ],
    )


def _row(speed: Mapping[str, Any]) -> list[str]:
    rate = speed["figures"]["output_token_throughput"]
    to_server = speed["ratio_to_server"]
    return [
        speed["way"],
        *(f"{rate[name]:.0f}" for name in ("median", "min", "max")),
        f"{speed['ratio']:.2f}",
        "-" if to_server is None else f"{to_server:.2f}",
        f"{speed['same_answers']}/{speed['answers']}",
        str(speed["failures"]),
    ]
