"""The digests of every named stage are those of records that people already have.

A change here makes the stage's records in every run directory again. Where that is meant
(a version was bumped because results changed), write the file again:
`PYTHONPATH=.:tests/helpers python tests/generators/test_golden_keys.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace

from paths import DATA

from plait.benchmarks.studies.compare import judge_stage
from plait.generators.base import StageSpec
from plait.generators.catalogue import Named, by_name
from plait.generators.checkpoints import pinning
from plait.pipelines.systems import Models, answers_spec, resolve
from plait.scorers import resolve_scorer
from plait.scorers.judging.aspects import SQUEEZED
from plait.scorers.judging.gedit import SHOWN

GOLDEN = DATA / "golden_keys.json"


def stages(models: Models) -> Iterator[StageSpec]:
    for name in by_name(Named.NATIVE):
        yield from resolve(name, models).stages
    writer, artist = next(iter(by_name(Named.LVLM))), next(iter(by_name(Named.T2I)))
    for name in by_name(Named.LVLM):
        yield from resolve(f"{name}+{artist}", models).stages
    for name in by_name(Named.T2I):
        yield from resolve(f"{writer}+{name}", models).stages
    for name in by_name(Named.SCORER):
        yield from resolve_scorer(name, models.weights, {}, models.gpu_gib).stages
    yield judge_stage("mmie-score", models)
    yield from (answers_spec("qwen2-vl-7b", models), SHOWN, SQUEEZED)


def digests() -> dict[str, str]:
    """By `name (weights)`; weights that are not here count by their names."""
    found = {}
    for weights in ("pretrained", "tiny"):
        with pinning({}):
            for spec in stages(Models(weights=weights)):
                found[f"{spec.name} ({weights})"] = spec.digest
    return dict(sorted(found.items()))


def test_named_stages_keep_their_digests(monkeypatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert digests() == json.loads(GOLDEN.read_text())


def test_names_are_declared_and_unique_and_a_stage_may_move_and_be_renamed() -> None:
    targets: dict[tuple[str, str], str] = {}
    for spec in stages(Models(weights="tiny")):
        assert spec.stage, f"{spec.name} declares no name for its keys"
        assert targets.setdefault((spec.stage, spec.kind), spec.target) == spec.target
        moved = replace(spec, target="elsewhere.entirely:Renamed")
        assert moved.digest == spec.digest


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    GOLDEN.write_text(json.dumps(digests(), indent=2) + "\n")
