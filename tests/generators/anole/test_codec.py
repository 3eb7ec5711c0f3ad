"""The VQ model: names, shapes, codes and pixels against other programs."""

import anole_helpers as helpers
import numpy as np
import pytest
import torch
from diffusers.loaders.single_file_utils import convert_ldm_vae_checkpoint
from transformers.models.chameleon.modeling_chameleon import (
    ChameleonVQVAE,
    ChameleonVQVAEConfig,
)

from generators.anole.codec import Codec, vq_model
from generators.anole.published import taming_layout
from generators.anole.sizes import FULL
from generators.loading.strict import fill

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def tensors():
    return helpers.taming_tensors(helpers.VQ)


@pytest.fixture(scope="module")
def codec(tensors):
    return codec_of(helpers.VQ, tensors)


def codec_of(config, tensors, dtype=torch.float32) -> Codec:
    with torch.device("meta"):
        model = vq_model(config)
    fill(
        model,
        tensors.items(),
        taming_layout(model.state_dict(), len(config["channel_multiplier"])),
        source="test",
        device=torch.device("cpu"),
        dtype=dtype,
    )
    return Codec(model, config)


@pytest.mark.parametrize("config", [helpers.VQ, dict(FULL.vq)], ids=["tiny", "full"])
def test_names_against_diffusers_own_converter(config):
    """Every parameter comes from the tensor that diffusers' converter would take."""
    with torch.device("meta"):
        model = vq_model(config)
    shapes = helpers.taming_shapes(config)
    stored = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    stored = {k: v.view(v.shape).requires_grad_(False) for k, v in stored.items()}
    marks = {id(v): k for k, v in stored.items()}
    converted = convert_ldm_vae_checkpoint(dict(stored), model.config)
    layout = taming_layout(model.state_dict(), len(config["channel_multiplier"]))
    ours = {place.name: name for name, place in layout.items()}
    assert set(layout) == set(shapes)
    for name, value in converted.items():
        # The converter reshapes the attention's kernels, which makes new tensors.
        if id(value) in marks:
            assert ours[name] == marks[id(value)]
        else:
            assert ".attentions.0." in name
    assert set(ours) - set(converted) == {"quantize.embedding.weight"}


def test_pixels_against_the_vqgan_formula(codec, tensors):
    codes = np.random.default_rng(0).integers(0, 128, (3, 8, 8)).astype(np.int32)
    ours = codec.decode(codes)
    assert ours.shape == (3, 64, 64, 3)
    for grid, pixels in zip(codes, ours, strict=True):
        values = helpers.taming_decode(tensors, helpers.VQ, torch.from_numpy(grid).long())
        scaled = (values.clamp(-1, 1) + 1) / 2 * 255
        expected = scaled.permute(1, 2, 0).numpy()
        # Truncated: within the level below, up to float32 noise at its edges.
        assert (pixels <= expected + 1e-2).all()
        assert (pixels >= expected - 1 - 1e-2).all()
        exact = np.floor(expected).astype(np.uint8)
        assert (pixels == exact).mean() > 0.999


def test_codes_against_transformers_encoder(codec, tensors):
    config = ChameleonVQVAEConfig(**helpers.VQ)
    reference = ChameleonVQVAE(config)
    own = {k: v for k, v in tensors.items() if not k.startswith("decoder.")}
    reference.load_state_dict(own, strict=True)
    pixels = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.inference_mode():
        expected = reference.encode(pixels, return_dict=True).image_tokens.view(4, 8, 8)
    ours = np.stack([codec.encode(p) for p in pixels])
    assert ours.dtype == np.int32
    assert np.array_equal(ours, expected.numpy())
    assert len(np.unique(ours)) > 20


def test_a_batch_is_decoded_as_exactly_as_a_picture_alone():
    """In 32 x 32 codes, as published; the more pixels, the more a batch used to err."""
    levels = {"resolution": 128, "channel_multiplier": [1, 2, 4]}
    config = helpers.VQ | levels | {"num_res_blocks": 1}
    tensors = helpers.taming_tensors(config)
    one, two = (codec_of(config, tensors, d) for d in (torch.float32, torch.float64))
    codes = np.random.default_rng(2).integers(0, 128, (2, 32, 32)).astype(np.int32)
    exact = two.values(codes)
    alone = torch.cat([one.values(codes[i : i + 1]) for i in range(2)])
    error = (one.values(codes) - exact).abs().max()
    assert error < 2 * (alone - exact).abs().max()
    assert error < 3e-5


def test_each_code_is_drawn_where_it_stands(codec):
    codes = np.zeros((1, 8, 8), np.int32)
    base = codec.decode(codes)[0].astype(int)
    codes[0, 1, 6] = 77
    moved = np.abs(codec.decode(codes)[0].astype(int) - base).sum(axis=-1)
    rows, columns = np.unravel_index(moved.argmax(), moved.shape)
    assert 4 <= rows < 20
    assert 44 <= columns < 60


def test_unsupported_architectures_are_refused():
    with pytest.raises(ValueError, match="attn_resolutions"):
        vq_model(helpers.VQ | {"attn_resolutions": [16]})
