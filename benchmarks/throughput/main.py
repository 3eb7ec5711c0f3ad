"""How fast one stage is at several batch sizes, without Ray and without a store.

    plait bench stage --system anole --weights tiny --batches 1,4,16
    python -m benchmarks.throughput --system sdxl-turbo --weights dummy --batches 1,2,4,8

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

from benchmarks.config import merged, parsed_setting
from benchmarks.throughput.workload import PARTS, Workload, of_scorer, of_system
from cluster.manifest import environment
from pipelines.systems import Models


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write JSON where `--out` says."""
    told = _parser().parse_args(arguments)
    from benchmarks.throughput.device import copy_bandwidth, device_name
    from benchmarks.throughput.measure import loaded_stage, measure, ways_of
    from benchmarks.throughput.output import Report

    sizes = [int(size) for size in told.batches.split(",")]
    workload = _workload(told)
    stage = loaded_stage(workload.spec, sizes)
    ways = ways_of(workload.spec, stage, sizes, told.upstream)
    report = Report(measure(ways, workload.inputs, told.rounds), copy_bandwidth())
    spec = workload.spec
    print(f"{spec.name} ({spec.identity}, {spec.weights}) on {device_name()}")
    print(
        f"{len(workload.inputs)} inputs, median of {told.rounds} rounds; a copy reads and "
        f"writes {report.bandwidth / 1e9:.1f} GB/s"
    )
    print(report.table())
    if told.out is not None:
        about = environment() | {"device": device_name(), "stage": spec.folder}
        about |= {"settings": dict(spec.settings), "bandwidth": report.bandwidth}
        about |= {"command": sys.argv[1:] if arguments is None else list(arguments)}
        written = {"about": about, "speeds": report.data()}
        told.out.write_text(json.dumps(written, indent=1) + "\n")
    return 1 if any(speed.failures for speed in report.speeds) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plait bench stage", description=__doc__.split("\n")[0]
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--system", help="a system, an LVLM or a text-to-image model")
    what.add_argument("--scorer", help="a scorer")
    parser.add_argument("--part", default="draft", choices=PARTS, help="of the system")
    parser.add_argument(
        "--weights", default="dummy", choices=("pretrained", "dummy", "tiny")
    )
    parser.add_argument("--batches", default="1,2,4,8", help="batch sizes, comma-separated")
    parser.add_argument("--queries", type=int, default=16, help="of the sample set")
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
    settings: dict[str, Any] = {}
    for text in told.set:
        settings = merged(settings, parsed_setting(text))
    if told.scorer is not None:
        return of_scorer(told.scorer, told.weights, settings, told.queries)
    models = Models(weights=told.weights, overrides={told.system: settings})
    return of_system(told.system, told.part, models, told.queries)


if __name__ == "__main__":
    sys.exit(main())
