"""The published architectures: each model's `config.json` as data, and its toy size.

`NAME.json` holds the sizes that the authors publish in the `config.json` (or, for native
models, in the code) of a checkpoint; fields that the library's configuration class sets by
itself are left out. `dummy` weights have these sizes. `tiny.json` says what `tiny` weights
change in them. Which of them a text-to-image model consists of stands in
`generators/diffusion/designs.toml`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

Config = Mapping[str, Any]


@cache
def read_config(name: str) -> dict[str, Any]:
    """Return the content of `NAME.json`."""
    content: dict[str, Any] = json.loads(
        (Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8")
    )
    return content


def config_of(name: str, *, tiny: bool) -> dict[str, Any]:
    """Return the configuration of `NAME.json`, as published or at toy size."""
    return _scale(read_config(name), read_config("tiny")[name] if tiny else {})


def cache_gib(name: str) -> float:
    """Return the size of keys and values of a full context in 16 bits, as published."""
    language = read_config(name)["language"]
    values = language["max_position_embeddings"] * language["num_hidden_layers"]
    return float(2 * values * language["hidden_size"] * 2 / 2**30)


def _scale(config: Config, changes: Config) -> dict[str, Any]:
    """Return a configuration with the changes to its values, and to those in them."""
    scaled = {**config, **changes}
    for key, value in config.items():
        if isinstance(value, Mapping):
            scaled[key] = _scale(value, changes.get(key, {}))
    return scaled
