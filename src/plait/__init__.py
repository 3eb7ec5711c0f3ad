"""Run and judge models that answer with interleaved text and images.

All that a program or a notebook of one's own needs; everything else is the program's own
and may change. A name is imported when it is first used, so that the command line, which
needs few of them, starts at once.

Example:
    import plait

    run = plait.run(systems=["gt"], scorers=["bleu"], weights="tiny", limit=3, out="gt")
    print(run.systems, run.leaderboard)     # again later: plait.open_run("gt")
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.api import (
        Answers,
        Check,
        Frame,
        LocalScorer,
        LocalStage,
        LocalSystem,
        NoDocument,
        PairedMeans,
        QueryAnswer,
        QueryView,
        RunData,
        RunPlan,
        ScorerVerdict,
        SystemComparison,
        TaskQuery,
        WrittenPaper,
        check,
        open_run,
        paper,
        plan,
        query,
        run,
        score,
        scorer,
        stage,
        system,
    )
    from plait.benchmarks.tasks.published import TaskSet
    from plait.generators.base import (
        Failure,
        NotApplicable,
        Result,
        Skip,
        Stage,
        Unscored,
    )
    from plait.generators.document import (
        Candidate,
        Document,
        Draft,
        Image,
        ImageRequest,
        Query,
        Request,
        Score,
        Text,
        Turn,
    )
    from plait.generators.errors import PlaitError, UsageError

__all__ = [
    "Answers",
    "Candidate",
    "Check",
    "Document",
    "Draft",
    "Failure",
    "Frame",
    "Image",
    "ImageRequest",
    "LocalScorer",
    "LocalStage",
    "LocalSystem",
    "NoDocument",
    "NotApplicable",
    "PairedMeans",
    "PlaitError",
    "Query",
    "QueryAnswer",
    "QueryView",
    "Request",
    "Result",
    "RunData",
    "RunPlan",
    "Score",
    "ScorerVerdict",
    "Skip",
    "Stage",
    "SystemComparison",
    "TaskQuery",
    "TaskSet",
    "Text",
    "Turn",
    "Unscored",
    "UsageError",
    "WrittenPaper",
    "check",
    "open_run",
    "paper",
    "plan",
    "query",
    "run",
    "score",
    "scorer",
    "stage",
    "system",
]

_HOMES: Mapping[str, Sequence[str]] = {
    "plait.benchmarks.tasks.published": ["TaskSet"],
    "plait.generators.base": [
        "Failure",
        "NotApplicable",
        "Result",
        "Skip",
        "Stage",
        "Unscored",
    ],
    "plait.generators.document": [
        "Candidate",
        "Document",
        "Draft",
        "Image",
        "ImageRequest",
        "Query",
        "Request",
        "Score",
        "Text",
        "Turn",
    ],
    "plait.generators.errors": ["PlaitError", "UsageError"],
}
"""Modules of the names that are not of `plait.api`."""


def __getattr__(name: str) -> Any:
    """Return a public name, imported when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "plait.api"
    for module, names in _HOMES.items():
        if name in names:
            home = module
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__]
