"""One system's results as Every Eval Ever keeps them: aggregates, and every scored answer.

After eval.schema.json and instance_level_eval.schema.json of the package every-eval-ever
0.3.0. The schema has room for numbers alone, so what failed or is unscored is counted in
the details of its mean. It asks whether each answer is correct, which a score does not say:
an answer is told as correct where it has the best value of the scorer's scale.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from plait.benchmarks.results.leaderboard import COUNTS, headline, leaderboard
from plait.benchmarks.runs.answers import QueryAnswer
from plait.benchmarks.runs.run_data import RunData
from plait.generators.base import StageSpec
from plait.generators.content import text_with_marks
from plait.generators.document import Document, Query
from plait.generators.files import safe_name, write_whole
from plait.generators.system import DescribedSystem
from plait.scorers.base import Scorer, bounds

VERSION = "0.3.0"
_HUB = "hf:"


def export(run: RunData, system: str, answers: Sequence[QueryAnswer], out: Path) -> int:
    """Write `data/BENCHMARK/DEVELOPER/MODEL/ID.json` and its samples; how many answers.

    `ID` follows from run and system, so that a second export has the same name.
    """
    (made,) = [one for one in run.results.systems if one.name == system]
    model = _model_id(run, made)
    about = run.manifest
    seed = f"{about.get('run_digest')} {system} {run.about.selection}"
    digest = hashlib.sha256(seed.encode()).digest()
    id = str(uuid.UUID(bytes=digest[:16], version=4))
    benchmark = run.about.name
    folder = Path("data", benchmark, *model.split("/", 1))
    now = f"{time.time():.0f}"
    evaluation = f"{benchmark}/{model}/{now}"
    common = {"schema_version": VERSION, "evaluation_id": evaluation, "model_id": model}
    samples = []
    for sample in _samples(run, answers):
        samples.append(json.dumps(common | sample) + "\n")
    lines = "".join(samples).encode()
    (out / folder).mkdir(parents=True)
    write_whole(out / folder / f"{id}_samples.jsonl", lines)
    content = {
        "schema_version": VERSION,
        "evaluation_id": evaluation,
        "evaluation_timestamp": str(about.get("started", "")),
        "retrieved_timestamp": now,
        "source_metadata": {
            "source_name": "plait",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "plait", "version": about["packages"].get("plait", "")},
        "model_info": _model_info(run, made),
        "evaluation_results": list(_results(run, system)),
        "detailed_evaluation_results": {
            "format": "jsonl",
            "file_path": f"{folder.as_posix()}/{id}_samples.jsonl",
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(lines).hexdigest(),
            "total_rows": len(samples),
        },
    }
    write_whole(out / folder / f"{id}.json", json.dumps(content, indent=1) + "\n")
    return sum(answer.document is not None for answer in answers)


# ------------------------------------------------------------------------------- models


def _model_id(run: RunData, system: DescribedSystem) -> str:
    """Return the one published model of the system, else its name under what it is.

    Models that are not the published ones never bear their names.
    """
    name = safe_name(system.name, also="+@")
    weights = run.about.weights
    if weights != "pretrained" and system.stages:
        return f"{weights}-weights/{name}"
    models = {stage.identity.partition("@")[0] for stage in system.stages}
    if len(models) == 1:
        (model,) = models
        if "/" in model:
            return model
    kind = "system" if len(system.stages) < 2 else "composition"
    return f"{kind}/{name}"


def _model_info(run: RunData, system: DescribedSystem) -> dict[str, Any]:
    """Return what the schema asks of a model: its name, and where it ran."""
    managed = any(stage.placement.endpoint for stage in system.stages)
    return {
        "name": system.name,
        "id": _model_id(run, system),
        "additional_details": {
            "deployment_type": "externally_managed" if managed else "self_deployed",
            "model_availability": "unknown",
            "weights": str(run.about.weights),
            **_details(system.stages),
        },
    }


def _details(stages: Iterable[StageSpec]) -> dict[str, str]:
    """Return the models of stages with all settings that their results depend on."""
    details = {}
    for stage in stages:
        facts = {"model": stage.identity, **stage.settings}
        details[stage.name] = json.dumps(facts, default=str)
    return details


# ------------------------------------------------------------------------------ results


def _results(run: RunData, system: str) -> Iterator[dict[str, Any]]:
    """Yield the means of a system, of all queries and by category, where there is one."""
    rows = leaderboard(run.board)
    (row,) = [row for row in rows if row["system"] == system]
    for scorer in run.results.scorers:
        own = row["scores"][scorer.name]
        means = {"": own[headline(rows, scorer.name)], **own["categories"]}
        for category, cell in means.items():
            if cell["mean"] is not None:
                yield _result(run, scorer, category, cell)


def _result(
    run: RunData, scorer: Scorer, category: str, cell: Mapping[str, Any]
) -> dict[str, Any]:
    """Return one mean, with its interval and with what is not in it."""
    uncertainty: dict[str, Any] = {"num_samples": cell["n"]}
    if (interval := cell["ci95"]) is not None:
        low, high = interval
        ends = {"lower": low, "upper": high, "confidence_level": 0.95}
        uncertainty["confidence_interval"] = ends
    counts = {name: str(cell[name]) for name in COUNTS if cell.get(name)}
    return {
        "evaluation_result_id": f"{scorer.name} {category}".rstrip(),
        "evaluation_name": f"{run.about.name} {category}".rstrip(),
        "source_data": _source(run),
        "metric_config": _metric(scorer),
        "score_details": {
            "score": cell["mean"],
            "details": counts,
            "uncertainty": uncertainty,
        },
    }


def _source(run: RunData) -> dict[str, Any]:
    """Return where the queries come from."""
    about = run.about.data
    details = {}
    for name in ("revision", "digest"):
        if about.get(name):
            details[name] = str(about[name])
    source: dict[str, Any] = {
        "dataset_name": run.about.name,
        "additional_details": details,
    }
    _, is_hub, repository = str(about.get("source", "")).partition(_HUB)
    if not is_hub:
        return source | {"source_type": "other"}
    return source | {
        "source_type": "hf_dataset",
        "hf_repo": repository.partition("@")[0],
        "samples_number": len(run.queries),
    }


def _metric(scorer: Scorer) -> dict[str, Any]:
    """Return what a scorer measures, and on which scale."""
    ends = bounds(scorer.scale)
    low, high = ends if ends is not None else ("-Infinity", "Infinity")
    metric: dict[str, Any] = {
        "metric_id": f"plait.{scorer.name}",
        "metric_name": scorer.name,
        "lower_is_better": scorer.direction == "lower",
        "score_type": "continuous",
        "min_score": low,
        "max_score": high,
        "additional_details": _details(scorer.stages),
    }
    if scorer.manner:
        metric["evaluation_description"] = scorer.manner
    return metric


# ------------------------------------------------------------------------------ answers


def _samples(run: RunData, answers: Sequence[QueryAnswer]) -> Iterator[dict[str, Any]]:
    """Yield a sample for each score of an answer, without what all samples share."""
    best = {scorer.name: _best_value(scorer) for scorer in run.results.scorers}
    for answer in answers:
        query = answer.query.sample
        document = answer.document
        if not isinstance(query, Query) or document is None:
            continue
        reference = []
        if query.reference:
            reference.append(text_with_marks(query.reference.segments))
        asked = {
            "sample_id": query.id,
            "input": {
                "raw": text_with_marks(query.question),
                "reference": reference,
            },
            "answer_attribution": [],
            "metadata": {
                "category": query.category,
                "field": query.field,
                "repeat": str(answer.repeat),
            },
            **_answer_of(query, document),
        }
        for scorer in run.results.scorers:
            verdict = answer.scores.get(scorer.name)
            if verdict is not None and verdict.value is not None:
                yield asked | {
                    "evaluation_name": run.about.name,
                    "evaluation_result_id": scorer.name,
                    "evaluation": {
                        "score": verdict.value,
                        "is_correct": verdict.value == best[scorer.name],
                    },
                }


def _best_value(scorer: Scorer) -> float | None:
    """Return the best end of a scorer's scale; None where the scale has no ends."""
    ends = bounds(scorer.scale)
    if ends is None:
        return None
    low, high = ends
    return high if scorer.direction == "higher" else low


def _answer_of(query: Query, document: Document) -> dict[str, Any]:
    """Return the answer, or the whole conversation where it has several turns."""
    answers = [text_with_marks(answer.segments) for answer in document.answers]
    if len(answers) == 1:
        return {"interaction_type": "single_turn", "output": {"raw": answers}}
    messages: list[dict[str, Any]] = []

    def say(role: str, text: str) -> None:
        messages.append({"turn_idx": len(messages), "role": role, "content": text})

    for opening, reply in zip_longest(query.openings, answers):
        for turn in opening or ():
            say(turn.role, text_with_marks(turn.content))
        if reply is not None:
            say("assistant", reply)
    return {"interaction_type": "multi_turn", "output": None, "messages": messages}
