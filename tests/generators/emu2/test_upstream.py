"""Emu2 against results of the original program, kept in `emu2_upstream.npz`."""

import emu2_upstream_helpers as upstream
import numpy as np
import pytest
import torch

from generators.decoding.streams import Streams
from generators.document import Image, ImageRequest, Payload, Request, Text, Turn
from generators.emu2.condition import Emu2Condition, request_parts
from generators.emu2.draft import Emu2Draft
from generators.emu2.network import encoder_input
from generators.emu2.prompts import chat_parts
from generators.emu2.reading import embeddings, pack_vectors, read, unpack_vectors
from generators.emu2.render import Emu2Render

pytestmark = pytest.mark.models

EXACT = {"device": "cpu", "dtype": "float32"}


@pytest.fixture(scope="module")
def arrays():
    with np.load(upstream.ARRAYS) as stored:
        return dict(stored)


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory):
    return upstream.native_chat(tmp_path_factory.mktemp("emu2") / "chat")


@pytest.fixture(scope="module")
def gen_folder(tmp_path_factory):
    return upstream.native_gen(tmp_path_factory.mktemp("emu2") / "gen")


@pytest.fixture(scope="module")
def chat(chat_folder):
    return drafting(chat_folder)


@pytest.fixture(scope="module")
def gen(gen_folder):
    return Emu2Condition(weights="pretrained", model=str(gen_folder), **EXACT)


def drafting(folder, **settings) -> Emu2Draft:
    told = EXACT | {"max_new_tokens": upstream.MOST_TOKENS} | settings
    return Emu2Draft(weights="pretrained", model=str(folder), **told)


def content(parts) -> tuple[Text | Image, ...]:
    pictures = upstream.pictures()
    return tuple(Text(p) if isinstance(p, str) else pictures[p] for p in parts)


def conversations() -> list[Request]:
    single = [Request((Turn("user", content(q)),)) for q in upstream.QUESTIONS]
    roles = ("user", "assistant", "user")
    turns = zip(roles, upstream.DIALOGUE, strict=True)
    return [*single, Request(tuple(Turn(r, content(c)) for r, c in turns))]


def requests() -> list[ImageRequest]:
    """The same order of text and pictures: what stands after the last picture is the
    prompt, which is read last."""
    made = []
    for parts in upstream.REQUESTS:
        *before, last = content(parts)
        made.append(ImageRequest(last.text, context=tuple(before)))
    return [*made, ImageRequest(context=(upstream.pictures()[0],))]


@pytest.mark.parametrize("i", range(2))
def test_pictures_are_prepared_and_seen_as_upstream(i, arrays, chat):
    pixels = encoder_input(upstream.pictures()[i], chat.model.vision.side)
    assert np.abs(pixels.numpy() - arrays[f"pixels_{i}"]).max() < 1e-6
    seen = chat.model.picture_vectors([pixels])[0]
    assert np.abs(seen.numpy() - arrays[f"seen_{i}"]).max() < 1e-5


def prompt_of(stage, request):
    parts = chat_parts(request, stage.settings)
    return read(stage.model, parts, stage.settings.max_new_tokens, stage.context)


def test_prompts_are_the_same_ids(arrays, chat):
    for i, request in enumerate(conversations()):
        assert list(prompt_of(chat, request).ids) == arrays[f"ids_{i}"].tolist()


def test_prompts_of_the_hubs_template_are_the_same_ids(arrays, chat_folder):
    stage = drafting(chat_folder, template="hf")
    for i, request in enumerate(conversations()[: len(upstream.QUESTIONS)]):
        assert list(prompt_of(stage, request).ids) == arrays[f"hub_ids_{i}"].tolist()


def test_prefix_embeddings_and_first_logits(arrays, chat):
    prompts = [prompt_of(chat, request) for request in conversations()]
    states = embeddings(chat.model, prompts)
    streams = Streams(chat.model.network.lm.model, chat.context)
    streams.open(states)
    logits = chat.model.network.lm.lm_head(streams.step())
    for i, state in enumerate(states):
        assert np.abs(state.numpy() - arrays[f"embeds_{i}"]).max() < 2e-5
        assert np.abs(logits[i].detach().numpy() - arrays[f"logits_{i}"]).max() < 1e-4


@pytest.mark.parametrize("run", range(len(upstream.BEAMS)))
def test_answers_are_the_same_ids(run, arrays, chat_folder):
    """In one padded batch; upstream answers one at a time, after an artificial `<s>`."""
    stage = drafting(chat_folder, **upstream.BEAMS[run])
    prompts = [prompt_of(stage, request) for request in conversations()]
    answers = stage._search(embeddings(stage.model, prompts))
    expected = [arrays[f"answer_{i}_{run}"].tolist()[1:] for i in range(len(prompts))]
    assert answers == expected
    outcomes = stage(conversations())
    replies = [str(arrays[f"reply_{i}_{run}"]) for i in range(len(prompts))]
    assert [o.value.text for o in outcomes] == replies


def test_answers_end_in_both_ways(arrays):
    ended = {int(ids[-1]) == 2 for name, ids in arrays.items() if name.startswith("answer")}
    assert ended == {True, False}


def test_vectors_and_where_guidance_starts_from(arrays, gen):
    for i, outcome in enumerate(gen(requests())):
        vectors, free = unpack_vectors(outcome.value)
        assert np.abs(vectors.numpy() - arrays[f"vectors_{i}"]).max() < 5e-5
        assert np.abs(free.numpy() - arrays[f"free_{i}"]).max() < 5e-5
    last = arrays["free_3"]
    assert np.abs(last - arrays["free_0"]).max() > 0.1, "autoencoding has its own negative"


def test_ids_gen_reads(arrays, gen):
    for i, request in enumerate(requests()[:-1]):
        parts = request_parts(request)
        ids = read(gen.model, parts, 3, gen.context, begins_picture=True).ids
        assert list(ids) == arrays[f"gen_ids_{i}"].tolist()


def drawn_requests(arrays) -> list[ImageRequest]:
    def payload(i: int) -> Payload:
        both = (torch.from_numpy(arrays[f"{n}_{i}"]) for n in ("vectors", "free"))
        return pack_vectors(*both)

    return [ImageRequest(payload=payload(i), seed=upstream.NOISE_SEED) for i in range(4)]


def test_latents_and_pixels_from_the_same_noise(arrays, gen_folder):
    side = {"height": upstream.SIDE, "width": upstream.SIDE, "steps": upstream.STEPS}
    stage = Emu2Render(weights="pretrained", model=str(gen_folder), **EXACT, **side)
    latents = []
    decode = stage.drawer.pipeline.vae.decode

    def noted(sample, *args, **kwargs):
        latents.append(sample.detach())
        return decode(sample, *args, **kwargs)

    stage.drawer.pipeline.vae.decode = noted
    pictures = stage(drawn_requests(arrays))
    scale = stage.drawer.pipeline.vae.config.scaling_factor
    for i, outcome in enumerate(pictures):
        ours = (latents[0][i] * scale).numpy()
        assert np.abs(ours - arrays[f"latents_{i}"]).max() < 1e-4
        expected = arrays[f"picture_{i}"].astype(int)
        assert np.abs(outcome.value.pixels.astype(int) - expected).max() <= 1
        assert expected.std() > 20


def test_the_arrays_belong_to_these_weights():
    """Should the frozen generators ever change, say so before anything else does."""
    sums = [
        sum(v.double().sum().item() for v in state.values())
        for state in (upstream.chat_state(), upstream.gen_state())
    ]
    assert sums == pytest.approx(SUMS, abs=1e-6)


SUMS = [414.57396248807424, 634.8879527801271]
