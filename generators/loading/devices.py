"""The device a setting means."""

from __future__ import annotations

import torch


def device_of(name: str) -> torch.device:
    """`auto` is the first visible GPU, else the CPU; any other name is taken as it is."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
