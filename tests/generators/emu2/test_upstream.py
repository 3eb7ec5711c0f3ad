"""Emu2 against results of the original program, kept in `emu2_upstream.npz`."""

import emu2_helpers as upstream
import numpy as np
import pytest
import torch

from plait.generators.decoding.payloads import pack, unpack
from plait.generators.decoding.streams import Streams
from plait.generators.document import Image, ImageRequest, Request, Text, Turn
from plait.generators.emu2.condition import request_parts
from plait.generators.emu2.network import encoder_input

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def chat(stage):
    usual = {"max_new_tokens": upstream.MOST_TOKENS}
    return lambda **settings: stage("emu2/native", **usual | settings)


@pytest.fixture(scope="module")
def gen(stage):
    return stage("emu2/native", "condition")


def content(parts) -> tuple[Text | Image, ...]:
    images = upstream.pictures()
    return tuple(Text(p) if isinstance(p, str) else images[p] for p in parts)


def conversations() -> list[Request]:
    single = [Request((Turn("user", content(q)),)) for q in upstream.QUESTIONS]
    roles = ("user", "assistant", "user")
    turns = zip(roles, upstream.DIALOGUE, strict=True)
    return [*single, Request(tuple(Turn(r, content(c)) for r, c in turns))]


def requests() -> list[ImageRequest]:
    """The same order of text and images: what stands after the last image is the
    prompt, which is read last."""
    made = []
    for parts in upstream.REQUESTS:
        *before, last = content(parts)
        made.append(ImageRequest(last.text, context=tuple(before)))
    return [*made, ImageRequest(context=(upstream.pictures()[0],))]


def test_images_are_prepared_and_seen_as_upstream(arrays, chat):
    for i, image in enumerate(upstream.pictures()):
        pixels = encoder_input(image, chat().model.vision.side)
        assert np.abs(pixels.numpy() - arrays[f"pixels_{i}"]).max() < 1e-6
        seen = chat().model.image_vectors([pixels])[0]
        assert np.abs(seen.numpy() - arrays[f"seen_{i}"]).max() < 1e-5


@pytest.mark.parametrize(("template", "name"), [("native", "ids"), ("hf", "hub_ids")])
def test_prompts_are_the_same_ids(template, name, arrays, chat):
    """The Hub's template takes single questions only."""
    stage = chat(template=template)
    for i, request in enumerate(conversations()):
        if f"{name}_{i}" in arrays:
            assert stage.prompt(request).ids == arrays[f"{name}_{i}"].tolist()
    assert f"{name}_{len(upstream.QUESTIONS) - 1}" in arrays


def test_prefix_embeddings_and_first_logits(arrays, chat):
    model = chat().model
    states = model.embeddings([chat().prompt(request) for request in conversations()])
    streams = Streams(model.network.lm.model, chat().context)
    streams.open(states)
    logits = model.network.lm.lm_head(streams.step())
    for i, state in enumerate(states):
        assert np.abs(state.numpy() - arrays[f"embeds_{i}"]).max() < 2e-5
        assert np.abs(logits[i].detach().numpy() - arrays[f"logits_{i}"]).max() < 1e-4


@pytest.mark.parametrize("run", range(len(upstream.BEAMS)))
def test_answers_are_the_same_ids_and_text(run, arrays, chat):
    """In one padded batch; upstream answers one at a time, after an artificial `<s>`."""
    stage = chat(**upstream.BEAMS[run])
    prompts = [stage.prompt(request) for request in conversations()]
    tracks = stage.tracks(prompts)
    expected = [arrays[f"answer_{i}_{run}"].tolist()[1:] for i in range(len(prompts))]
    assert [track.ids for track in tracks] == expected
    outcomes = map(stage.result, prompts, tracks)
    replies = [str(arrays[f"reply_{i}_{run}"]) for i in range(len(prompts))]
    assert [o.value.text for o in outcomes] == replies


def test_vectors_and_where_guidance_starts_from(arrays, gen):
    for i, outcome in enumerate(gen(requests())):
        vectors, free = unpack(outcome.value, "vectors", "unconditional")
        assert np.abs(vectors.numpy() - arrays[f"vectors_{i}"]).max() < 5e-5
        assert np.abs(free.numpy() - arrays[f"free_{i}"]).max() < 5e-5
    last = arrays["free_3"]
    assert np.abs(last - arrays["free_0"]).max() > 0.1, "autoencoding has its own negative"
    for i, request in enumerate(requests()[:-1]):
        prompt = gen.model.read(request_parts(request), 3, gen.context, begins_image=True)
        assert prompt.ids == arrays[f"gen_ids_{i}"].tolist()


def test_latents_and_pixels_from_the_same_noise(arrays, stage, monkeypatch):
    render = stage("emu2/native", "render", steps=upstream.STEPS)
    vae, latents = render.drawer.pipeline.vae, []
    decode = vae.decode

    def noted(sample, *args, **kwargs):
        latents.append(sample.detach())
        return decode(sample, *args, **kwargs)

    monkeypatch.setattr(vae, "decode", noted)
    names = {"vectors": "vectors", "unconditional": "free"}
    stored = [
        pack(**{k: torch.from_numpy(arrays[f"{n}_{i}"]) for k, n in names.items()})
        for i in range(4)
    ]
    drawn = render([ImageRequest(payload=p, seed=upstream.NOISE_SEED) for p in stored])
    for i, outcome in enumerate(drawn):
        ours = (latents[0][i] * vae.config.scaling_factor).numpy()
        assert np.abs(ours - arrays[f"latents_{i}"]).max() < 1e-4
        expected = arrays[f"picture_{i}"].astype(int)
        assert np.abs(outcome.value.pixels.astype(int) - expected).max() <= 1
        assert expected.std() > 20
