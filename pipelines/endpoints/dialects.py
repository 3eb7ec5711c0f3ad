"""What images servers take: the names of their request fields, and how each is found.

Read from the servers' released code: sglang 0.5.23, vllm-omni 0.30.0, openai 3.54. Imports
no SDK, so that the command line can plan without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

DialectName = Literal["openai", "sglang", "vllm-omni", "plait"]

_DIFFUSION = {
    "steps": "num_inference_steps",
    "guidance": "guidance_scale",
    "true_cfg_scale": "true_cfg_scale",
    "negative_prompt": "negative_prompt",
    "generator_device": "generator_device",
    "output_format": "output_format",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The fields of `/v1/images/generations` that one kind of server reads."""

    name: DialectName
    fields: Mapping[str, str]
    """Setting -> name of the request's field. All servers take a size; a setting that is
    not here is not taken."""
    seeded: bool
    """Whether a request may name the seed of its noise."""
    one_model: bool
    """Whether it serves the models that it lists and no other, whatever is asked for."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Sent where the user sets nothing, because the server's own default loses quality."""

    def unknown(self, settings: Iterable[str]) -> str | None:
        """Why these settings cannot be sent; None when they all can."""
        wrong = [s for s in settings if s not in self.fields]
        if not wrong:
            return None
        known = [f"{s} ({_takers(s)})" for s in wrong]
        return (
            f"the images dialect {self.name!r} takes no {' and no '.join(known)}; "
            f"it takes width, height, {', '.join(self.fields)}, and extra_body"
        )


DIALECTS: Mapping[DialectName, Dialect] = {
    "openai": Dialect(
        name="openai",
        fields={"quality": "quality", "output_format": "output_format"},
        seeded=False,
        one_model=False,
    ),
    "sglang": Dialect(
        name="sglang",
        fields=_DIFFUSION | {"max_sequence_length": "max_sequence_length"},
        seeded=True,
        # It draws with the one model it has and does not read the request's `model`.
        one_model=True,
        # Its own default is JPEG of quality 75.
        defaults={"output_format": "png"},
    ),
    "vllm-omni": Dialect(
        name="vllm-omni",
        fields=_DIFFUSION,
        seeded=True,
        one_model=True,
        defaults={"output_format": "png"},
    ),
    # `plait serve`.
    "plait": Dialect(
        name="plait",
        fields=_DIFFUSION | {"max_sequence_length": "max_sequence_length"},
        seeded=True,
        one_model=True,
    ),
}

_OWNERS: Mapping[str, DialectName] = {
    "openai": "openai",
    "openai-internal": "openai",
    "system": "openai",
    "sglang": "sglang",
    "vllm": "vllm-omni",
    "vllm-omni": "vllm-omni",
    "plait": "plait",
}
"""`owned_by` of an entry of `/v1/models` -> the server. LiteLLM's proxy says `openai`."""


def by_owner(owners: Iterable[str]) -> Dialect | None:
    """The dialect of a server whose models say who owns them; None where that is open."""
    names = {_OWNERS.get(owner) for owner in owners}
    name = names.pop() if len(names) == 1 else None
    return None if name is None else DIALECTS[name]


def by_status(health: Any, server_info: Any) -> Dialect | None:
    """The dialect of a server by its answers at `/health` and `/server_info`."""
    if isinstance(server_info, Mapping) and {"tp_size", "version"} <= set(server_info):
        return DIALECTS["sglang"]
    if isinstance(health, Mapping) and health.get("status") == "healthy":
        return DIALECTS["vllm-omni"]
    return None


def _takers(setting: str) -> str:
    names = [d.name for d in DIALECTS.values() if setting in d.fields]
    return f"taken by {', '.join(names)}"
