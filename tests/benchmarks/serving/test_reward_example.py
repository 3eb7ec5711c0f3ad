"""The client of examples/reward against a server of a scorer without a model."""

from __future__ import annotations

import importlib.util
import inspect
from types import ModuleType
from typing import Any

import pytest
from paths import CHECKOUT
from PIL import Image
from serving_helpers import KEY, scorers_model, served_model

pytestmark = pytest.mark.contract


@pytest.fixture
def client() -> ModuleType:
    path = CHECKOUT / "examples" / "reward" / "reward.py"
    spec = importlib.util.spec_from_file_location("reward_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("scorer", "sign"), [("scoring_stages:Reds", 1), ("scoring_stages:Blues", -1)]
)
def test_the_reward_of_an_image_is_its_score_and_higher_is_better(
    client: Any, scorer: str, sign: int
) -> None:
    images = [Image.new("RGB", (8, 8), (value, 0, value)) for value in (10, 0, 200)]
    with served_model(scorers_model(scorer), KEY) as server:
        client.URL, client.KEY = server.root, KEY
        rewards = client.reward(["a", "!skip", "c"], images, epoch=3)
    assert rewards == [sign * 10.0, None, sign * 200.0]


def test_a_prompt_for_each_image_is_needed(client: Any) -> None:
    with pytest.raises(ValueError, match="zip"):
        client.reward(["a", "b"], [Image.new("RGB", (8, 8))])
    parameters = [*inspect.signature(client.reward).parameters]
    assert parameters[:2] == ["prompts", "images"]
