"""The autoencoder and the artists: a few steps, resumed, saved, and loaded strictly."""

from __future__ import annotations

import random
import shutil

import pytest
import torch
from diffusers import AutoencoderKL
from diffusion_helpers import REQUESTS, from_folder, pixels
from transformers import AutoTokenizer

from benchmarks.miniature.training.artist import prompt_reading, sdxl, vae
from benchmarks.miniature.training.artist import train as artist
from benchmarks.miniature.training.artist.captions import caption
from benchmarks.miniature.training.drawn import DrawnScenes
from benchmarks.miniature.training.loop import TrainingPlan
from scorers.truth.scene import Scene, random_scene

pytestmark = pytest.mark.models

SHORT = TrainingPlan(steps=3, rate=1e-3, warmup=1, average=0.5, save_every=1, seed=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An autoencoder and an artist after three steps."""
    out = tmp_path_factory.mktemp("mini")
    vae.train(out, SHORT, pictures=24)
    artist.train(out, SHORT, pictures=24, reading=SHORT, scenes=12)
    sdxl.train(out, SHORT, pictures=24, scenes=12)
    return out


def weights(folder):
    return AutoencoderKL.from_pretrained(folder, dtype=torch.float32).state_dict()


def test_interrupted_training_ends_with_the_same_weights(folder, tmp_path, monkeypatch):
    def interrupted(module, pictures):
        if (tmp_path / "state" / "vae" / "state.pt").exists():
            raise KeyboardInterrupt
        return loss(module, pictures)

    loss = vae.reconstruction_loss
    monkeypatch.setattr(vae, "reconstruction_loss", interrupted)
    with pytest.raises(KeyboardInterrupt):
        vae.train(tmp_path, SHORT, pictures=24)
    monkeypatch.undo()
    vae.train(tmp_path, SHORT, pictures=24)
    whole, resumed = weights(folder / "vae"), weights(tmp_path / "vae")
    for name, value in whole.items():
        assert torch.equal(resumed[name], value), name


def test_standardising_keeps_the_pictures(folder):
    drawn = DrawnScenes.of(32, seed=1)
    torch.manual_seed(0)
    module = vae.autoencoder().eval()
    before = vae.round_trip(module, drawn.batch(range(4)))
    vae.standardise(module, drawn)
    assert torch.allclose(vae.round_trip(module, drawn.batch(range(4))), before, atol=1e-4)
    latents = vae.encoded(module, drawn) * module.config.scaling_factor
    assert latents.std((0, 2, 3)).sub(1).abs().max() < 0.01
    assert latents.mean((0, 2, 3)).abs().max() < 0.01


@pytest.mark.parametrize("name", [artist.NAME, sdxl.NAME])
def test_saved_artist_is_drawn_with_by_the_ordinary_stage(folder, name):
    size = {"steps": 2, "guidance": 2.0, "height": 64, "width": 64}
    stage = from_folder(folder / name, name, dtype="float32", **size)
    drawn = pixels(stage(REQUESTS[:1]))
    assert drawn[0].shape == (64, 64, 3)


def test_sdxl_begins_with_the_u_net_of_openjourney():
    """The second tower has no effect before it is trained."""
    torch.manual_seed(0)
    given, unet = artist.denoiser().eval(), sdxl.denoiser().eval()
    sdxl.begin_with(unet, given)
    noisy, times, first = (
        torch.randn(2, 8, 8, 8),
        torch.tensor([5, 900]),
        torch.randn(2, 7, 96),
    )

    def predicted(second):
        more = {
            "text_embeds": torch.randn(2, sdxl.SECOND_WIDTH),
            "time_ids": torch.ones(2, 6),
        }
        tokens = torch.cat([first, second], dim=-1)
        return unet(noisy, times, tokens, added_cond_kwargs=more).sample

    with torch.no_grad():
        one = predicted(torch.randn(2, 7, sdxl.SECOND_WIDTH))
        other = predicted(torch.randn(2, 7, sdxl.SECOND_WIDTH))
        assert torch.equal(one, other)
        for block in given.up_blocks[1].attentions:
            block.proj_out.weight.zero_(), block.proj_out.bias.zero_()
        assert torch.allclose(one, given(noisy, times, first).sample, atol=1e-4)


def test_prompts_are_read_in_whole_words():
    tokenizer = prompt_reading.prompt_tokenizer()
    rng = random.Random(3)
    for _ in range(50):
        text = caption(random_scene(rng, "train"), rng)
        words = text.replace(",", " ,").replace(".", " .").replace(":", " :").split()
        assert len(tokenizer.tokenize(text)) == len(words)
        assert len(words) + 2 <= prompt_reading.LENGTH


def test_an_artist_that_is_trained_further_reads_with_the_same_tokenizer(folder, tmp_path):
    """Two tokenizers of the same texts differ, and an encoder knows the ids of its own."""
    for part in ("vae", "state/artist-text"):
        shutil.copytree(folder / part, tmp_path / part)
    artist.train(tmp_path, SHORT, pictures=24, reading=SHORT, scenes=12)
    before, after = (
        AutoTokenizer.from_pretrained(place / artist.NAME / "tokenizer")
        for place in (folder, tmp_path)
    )
    assert after.get_vocab() == before.get_vocab()
    assert after.model_max_length == prompt_reading.LENGTH


def test_truth_of_a_scene_names_each_place():
    rng = random.Random(4)
    scene = random_scene(rng, "train", least=2, most=2)
    row = prompt_reading.truth_of([scene])[0].tolist()
    occupied = [scene.at(p) is not None for p in prompt_reading.PLACES]
    for k in range(3):
        assert [n > 0 for n in row[4 * k : 4 * k + 4]] == occupied
    other = Scene.of("pink", list(scene.items))
    assert prompt_reading.truth_of([other])[0, -1] == 2
