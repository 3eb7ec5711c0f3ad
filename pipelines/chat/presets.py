"""LVLMs by the names people know them by, and which of them are turned off.

Imports neither torch nor any SDK, so that the command line can plan without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import NamedTuple

from generators.base import StageSpec
from pipelines.chat.settings import OPENAI_URL, ChatSettings, EndpointSettings

GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta/openai"

LVLMS: dict[str, ChatSettings | EndpointSettings] = {
    "qwen2-vl-72b": ChatSettings(model="Qwen/Qwen2-VL-72B-Instruct", params_b=73.4),
    "qwen2-vl-7b": ChatSettings(model="Qwen/Qwen2-VL-7B-Instruct", params_b=8.29),
    # The MMIE paper (Table 4) skips all multi-image queries for LLaVA.
    "llava-34b": ChatSettings(
        model="llava-hf/llava-v1.6-34b-hf", params_b=34.75, max_images=1
    ),
    # The paper's endpoints; see RETIRED for how long they answer.
    "gpt-4o": EndpointSettings(model="gpt-4o-2024-08-06"),
    "gemini-1.5": EndpointSettings(
        model="gemini-1.5-pro", base_url=GEMINI_URL, api_key_env="GEMINI_API_KEY"
    ),
    # Reasoning models: they refuse or ignore a temperature, and what they think counts
    # towards the limit on tokens.
    "gpt-6.1-sol": EndpointSettings(
        model="gpt-6.1-sol",
        temperature=None,
        max_tokens=8192,
        max_tokens_field="max_completion_tokens",
    ),
    "gemini-3.8-flash": EndpointSettings(
        model="gemini-3.8-flash",
        temperature=None,
        max_tokens=8192,
        base_url=GEMINI_URL,
        api_key_env="GEMINI_API_KEY",
    ),
}
"""Published writers by name; `hf:ORG/NAME` and `openai:MODEL` name any other."""


class Retirement(NamedTuple):
    """When a provider turns a model off, and a preset to use in its place."""

    url: str
    """The provider's endpoint; a server of one's own may go on with the model."""
    day: date
    instead: str


RETIRED: Mapping[str, Retirement] = {
    # developers.openai.com/api/docs/deprecations: notices of 2026-04-22 and 2026-10-14.
    # The provider names gpt-6-luna, its cheapest, and later gpt-6.1-sol for these.
    "gpt-4o-2024-08-06": Retirement(OPENAI_URL, date(2027, 1, 14), "gpt-6.1-sol"),
    "gpt-4o-2024-11-20": Retirement(OPENAI_URL, date(2027, 1, 14), "gpt-6.1-sol"),
    "gpt-4.1-2025-04-14": Retirement(OPENAI_URL, date(2027, 1, 14), "gpt-6.1-sol"),
    "gpt-4o-2024-05-13": Retirement(OPENAI_URL, date(2026, 10, 23), "gpt-6.1-sol"),
    # Google's mail to developers, quoted in rxliuli/llm-api-proxy #12.
    "gemini-1.5-pro": Retirement(GEMINI_URL, date(2025, 9, 24), "gemini-3.8-flash"),
    # ai.google.dev/gemini-api/docs/deprecations, as of 2026-11-10.
    "gemini-2.5-pro": Retirement(GEMINI_URL, date(2026, 12, 1), "gemini-3.8-flash"),
}
"""Models of the presets and near ones that are or will be turned off, by model id."""


def retirements(stages: Iterable[StageSpec], today: date) -> list[str]:
    """One line for each stage whose provider turns its model off, with an alternative."""
    lines = []
    for stage in stages:
        model = str(stage.settings.get("model"))
        retired = RETIRED.get(model)
        if retired is None or stage.placement.endpoint != retired.url:
            continue
        when = "was turned off" if retired.day <= today else "will be turned off"
        lines.append(
            f"{stage.name}: its provider's model {model!r} {when} on {retired.day}; "
            f"a current alternative is {retired.instead}"
        )
    return lines
