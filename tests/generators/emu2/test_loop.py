"""Vision, regression and beam search against programs that recompute everything."""

import copy

import emu2_helpers as helpers
import emu2_references as references
import numpy as np
import pytest
import torch

from generators.decoding.streams import Streams
from generators.emu2.draft import BeamSearch
from generators.emu2.network import MEAN, STD, Emu2, empty_network, encoder_input
from generators.emu2.prompts import chat_parts
from generators.emu2.reading import embeddings, read_prompt, regress
from generators.emu2.settings import Emu2DraftSettings
from generators.emu2.sizes import TINY_CHAT, VisionSize
from generators.loading.strict import fill, identical
from generators.pictures import decode

pytestmark = pytest.mark.models

VISION = VisionSize(width=24, layers=3, heads=3, mlp_width=40, patch=4, grid=6, queries=9)


def vision_model(size: VisionSize) -> tuple[Emu2, helpers.State]:
    """A network whose vision encoder has random biases and norms as well."""
    config = TINY_CHAT.config(40)
    network = empty_network(size, config)
    shapes = helpers.shapes(size, TINY_CHAT.language, 40)
    visual = {n: s for n, s in shapes.items() if n.startswith("visual.")}
    state = helpers.random_state(visual, 5)
    stored = [(n.removeprefix("visual."), t) for n, t in state.items()]
    layout = identical(network.visual.state_dict())
    how = {"source": "test", "device": helpers.CPU, "dtype": torch.float32}
    fill(network.visual, stored, layout, **how)
    network.project_up.to_empty(device="cpu")
    return Emu2(network, helpers.chat().tokens, 2048), state


@pytest.mark.parametrize("queries", [1, 4, 9, 36])
def test_vision_encoder_equals_its_formula(queries):
    size = VisionSize(**{**VISION.__dict__, "queries": queries})
    model, state = vision_model(size)
    random = np.random.RandomState(0)
    pixels = torch.from_numpy(random.standard_normal((3, 3, 24, 24))).float()
    seen = model.picture_vectors(list(pixels))
    assert seen.shape == (3, queries, 24)
    for vectors, picture in zip(seen, pixels, strict=True):
        exact = references.seen_exactly(state, size, picture)
        assert (vectors.double() - exact).abs().max() < 1e-5


def test_pictures_are_squashed_not_cropped():
    image = helpers.picture(3, 90, 30)
    pixels = encoder_input(image, 16)
    squashed = np.asarray(decode(image).resize((16, 16), 3)) / 255.0
    expected = (squashed - np.array(MEAN)) / np.array(STD)
    assert np.abs(pixels.permute(1, 2, 0).numpy() - expected).max() < 1e-5


def prompts(model: Emu2) -> list[torch.Tensor]:
    """Of several lengths, with none, one and two pictures; each ends with `[IMG]`."""
    contents = [
        ["a red house near the river"],
        [helpers.picture(1), "with a bird on the table"],
        [""],
        ["first ", helpers.picture(2), " and then ", helpers.picture(3), " the boat"],
        ["the old boat stands under the quiet morning light " * 9],
    ]
    return embeddings(
        model,
        [read_prompt(model, parts, 3, 2048, begins_picture=True) for parts in contents],
    )


def long_gen() -> Emu2:
    """With the published number of vectors for each picture."""
    made = helpers.gen()
    network = copy.copy(made.network)
    network._modules = dict(network._modules)
    network.visual = copy.deepcopy(network.visual)
    network.visual.size = VisionSize(**{**made.vision.__dict__, "queries": 64})
    return Emu2(network, made.tokens, made.context)


def test_cached_vectors_equal_the_uncached_loop():
    """1 prefill and 63 steps for five ragged prompts at once, or 64 times the whole.

    Where the loop amplifies rounding (two of these prompts), the bound is the uncached
    loop's own distance from float64.
    """
    model = long_gen()
    asked = prompts(helpers.gen())
    ours = regress(model, asked)
    assert ours.shape == (5, 64, 64)
    double = references.exact(helpers.gen)
    calm = 0
    for vectors, prompt in zip(ours, asked, strict=True):
        naive = references.uncached_vectors(model.network, prompt, 64)
        exact = references.uncached_vectors(double, prompt.double(), 64)
        drift = (naive.double() - exact).abs().max()
        assert (vectors.double() - exact).abs().max() < max(1e-4, 4 * drift)
        assert (vectors - naive)[:16].abs().max() < 1e-4
        calm += bool(drift < 1e-4)
    assert calm >= 3
    assert (ours[0] - ours[1]).abs().max() > 0.1
    assert (ours[:, 0] - ours[:, -1]).abs().max() > 0.1


def test_each_vector_takes_one_step(monkeypatch):
    lengths = []
    usual = Streams._forward

    def noted(self, embeddings, *rest):
        lengths.append(tuple(embeddings.shape[:2]))
        return usual(self, embeddings, *rest)

    monkeypatch.setattr(Streams, "_forward", noted)
    asked = prompts(helpers.gen())
    regress(long_gen(), asked)
    longest = max(len(p) for p in asked)
    assert lengths == [(5, longest - 1), *[(5, 1)] * 64]


QUESTIONS = [
    ("A red house",),
    (helpers.picture(1), "What is it?"),
    ("Tell me about birds. " * 10,),
    (helpers.picture(2), helpers.picture(3), "then"),
    ("x",),
    ("river",),
]


def search(**changes) -> tuple[BeamSearch, list[torch.Tensor]]:
    settings = Emu2DraftSettings(**({"max_new_tokens": 12} | changes))
    model = helpers.chat()
    parts = [chat_parts(helpers.asked(*q), settings) for q in QUESTIONS]
    prompts = [read_prompt(model, p, settings.max_new_tokens, 2048) for p in parts]
    return BeamSearch(model, settings), embeddings(model, prompts)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_beams": 5},
        {"num_beams": 3, "length_penalty": 1.0},
        {"num_beams": 2, "length_penalty": 0.0},
    ],
)
def test_answers_equal_the_uncached_search(changes):
    beams, asked = search(**changes)
    answers = beams(asked)
    exact = references.exact(helpers.chat)
    how = {"beams": changes["num_beams"], "most": 12, "end": 2}
    penalty = changes.get("length_penalty", -1.0)
    for prompt, ids in zip(asked, answers, strict=True):
        exactly = prompt.double()
        expected = references.beam_search(exact, exactly, length_penalty=penalty, **how)
        assert ids == expected
    assert len({tuple(a) for a in answers}) > 3


def test_greedy_answers_equal_the_naive_loop():
    beams, asked = search(num_beams=1)
    network = references.exact(helpers.chat)
    embed = network.lm.get_input_embeddings().weight
    for prompt, ids in zip(asked, beams(asked), strict=True):
        naive: list[int] = []
        while len(naive) < 12 and naive[-1:] != [2]:
            sequence = torch.cat([prompt.double(), embed[torch.tensor(naive).long()]])
            naive.append(int(references.last_logits(network, sequence).argmax()))
        assert ids == naive


def test_minimum_length():
    short, asked = search(max_new_tokens=30)
    longer, _ = search(max_new_tokens=30, min_new_tokens=9)
    assert min(len(ids) for ids in short(asked)) < 9
    answers = longer(asked)
    assert min(len(ids) for ids in answers) > 9
    assert any(ids[-1] == 2 for ids in answers)
