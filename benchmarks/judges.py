"""From a judge's name to the chat stage that is asked."""

from __future__ import annotations

from generators.base import StageSpec
from pipelines.systems import Models, chat_spec
from scorers.judging.resolve import PREFIX, resolve_judge


def judge_stage(name: str, models: Models) -> StageSpec:
    """The stage of the judge `NAME` or `judge:NAME`, without any rubric.

    Raises UsageError for names that are neither a judge nor a chat model.
    """
    full = name if name.startswith(PREFIX) else f"{PREFIX}{name}"
    judge = resolve_judge(
        full,
        models.weights,
        models.of(full),
        models.gpu_gib,
        chat=lambda model: chat_spec(model, models),
    )
    return judge.stage
