"""GILL against results of the original program, kept in `gill_upstream.npz`."""

import functools
import json

import gill_upstream_helpers as upstream
import numpy as np
import pytest
import torch

from generators.document import ImageRequest, Text
from generators.gill.draft import GillDraft
from generators.gill.render import GillRender
from generators.gill.settings import GillDraftSettings
from generators.vokens.mapper import pack_states, unpack_states

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return upstream.checkpoint(tmp_path_factory.mktemp("gill"))


@pytest.fixture(scope="module")
def arrays():
    with np.load(upstream.ARRAYS) as stored:
        return dict(stored)


@pytest.fixture(scope="module")
def stage(folders):
    @functools.cache
    def make(**settings) -> GillDraft:
        named = {k: folders[k] for k in ("model", "language", "vision")}
        options = {"device": "cpu", "dtype": "float32", **upstream.BASE, **settings}
        return GillDraft(weights="pretrained", **named, **options)

    return make


@pytest.fixture(scope="module")
def render(folders):
    named = {k: folders[k] for k in ("model", "diffusion")}
    size = {"height": 64, "width": 64, "steps": upstream.STEPS}
    options = {"device": "cpu", "dtype": "float32", "guidance": upstream.GUIDANCE}
    return GillRender(weights="pretrained", **named, **size, **options)


def embed(stage, index: int) -> torch.Tensor:
    prompt = stage.prompt(upstream.request(index, 0))
    return stage.embed([prompt])[0]


@pytest.mark.parametrize("name", upstream.PICTURES)
def test_pictures_are_prepared_as_upstream(name, arrays, stage):
    """Squashed as by upstream's programs, and cropped as by its function alone."""
    vision = stage().vision
    for resize, kind in (("squash", "pixels"), ("crop", "cropped")):
        ours = vision.pixels(upstream.image(name), resize)
        assert np.abs(ours.numpy() - arrays[f"{kind}_{name}"]).max() < 1e-6


@pytest.mark.parametrize("index", range(4))
def test_prompts_are_the_same_embeddings(index, arrays, stage):
    """Ids, white space around image names, the BOS, and what pictures become."""
    ours, expected = embed(stage(), index), arrays[f"prefix_{index}"]
    assert ours.shape == expected.shape
    assert np.abs(ours.numpy() - expected).max() < 1e-5


@pytest.mark.parametrize("index", range(4))
def test_first_logits(index, arrays, stage):
    language = stage().language
    prompt = embed(stage(), index)
    positions = torch.arange(len(prompt))[None]
    hidden = language.decoder(
        inputs_embeds=prompt[None], position_ids=positions, use_cache=False
    ).last_hidden_state
    logits = language.logits(hidden[0, -1:])[0].numpy()
    expected = arrays[f"logits_{index}"]
    finite = np.isfinite(expected)
    assert (~finite).sum() == upstream.VOKENS - 1
    assert np.abs(logits - expected)[finite].max() < 1e-4


def tracks(stage, run: int):
    """Of all conversations together, in one batch."""
    drafter = stage(**upstream.RUNS[run])
    prompts = [embed(drafter, c) for c in range(4)]
    return drafter, drafter._interleave(
        prompts, [upstream.seed_of(c, run) for c in range(4)]
    )


@pytest.mark.parametrize("run", range(len(upstream.RUNS)))
def test_answers_are_the_same_ids(run, arrays, stage):
    """Ours end where upstream cuts its full length of ids afterwards."""
    drafter, answers = tracks(stage, run)
    newline = drafter.language.tokens.newline
    for index, track in enumerate(answers):
        theirs = arrays[f"ids_{index}_{run}"].tolist()
        assert track.ids == theirs[: len(track.ids)]
        line_ends = theirs.index(newline) if newline in theirs else 0
        if track.stop == "end of line":
            assert len(track.ids) == line_ends > 0
        else:
            assert line_ends == 0 or line_ends >= len(track.ids)
        if track.stop == "word budget reached":
            assert len(track.ids) == len(theirs)


@pytest.mark.parametrize("run", range(len(upstream.RUNS)))
def test_answers_are_the_same_documents(run, arrays, stage):
    """Texts as upstream returns them, with the names of image tokens; images between."""
    requests = [upstream.request(c, upstream.seed_of(c, run)) for c in range(4)]
    expected = json.loads(str(arrays["texts"]))
    for index, outcome in enumerate(stage(**upstream.RUNS[run])(requests)):
        segments = outcome.value.segments
        texts = [s.text for s in segments if isinstance(s, Text)]
        assert texts == expected[f"{index}_{run}"]
        images = [isinstance(s, ImageRequest) for s in segments]
        assert images == ([False, True] * len(texts) if any(images) else [False])


def test_runs_cover_images_every_stop_and_a_leading_newline(arrays, stage):
    stops, images, opening = set(), 0, set()
    for run in range(len(upstream.RUNS)):
        drafter, answers = tracks(stage, run)
        stops |= {str(t.stop) for t in answers}
        images += sum(len(t.images) for t in answers)
        opening |= {t.ids[0] for t in answers if t.ids}
    assert stops == {"end of line", "word budget reached", "image limit reached"}
    assert images > 50
    assert drafter.language.tokens.newline in opening


@pytest.mark.parametrize("index", range(4))
def test_states_are_those_of_the_uncached_program(index, arrays, stage):
    for run in (0, 2):
        expected = arrays.get(f"states_{index}_{run}")
        outcome = stage(**upstream.RUNS[run])([upstream.request(index, 0)])[0]
        ours = [unpack_states(r.payload) for r in outcome.value.requests]
        assert len(ours) == (0 if expected is None else len(expected))
        if expected is not None:
            assert np.abs(np.stack(ours) - expected).max() < 1e-4 * np.abs(expected).max()


def test_conditioning(arrays, render):
    states = np.stack([arrays[f"states_{c}_2"][0] for c in range(4)])
    ours = render._mapped(torch.from_numpy(states)).numpy()
    expected = np.stack([arrays[f"cond_{c}"] for c in range(4)])
    assert np.abs(ours - expected).max() < 1e-4


def test_unconditional_branch_is_the_empty_prompt(arrays, render):
    pipeline = render._drawer.pipeline
    embeddings = torch.zeros(1, 77, upstream.OUT)
    _, negative = pipeline.encode_prompt(
        None, torch.device("cpu"), 1, True, prompt_embeds=embeddings
    )
    assert np.abs(negative[0].detach().numpy() - arrays["negative"]).max() < 1e-5


def test_pixels(arrays, render):
    cases = [c for c in range(4) if f"picture_{c}" in arrays]
    states = [torch.from_numpy(arrays[f"states_{c}_2"][0]) for c in cases]
    requests = [
        ImageRequest(payload=pack_states(s), seed=upstream.seed_of(c, 1))
        for c, s in zip(cases, states, strict=True)
    ]
    assert len(cases) >= 2
    for index, outcome in zip(cases, render(requests), strict=True):
        difference = outcome.value.pixels.astype(int) - arrays[f"picture_{index}"]
        assert np.abs(difference).max() <= 1


def test_settings_of_the_runs_are_upstreams_own():
    """So the arrays test our defaults too, where those are upstream's."""
    defaults = GillDraftSettings()
    assert (defaults.ret_scale_factor, defaults.gen_scale_factor, defaults.temperature) == (
        1.4,
        1,
        0,
    )
    assert (defaults.question, defaults.answer, defaults.newline) == (
        "Q: ",
        "\nA:",
        "upstream",
    )
    assert defaults.truncate_caption
    assert not defaults.trailing_text
