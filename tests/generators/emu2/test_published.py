"""Published layouts: what loads, what is refused, and that nothing is assumed."""

import json
from dataclasses import replace

import emu2_helpers as helpers
import emu2_upstream_helpers as upstream
import pytest
import torch
from safetensors.torch import load_file

from generators.document import ImageRequest
from generators.emu2.condition import Emu2Condition
from generators.emu2.draft import Emu2Draft
from generators.emu2.models import open_checkpoint
from generators.emu2.network import empty_network
from generators.emu2.reading import unpack_vectors
from generators.emu2.render import Emu2Render
from generators.emu2.settings import LAYERS_B
from generators.emu2.sizes import FULL_CHAT, FULL_GEN, TINY_CHAT, TINY_GEN
from generators.emu2.tokens import ADDED, ADDED_CHAT
from generators.errors import CheckpointError

pytestmark = pytest.mark.models

TOLD = {"weights": "pretrained", "device": "cpu", "dtype": "float32"}
SMALL = {"height": 64, "width": 64, "steps": 2}


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory):
    return chat_at(tmp_path_factory.mktemp("hub") / "chat")


@pytest.fixture(scope="module")
def gen_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub") / "gen"
    state = helpers.native_state(helpers.gen())
    sizes = (TINY_GEN.vision, TINY_GEN.language)
    return helpers.save_gen(folder, state, *sizes, helpers.tiny_drawing())


def chat_at(folder, change=None):
    state = helpers.native_state(helpers.chat())
    sizes = (TINY_CHAT.vision, TINY_CHAT.language)
    return helpers.save_chat(folder, state, *sizes, change=change)


def answers(stage) -> list[str]:
    asked = [helpers.asked("A red house", helpers.picture(1)), helpers.asked("Why?")]
    return [outcome.value.text for outcome in stage(asked)]


def vectors(stage) -> list[torch.Tensor]:
    requests = [
        ImageRequest("a bird", context=(helpers.picture(1),)),
        ImageRequest(context=(helpers.picture(2),)),
    ]
    return [t for o in stage(requests) for t in unpack_vectors(o.value)]


def test_hub_layout_of_chat_gives_back_the_weights(chat_folder):
    """Pickled shards with an index, special tokens by name, stray rotary buffers."""
    stage = Emu2Draft(model=str(chat_folder), **TOLD)
    ours, theirs = stage.model.network.state_dict(), helpers.chat().network.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert stage.model.vision == TINY_CHAT.vision
    assert answers(stage) == answers(Emu2Draft(weights="tiny", device="cpu"))


def test_hub_layout_of_gen_gives_back_the_weights(gen_folder):
    stage = Emu2Condition(model=str(gen_folder), **TOLD)
    tiny = Emu2Condition(weights="tiny", device="cpu")
    pairs = zip(vectors(stage), vectors(tiny), strict=True)
    assert all((a - b).abs().max() < 1e-4 for a, b in pairs)
    ours, theirs = stage.model.network.state_dict(), tiny.model.network.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    payload = tiny([ImageRequest("a bird")])[0].value
    request = [ImageRequest(payload=payload, seed=3)]
    published = Emu2Render(model=str(gen_folder), **TOLD, **SMALL)(request)[0]
    built = Emu2Render(weights="tiny", device="cpu", **SMALL)(request)[0]
    assert (published.value.pixels == built.value.pixels).all()


@pytest.mark.parametrize("kind", ["chat", "gen"])
def test_native_and_hub_layouts_are_one_model(kind, tmp_path):
    """On weights that are random to the last bias, so no swapped name goes unseen."""
    native = getattr(upstream, f"native_{kind}")(tmp_path / "native")
    hub = getattr(upstream, f"hub_{kind}")(tmp_path / "hub")
    make, ask = {"chat": (Emu2Draft, answers), "gen": (Emu2Condition, vectors)}[kind]
    a, b = (ask(make(model=str(folder), **TOLD)) for folder in (native, hub))
    assert len(a) == len(b) >= 2
    equal = torch.equal if kind == "gen" else str.__eq__
    assert all(equal(x, y) for x, y in zip(a, b, strict=True))
    if kind == "gen":
        a, b = (
            Emu2Render(model=str(f), **TOLD, **SMALL).drawer.pipeline for f in (native, hub)
        )
        for name in ("unet", "vae"):
            one, two = (getattr(p, name).state_dict() for p in (a, b))
            assert one.keys() == two.keys()
            assert all(torch.equal(one[k], two[k]) for k in one)
            assert (
                getattr(a, name).config.items()
                >= {
                    k: v
                    for k, v in getattr(b, name).config.items()
                    if not k.startswith("_")
                }.items()
            )
        assert a.scheduler.config.timestep_spacing == "leading"


def test_native_files_without_a_vision_config(tmp_path):
    """Heads of 112 and 256 or 64 vectors are then the published ones."""
    vision = replace(
        TINY_CHAT.vision, width=224, heads=2, patch=2, grid=32, layers=1, mlp_width=32
    )
    for names, queries in ((ADDED_CHAT, 256), (ADDED, 64)):
        rows = helpers.toy_pieces().get_piece_size() + len(names)
        shapes = helpers.shapes(vision, TINY_CHAT.language, rows)
        folder = tmp_path / str(queries)
        state = helpers.random_state(shapes, 1)
        helpers.save_native(folder, state, None, TINY_CHAT.language)
        found = open_checkpoint(str(folder)).vision()
        assert found == replace(vision, queries=queries)


def test_vocabulary_of_newer_tokenizers(tmp_path, chat_folder):
    folder = chat_at(tmp_path / "chat")
    added = json.loads((folder / "added_tokens.json").read_text())
    (folder / "added_tokens.json").unlink()
    decoder = {str(i): {"content": name, "special": True} for name, i in added.items()}
    decoder["1"] = {"content": "<s>", "special": True}
    config = {"added_tokens_decoder": decoder}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    named = open_checkpoint(str(folder)).tokens().added
    assert named == open_checkpoint(str(chat_folder)).tokens().added
    assert len(named) == 274


def test_sizes_come_from_the_checkpoint(tmp_path):
    """Every dimension of it is another than that of tiny weights."""
    vision = replace(
        TINY_CHAT.vision, width=36, heads=2, patch=6, grid=6, layers=3, mlp_width=40
    )
    vision = replace(vision, queries=9)
    language = dict(TINY_CHAT.language) | {"hidden_size": 40, "intermediate_size": 56}
    language |= {"num_hidden_layers": 3, "num_attention_heads": 5}
    language |= {"num_key_value_heads": 5, "max_position_embeddings": 300}
    rows = helpers.toy_pieces().get_piece_size() + len(ADDED_CHAT)
    state = helpers.random_state(helpers.shapes(vision, language, rows), 2)
    folder = helpers.save_chat(tmp_path / "chat", state, vision, language)
    stage = Emu2Draft(model=str(folder), **TOLD)
    assert stage.context == 300
    assert stage.model.picture == 11
    outcome = stage([helpers.asked("A house", helpers.picture(1))])[0]
    assert outcome.usage["output_tokens"] > 0


def test_missing_parts_are_named(tmp_path, gen_folder):
    with pytest.raises(CheckpointError, match=r"holds no Emu2: neither a config\.json"):
        Emu2Draft(model=str(tmp_path), **TOLD)
    folder = chat_at(tmp_path / "chat")
    (folder / "tokenizer.model").unlink()
    with pytest.raises(CheckpointError, match=r"has no file 'tokenizer\.model'"):
        Emu2Draft(model=str(folder), **TOLD)
    (folder / "tokenizer.model").write_bytes(b"no model")
    with pytest.raises(CheckpointError, match="is not a valid SentencePiece model"):
        Emu2Draft(model=str(folder), **TOLD)
    with pytest.raises(CheckpointError, match=r"lacks \[USER\], \[ASSISTANT\]; drafting"):
        Emu2Draft(model=str(gen_folder), **TOLD)
    without = helpers.save_gen(
        tmp_path / "gen",
        helpers.native_state(helpers.gen()),
        TINY_GEN.vision,
        TINY_GEN.language,
        {"vae": helpers.tiny_drawing()["vae"]},
    )
    with pytest.raises(CheckpointError, match="lacks the component folders unet"):
        Emu2Render(model=str(without), **TOLD)
    (without / "multimodal_encoder" / "model.bf16-00001-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"multimodal_encoder/ of .* no file"):
        Emu2Condition(model=str(without), **TOLD)


def test_native_rows_must_fit_the_vocabulary(tmp_path):
    vision, language = TINY_CHAT.vision, TINY_CHAT.language
    state = helpers.random_state(helpers.shapes(vision, language, 700), 1)
    folder = helpers.save_native(tmp_path / "native", state, vision, language)
    with pytest.raises(CheckpointError, match="700 embeddings fit neither the 480 pieces"):
        Emu2Draft(model=str(folder), **TOLD)


def test_misfitting_unet_is_named(tmp_path, gen_folder):
    from safetensors.torch import save_file

    folder = tmp_path / "gen"
    drawing = helpers.tiny_drawing()
    state = helpers.native_state(helpers.gen())
    helpers.save_gen(folder, state, TINY_GEN.vision, TINY_GEN.language, drawing)
    path = folder / "unet" / "diffusion_pytorch_model.bf16.safetensors"
    tensors = load_file(path)
    tensors["stray"] = tensors.pop("conv_in.bias")
    save_file(tensors, path)
    with pytest.raises(CheckpointError) as raised:
        Emu2Render(model=str(folder), **TOLD)
    assert "unet: missing conv_in.bias" in str(raised.value)
    assert "unet: unexpected stray" in str(raised.value)
    with pytest.raises(CheckpointError, match="no component has files of the variant"):
        Emu2Render(model=str(gen_folder), **TOLD, variant="fp16")


def parameters(module: torch.nn.Module, part: str = "") -> float:
    """In billions."""
    found = (p.numel() for n, p in module.named_parameters() if n.startswith(part))
    return sum(found) / 1e9


@pytest.mark.parametrize(
    ("size", "added", "rows"), [(FULL_CHAT, ADDED_CHAT, 32_274), (FULL_GEN, ADDED, 32_272)]
)
def test_full_size_has_the_published_parameters(size, added, rows):
    """73.8 GB in bfloat16, the size of Emu2-Gen's eight shards."""
    network = empty_network(size.vision, size.config(32_000 + len(added)))
    shapes = helpers.shapes(size.vision, size.language, rows)
    ours = {
        ("decoder." + n if n.startswith("lm.") else n): tuple(t.shape)
        for n, t in network.state_dict().items()
    }
    assert ours == shapes
    assert parameters(network) == pytest.approx(36.9, abs=0.05)
    assert parameters(network) * 2 == pytest.approx(73.8, abs=0.1)
    assert parameters(network, "lm.model.layers.") == pytest.approx(LAYERS_B, abs=1e-3)
    assert network.visual.size.side == 448


def test_dummy_weights_have_llamas_numbering(monkeypatch):
    """The code path of full size, at a size a CPU can hold."""
    from generators.emu2 import draft

    small = replace(TINY_CHAT, language=dict(TINY_CHAT.language))
    monkeypatch.setattr(draft, "FULL_CHAT", small)
    monkeypatch.setattr("generators.emu2.models.FULL_CHAT", small)
    stage = Emu2Draft(weights="dummy", device="cpu", dtype="bfloat16", max_new_tokens=8)
    assert stage.model.network.lm.dtype == torch.bfloat16
    assert len(stage.model.network.lm.lm_head.weight) == 32_274
    assert stage.model.tokens["[USER]"] == 32_272
    asked = [helpers.asked("a house", helpers.picture(1))]
    words = stage(asked)[0].value.text
    assert words.strip()
    again = Emu2Draft(weights="dummy", device="cpu", dtype="bfloat16", max_new_tokens=8)
    assert again(asked)[0].value.text == words
