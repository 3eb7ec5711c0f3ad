"""How fast one stage is at several batch sizes, without Ray and without a store.

    plait bench stage --system anole --weights tiny --batches 1,4,16
    python -m benchmarks.speed --system sdxl-turbo --weights dummy --batches 1,2,4,8

The stage is loaded in this process and computes the same queries of the bundled sample set
in every way: as upstream's loop does, where one is written, and at each batch size. `dummy`
weights have the full size and need no download. Runs wherever torch and the stage's own
library are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.runs.config import merged, parsed_setting
from benchmarks.speed.workload import PARTS, Workload, of_scorer, of_system, whole
from benchmarks.tasks.controls import CONTROLS
from cluster.manifest import environment
from generators.files import write_whole
from pipelines.systems import Models

WHOLE = "all"
"""The part that is every part."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write JSON where `--out` says."""
    told = _parser().parse_args(arguments)
    from benchmarks.speed.device import copy_bandwidth, device_name
    from benchmarks.speed.measure import measure
    from benchmarks.speed.output import Report

    title, settings, ways, inputs = _measured(told)
    report = Report(measure(ways, inputs, told.rounds), copy_bandwidth())
    print(f"{title} on {device_name()}")
    print(
        f"{len(inputs)} inputs, median of {told.rounds} rounds; a copy reads and writes "
        f"{report.bandwidth / 1e9:.1f} GB/s"
    )
    print(report.table())
    if told.out is not None:
        about = environment() | {"device": device_name(), "measured": title}
        about |= {"settings": settings, "bandwidth": report.bandwidth}
        about |= {"command": sys.argv[1:] if arguments is None else list(arguments)}
        written = {"about": about, "speeds": report.data()}
        write_whole(told.out, json.dumps(written, indent=1) + "\n")
    return 1 if any(speed.failures for speed in report.speeds) else 0


def _measured(told: argparse.Namespace) -> tuple[str, Any, Any, Sequence[Any]]:
    """A title, the settings, the ways to compute and the inputs."""
    from benchmarks.speed.measure import in_batches, loaded_stage, ways_of

    sizes = [int(size) for size in told.batches.split(",")]
    if told.part == WHOLE:
        system, samples = whole(told.system, _models(told), told.queries)
        title = f"{told.system}, whole documents ({told.weights})"
        return title, _settings(told), in_batches(system, sizes), samples
    workload = _workload(told)
    spec = workload.spec
    stage = loaded_stage(spec, sizes)
    ways = ways_of(spec, stage, sizes, told.upstream)
    title = f"{spec.name} ({spec.identity}, {spec.weights})"
    return title, dict(spec.settings), ways, workload.inputs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plait bench stage", description=__doc__.split("\n")[0]
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--system", help="a system, an LVLM or a text-to-image model")
    what.add_argument("--scorer", help="a scorer")
    parser.add_argument(
        "--part", default="draft", choices=(*PARTS, WHOLE), help="of the system"
    )
    parser.add_argument(
        "--weights", default="dummy", choices=("pretrained", "dummy", "tiny")
    )
    parser.add_argument("--batches", default="1,2,4,8", help="batch sizes, comma-separated")
    parser.add_argument("--queries", type=int, default=16, help="of the sample set")
    parser.add_argument(
        "--answers",
        type=int,
        default=1,
        choices=range(1, 2 + len(CONTROLS)),
        help="to each query, for a scorer: the ground truth and controls",
    )
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds of every way")
    parser.add_argument(
        "--upstream",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also time upstream's loop",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="of the model"
    )
    parser.add_argument("--out", type=Path, default=None, help="also write JSON here")
    return parser


def _workload(told: argparse.Namespace) -> Workload:
    if told.scorer is not None:
        asked = (told.queries, told.answers)
        return of_scorer(told.scorer, told.weights, _settings(told), *asked)
    return of_system(told.system, told.part, _models(told), told.queries)


def _models(told: argparse.Namespace) -> Models:
    return Models(weights=told.weights, overrides={told.system: _settings(told)})


def _settings(told: argparse.Namespace) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for text in told.set:
        settings = merged(settings, parsed_setting(text))
    return settings


if __name__ == "__main__":
    sys.exit(main())
