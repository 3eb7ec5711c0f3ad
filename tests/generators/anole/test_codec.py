"""The VQ model and what it reads, against other programs and by hand."""

import anole_helpers as helpers
import numpy as np
import pytest
import torch
from diffusers.loaders.single_file_utils import convert_ldm_vae_checkpoint
from picture_helpers import png, saved
from PIL import Image as Pillow

from generators.anole.codec import Codec, centre_crop, encoder_input, on_white, vq_model
from generators.anole.models import taming_layout
from generators.document import Image
from generators.images import ImageError
from generators.loading.strict import fill


def codec_of(config, tensors, dtype) -> Codec:
    with torch.device("meta"):
        model = vq_model(config)
    layout = taming_layout(model.state_dict(), len(config["channel_multiplier"]))
    where = {"source": "test", "device": torch.device("cpu"), "dtype": dtype}
    fill(model, tensors.items(), layout, **where)
    return Codec(model, config)


@pytest.mark.models
def test_names_against_diffusers_own_converter():
    """Every parameter comes from the tensor that diffusers' converter would take."""
    with torch.device("meta"):
        model = vq_model(helpers.VQ)
    shapes = helpers.taming_shapes(helpers.VQ)
    stored = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    names = {id(v): k for k, v in stored.items()}
    converted = convert_ldm_vae_checkpoint(dict(stored), model.config)
    layout = taming_layout(model.state_dict(), len(helpers.VQ["channel_multiplier"]))
    ours = {place.name: name for name, place in layout.items()}
    assert set(layout) == set(shapes)
    for name, value in converted.items():
        # The converter reshapes the attention's kernels, which makes new tensors.
        if id(value) in names:
            assert ours[name] == names[id(value)]
        else:
            assert ".attentions.0." in name
    assert set(ours) - set(converted) == {"quantize.embedding.weight"}


@pytest.mark.models
def test_a_batch_is_decoded_as_exactly_as_an_image_alone():
    """In 32 x 32 codes, as published; the more pixels, the more a batch used to err."""
    levels = {"resolution": 128, "channel_multiplier": [1, 2, 4]}
    config = helpers.VQ | levels | {"num_res_blocks": 1}
    tensors = helpers.taming_tensors(config)
    one, two = (codec_of(config, tensors, d) for d in (torch.float32, torch.float64))
    codes = torch.randint(0, 128, (2, 32, 32), generator=torch.manual_seed(2))
    exact = two.values(codes)
    alone = torch.cat([one.values(codes[i : i + 1]) for i in range(2)])
    error = (one.values(codes) - exact).abs().max()
    assert error < 2 * (alone - exact).abs().max()
    assert error < 3e-5


def test_unsupported_architectures_are_refused():
    with pytest.raises(ValueError, match="attn_resolutions"):
        vq_model(helpers.VQ | {"attn_resolutions": [16]})


def noise(width: int, height: int, mode: str = "RGB") -> Pillow.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, len(mode)))
    return Pillow.fromarray(pixels.astype(np.uint8), mode)


@pytest.mark.parametrize(
    ("size", "scaled", "corner"),
    [
        # 512 / 720 * 1000 = 711.1: rounding and truncation agree.
        ((1000, 720), (711, 512), (99, 0)),
        # 512 / 719 * 1000 = 712.1
        ((1000, 719), (712, 512), (100, 0)),
        # 512 / 480 * 667 = 711.47 and 512 / 480 * 668 = 712.53: the latter rounds up.
        ((667, 480), (711, 512), (99, 0)),
        ((480, 668), (512, 713), (0, 100)),
        ((300, 300), (512, 512), (0, 0)),
    ],
)
def test_shorter_side_then_centre_crop(size, scaled, corner):
    picture = noise(*size)
    whole = picture.resize(scaled, Pillow.Resampling.LANCZOS)
    expected = whole.crop((*corner, corner[0] + 512, corner[1] + 512))
    assert np.array_equal(np.asarray(centre_crop(picture, 512)), np.asarray(expected))


def test_transparency_is_blended_on_white_and_truncated():
    pixels = np.array([[[10, 200, 0, 255], [10, 200, 0, 0], [10, 200, 0, 100]]], np.uint8)
    blended = np.asarray(on_white(png(Pillow.fromarray(pixels, "RGBA"))))
    # (1 - 100 / 255) * 255 + 100 / 255 * v = 155 + v * 0.39: 158.9, 233.4, 155.
    assert blended.tolist() == [[[10, 200, 0], [255, 255, 255], [158, 233, 155]]]
    palette = Pillow.new("P", (2, 1))
    palette.putpalette([0, 0, 0, 50, 60, 70])
    palette.putpixel((1, 0), 1)
    read = np.asarray(on_white(Image.of(saved(palette, "PNG", transparency=0))))
    assert read.tolist() == [[[255, 255, 255], [50, 60, 70]]]
    grey = Pillow.fromarray(np.array([[[40, 51]]], np.uint8), "LA")
    assert np.asarray(on_white(png(grey))).tolist() == [[[212, 212, 212]]]
    opaque = noise(5, 4, "RGBA")
    opaque.putalpha(255)
    expected = np.asarray(opaque)[:, :, :3]
    assert np.array_equal(np.asarray(on_white(png(opaque))), expected)


def test_rotated_images_stand_upright():
    exif = Pillow.Exif()
    exif[0x0112] = 6
    picture = noise(6, 4, "RGBA")
    upright = on_white(Image.of(saved(picture, "PNG", exif=exif)))
    straight = on_white(png(picture.transpose(Pillow.Transpose.ROTATE_270)))
    assert upright.size == (4, 6)
    assert np.array_equal(np.asarray(upright), np.asarray(straight))


def test_very_long_images_are_refused():
    with pytest.raises(ImageError, match="1 x 3000 pixels would become 512 x 1536000"):
        encoder_input(png(noise(1, 3000)), 512)
