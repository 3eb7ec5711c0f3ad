"""Anole's checkpoints and VQ model, against other programs and by hand."""

import json

import anole_helpers as helpers
import numpy as np
import pytest
import torch
from natives import asked, drawings, edit, published
from picture_helpers import png, saved
from PIL import Image as Pillow
from safetensors.torch import save_file

from plait.generators.anole.codec import Codec, encoder_input, on_white, vq_model
from plait.generators.document import Image
from plait.generators.errors import CheckpointError
from plait.generators.images import ImageError
from plait.generators.loading.strict import fill
from plait.generators.loading.taming import taming_layout

pytestmark = pytest.mark.models


def codec_of(config, tensors, dtype) -> Codec:
    with torch.device("meta"):
        model = vq_model(config)
    layout = taming_layout(model.state_dict(), len(config["channel_multiplier"]))
    where = {"source": "test", "device": torch.device("cpu"), "dtype": dtype}
    fill(model, tensors.items(), layout, **where)
    return Codec(model, config)


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


def test_transparency_is_blended_on_white_and_truncated():
    palette = Pillow.new("P", (2, 1))
    palette.putpalette([0, 0, 0, 50, 60, 70])
    palette.putpixel((1, 0), 1)
    read = np.asarray(on_white(Image.of(saved(palette, "PNG", transparency=0))))
    assert read.tolist() == [[[255, 255, 255], [50, 60, 70]]]
    # (1 - 51 / 255) * 255 + 51 / 255 * 40 = 212.
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


def test_renderer_reads_only_the_shards_it_needs(copied):
    """And a configuration that leaves out what equals transformers' defaults."""
    places, folder = copied("anole", "render", "model")

    def vq_only(tensors) -> None:
        for name in [n for n in tensors if ".vqmodel." not in n]:
            del tensors[name]

    edit(folder, "*.safetensors", vq_only)
    index, config = folder / "model.safetensors.index.json", folder / "config.json"
    where = json.loads(index.read_text())["weight_map"]
    where["lm_head.weight"] = "absent.safetensors"
    index.write_text(json.dumps({"weight_map": where}))
    about = json.loads(config.read_text())
    for name in ("in_channels", "attn_type", "double_latent", "attn_resolutions"):
        del about["vq_config"][name]
    config.write_text(json.dumps(about))
    published("anole", "render", places)
    with pytest.raises(CheckpointError, match=r"has no file 'absent\.safetensors'"):
        published("anole", "draft", places)


def test_vq_model_alone_renders_but_does_not_draft(tmp_path):
    save_file(helpers.taming_tensors(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(helpers.VQ))
    published("anole", "render", {"model": str(tmp_path)})
    with pytest.raises(CheckpointError, match="VQ model only"):
        published("anole", "draft", {"model": str(tmp_path)})


def test_picture_size_comes_from_the_config(tmp_path):
    small = {"resolution": 24, "channel_multiplier": [1, 2, 1], "num_res_blocks": 2}
    vq = helpers.VQ | small
    taming = helpers.taming_tensors(vq)
    place = {"model": str(helpers.save_hf(tmp_path, helpers.language(), taming, vq))}
    draft = published("anole", "draft", place, context=200)
    outcomes = draft([asked("a small boat", seed=seed) for seed in range(6)])
    drawn = published("anole", "render", place)(drawings("anole", outcomes))
    assert {d.value.pixels.shape for d in drawn} == {(24, 24, 3)}
