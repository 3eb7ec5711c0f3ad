"""Emu2's published layouts: what is read, and that nothing is assumed."""

import json
from dataclasses import replace

import emu2_helpers as upstream
import pytest
from frozen import random_state
from natives import asked, published
from picture_helpers import smooth

from generators.architectures import config_of
from generators.emu2 import models
from generators.emu2.network import empty_network
from generators.emu2.settings import LAYERS_B
from generators.emu2.tokens import ADDED, ADDED_CHAT
from generators.errors import CheckpointError

pytestmark = pytest.mark.models


def test_native_files_without_a_vision_config(tmp_path):
    """Heads of 112 and 256 or 64 vectors are then the published ones."""
    vision = replace(
        upstream.CHAT_VISION, width=224, heads=2, patch=2, grid=32, layers=1, mlp_width=32
    )
    for names, queries in ((ADDED_CHAT, 256), (ADDED, 64)):
        shapes = upstream.shapes(vision, upstream.LANGUAGE, upstream.PIECES + len(names))
        folder = tmp_path / str(queries)
        upstream.save_native(folder, random_state(shapes.items(), 1), None)
        found = models.open_checkpoint(str(folder)).vision()
        assert found == replace(vision, queries=queries)


def test_vocabulary_of_newer_tokenizers(copied):
    places, folder = copied("emu2", "draft", "model")
    usual = models.open_checkpoint(places["model"]).tokens().added
    added = json.loads((folder / "added_tokens.json").read_text())
    (folder / "added_tokens.json").unlink()
    decoder = {str(i): {"content": name, "special": True} for name, i in added.items()}
    decoder["1"] = {"content": "<s>", "special": True}
    config = {"added_tokens_decoder": decoder}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    newer = models.open_checkpoint(places["model"]).tokens().added
    assert newer == usual
    assert set(ADDED_CHAT) <= set(newer)


def test_sizes_come_from_the_checkpoint(tmp_path):
    """Every dimension of it is another than that of the other tests."""
    vision = replace(
        upstream.CHAT_VISION, width=36, heads=2, patch=6, grid=6, layers=3, mlp_width=40
    )
    vision = replace(vision, queries=9)
    language = upstream.LANGUAGE | {"hidden_size": 40, "intermediate_size": 56}
    language |= {"num_hidden_layers": 3, "num_attention_heads": 5}
    language |= {"num_key_value_heads": 5, "max_position_embeddings": 300}
    shapes = upstream.shapes(vision, language, upstream.PIECES + len(ADDED_CHAT))
    state = random_state(shapes.items(), 2)
    folder = upstream.save_chat(tmp_path / "chat", state, vision, language)
    stage = published("emu2", "draft", {"model": str(folder)})
    assert stage.context == 300
    (outcome,) = stage([asked("A house", smooth(1))])
    plain = stage.prompt(asked("A house"))
    assert outcome.usage["input_tokens"] - plain.length == 11
    assert outcome.usage["output_tokens"] > 0


def test_a_folder_without_emu2_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"neither a config\.json"):
        published("emu2", "draft", {"model": str(tmp_path)})


@pytest.mark.parametrize("part", ["chat", "gen"])
def test_full_size_has_the_published_shapes(part):
    sizes = config_of("emu2", tiny=False)
    vision = models.vision_size(sizes, part)
    rows = 32_000 + len(models.SPECIAL[part])
    network = empty_network(vision, models.llama_config(sizes, rows))
    ours = {
        ("decoder." + n if n.startswith("lm.") else n): tuple(t.shape)
        for n, t in network.state_dict().items()
    }
    assert ours == upstream.shapes(vision, sizes["language"], rows)
    assert network.visual.size.side == 448
    # 73.8 GB in bfloat16, the size of Emu2-Gen's eight shards.
    billions = sum(p.numel() for p in network.parameters()) / 1e9
    assert billions == pytest.approx(36.9, abs=0.05)
    inside = sum(p.numel() for p in network.lm.model.layers.parameters()) / 1e9
    assert inside == pytest.approx(LAYERS_B, abs=1e-3)
