"""NaN in one record of a batch is a failure of that record, however tokens are chosen."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from vlm_helpers import GenerateStage, save_tiny

from plait.generators.anole.draft import AnoleDraft
from plait.generators.base import Failure, Fault, Result
from plait.generators.document import ImageRequest, Request, Text, Turn
from plait.generators.emu2.condition import Emu2Condition
from plait.generators.emu2.draft import Emu2Draft
from plait.generators.gill.draft import GillDraft
from plait.generators.minigpt5.draft import MiniGPT5Draft
from plait.generators.overflow import no_numbers
from plait.pipelines.vlm.stage import VisionLanguageModel
from plait.scorers.internvl.stage import MmieScore

pytestmark = pytest.mark.models

models = pytest.mark.models


def emu2(stage: Any) -> Any:
    return stage.model.network.lm.model


def lvlm(stage: Any) -> Any:
    return stage._model.model.language_model


class Case(NamedTuple):
    """A stage, where its language model reads embeddings, and its settings."""

    stage: Callable[..., Any]
    decoder: Callable[[Any], Any]
    settings: dict[str, Any]


SHORT = {"max_new_tokens": 12}
ANOLE = {"context": 120, "max_text_tokens": 12, "max_images": 1}
LVLM = {**SHORT, "dtype": "float32"}
SAMPLED = {"temperature": 1.0}
CASES = {
    "anole": Case(AnoleDraft, lambda s: s.decoder, ANOLE),
    "gill": Case(GillDraft, lambda s: s.decoder, {}),
    "minigpt5": Case(MiniGPT5Draft, lambda s: s.decoder, SHORT),
    "emu2, beams": Case(Emu2Draft, emu2, SHORT),
    "emu2, vectors": Case(Emu2Condition, emu2, {}),
    "judge": Case(MmieScore, lambda s: s.judge.decoder, SHORT),
    "streams": Case(VisionLanguageModel, lvlm, {**LVLM, "rows": 2}),
    "generate": Case(GenerateStage, lvlm, LVLM),
    "generate, sampled": Case(GenerateStage, lvlm, {**LVLM, **SAMPLED, "top_k": 20}),
}
WORDS = ("the sea and a mountain", "Zebra quux", "a red picture of the house " * 2)
BAD = 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("checkpoint"), "qwen2-vl-72b"))


class Poison:
    """Puts NaN in the place of chosen vectors that a decoder reads."""

    def __init__(self, decoder: Any) -> None:
        self.read: dict[bytes, None] = {}
        self.chosen: set[bytes] = set()
        decoder.register_forward_pre_hook(self._hook, with_kwargs=True)

    def _hook(self, decoder: Any, args: Any, inputs: dict[str, Any]) -> Any:
        vectors = inputs.get("inputs_embeds")
        if vectors is None:
            vectors = decoder.get_input_embeddings()(inputs["input_ids"])
        names = [[vector.numpy().tobytes() for vector in row] for row in vectors]
        self.read |= dict.fromkeys(name for row in names for name in row)
        bad = torch.tensor([[name in self.chosen for name in row] for row in names])
        poisoned: Tensor = vectors.masked_fill(bad[..., None], torch.nan)
        return args, inputs | {"inputs_embeds": poisoned, "input_ids": None}


@models
@pytest.mark.parametrize(
    ("name", "late"),
    [*((name, name == "anole") for name in CASES), ("streams", True)],
)
def test_the_record_alone_fails(name: str, late: bool, folder: str) -> None:
    case = CASES[name]
    own = {"model": folder} if "dtype" in case.settings else {"weights": "tiny"}
    stage = case.stage(device="cpu", **own, **case.settings)
    poison = Poison(case.decoder(stage))
    turns = [(Turn("user", (Text(words),)),) for words in WORDS]
    requests = [Request(turn, seed=7) for turn in turns]
    if case.stage is Emu2Condition:
        requests = [ImageRequest(words) for words in WORDS]
    alone, read = [], []
    for one in requests:
        poison.read.clear()
        alone += stage([one])
        read.append(list(poison.read))
    mine = [vector for vector in read.pop(BAD) if not any(vector in r for r in read)]
    poison.chosen = set(mine[-len(mine) // 4 :] if late else mine)
    together = stage(requests)
    failure = together.pop(BAD)
    alone.pop(BAD)
    assert all(isinstance(outcome, Result) for outcome in (*alone, *together))
    # States that are not words differ by rounding.
    texts = [[getattr(o.value, "text", None) for o in made] for made in (alone, together)]
    assert texts[0] == texts[1]
    assert isinstance(failure, Failure)
    assert failure.fault is Fault.ERROR
    assert "float32" in failure.reason


@pytest.mark.parametrize("dtype", [torch.float16, "float16", torch.bfloat16, torch.float32])
def test_a_type_is_advised_only_where_it_helps(dtype: object) -> None:
    reason = no_numbers("the model's scores", dtype).reason
    assert str(dtype).removeprefix("torch.") in reason
    assert ("set dtype" in reason) == ("16" in str(dtype) and "b" not in str(dtype))
