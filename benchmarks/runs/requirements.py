"""What has to be there before a run can start: packages, API keys and weights.

Each is a line for people; a plan shows them, and a command that makes records refuses to
start while there is one.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence

from plait.cluster.executors.probe import is_local
from plait.cluster.plan import EngineOptions
from plait.cluster.run import executor_of
from plait.generators.base import StageSpec
from plait.generators.errors import UsageError
from plait.generators.extras import Extra, extra_problem
from plait.generators.secrets import key_trouble


def refuse_missing(
    stages: Sequence[StageSpec], weights: Sequence[str], options: EngineOptions
) -> None:
    """UsageError that names missing packages and `weights`, and keys of no use."""
    lines = [*package_problems(stages, options), *key_problems(stages), *weights]
    if lines:
        raise UsageError("\n".join(lines))


def package_problems(stages: Sequence[StageSpec], options: EngineOptions) -> list[str]:
    """Return which packages are not installed that stages need, a line for each extra.

    Those of models are looked for where this machine does the work: nodes of a cluster say
    so themselves.
    """
    if not stages:
        return []
    executor = executor_of(options)
    problems = []
    if executor == "ray":
        problems.append(extra_problem("ray", "--executor ray"))
    if executor != "ray" or is_local(options.address):
        needed = defaultdict[Extra, list[str]](list)
        for stage in stages:
            if stage.extra is not None:
                needed[stage.extra].append(stage.name)
        for extra, names in needed.items():
            problems.append(extra_problem(extra, *names))
    # An extra that is installed is no problem, which is told by an empty text.
    return [problem for problem in problems if problem]


def key_problems(stages: Iterable[StageSpec]) -> list[str]:
    """Return what is wrong with the API keys that stages need, a line for each.

    A key is required only for endpoints reached over https: your own servers mostly need
    none, and those that do refuse the stage's first call.
    """
    problems: list[str] = []
    for stage in stages:
        if _is_public(stage.placement.endpoint):
            unset = [name for name in stage.secrets if not os.environ.get(name)]
            if unset:
                variables = ", ".join(unset)
                problems.append(f"{stage.name} needs the environment variable {variables}")
        # Others of its secrets are for a server that plait starts, whatever they hold.
        trouble = key_trouble(str(stage.options.get("api_key_env", "")))
        if trouble:
            problems.append(f"{stage.name}: {trouble}")
    return problems


def _is_public(endpoint: str | None) -> bool:
    """Return whether an endpoint is somebody else's server, which wants a key."""
    return (endpoint or "").startswith("https:")
