"""Rotary embeddings of rows that are long and rows that are not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from internvl_helpers import config

from scorers.internvl.config import model_config
from scorers.internvl.models import LongRope

CONFIG = model_config(config(64), "a toy").text_config
CPU = torch.device("cpu")
X = torch.zeros(1, 1)


def exact(positions, long: bool):
    """The formula of Phi-3's LongRoPE in float64."""
    settings = config(64)["llm_config"]
    factors = np.array(settings["rope_scaling"]["long_factor" if long else "short_factor"])
    rates = 1 / (factors * 5000.0 ** (np.arange(6) / 6))
    angles = np.outer(positions, np.concatenate([rates, rates]))
    scale = np.sqrt(1 + np.log(880 / 220) / np.log(220))
    return np.cos(angles) * scale, np.sin(angles) * scale


@pytest.mark.parametrize("long", [False, True])
def test_prompts_by_the_formula(long):
    rope = LongRope(CONFIG, CPU)
    positions = torch.arange(240)
    with rope.prompts(long):
        ours = rope(X, positions.expand(3, -1))
    for got, expected in zip(ours, exact(positions, long), strict=True):
        np.testing.assert_allclose(got[2], expected, atol=2e-5)
        assert torch.equal(got[0], got[2])


def test_every_row_of_a_step_by_its_own_position():
    rope = LongRope(CONFIG, CPU)
    positions = [3, 219, 220, 500]
    cosines, _ = rope(X, torch.tensor(positions)[:, None])
    for row, position in enumerate(positions):
        expected, _ = exact([position], position >= 220)
        np.testing.assert_allclose(cosines[row], expected, atol=2e-5)
