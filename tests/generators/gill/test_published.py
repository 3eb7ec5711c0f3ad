"""Published layouts: checkpoints that load and checkpoints that are refused."""

import json
import shutil
from dataclasses import replace

import gill_helpers as helpers
import pytest
import torch
from tokenizers import Tokenizer

from generators.errors import CheckpointError
from generators.gill import models
from generators.gill.draft import GillDraft
from generators.gill.networks import language_model, vision_tower
from generators.gill.published import Additions
from generators.gill.render import GillRender, empty_mapper
from generators.gill.settings import GillDraftSettings, GillRenderSettings
from generators.gill.sizes import FULL, TINY, toy_tokenizer
from generators.gill.tokens import GillTokens
from generators.vokens.mapper import unpack_states

pytestmark = pytest.mark.models

CPU = helpers.CPU


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return helpers.save(tmp_path_factory.mktemp("gill"))


def drafting(folders, **settings) -> GillDraft:
    named = {k: v for k, v in folders.items() if k != "diffusion"}
    small = {"device": "cpu", "dtype": "float32"}
    return GillDraft(weights="pretrained", **named | small | settings)


def rendering(folders, **settings) -> GillRender:
    named = {k: folders[k] for k in ("model", "diffusion")}
    small = {"height": 64, "width": 64, "steps": 2, "device": "cpu", "dtype": "float32"}
    return GillRender(weights="pretrained", **named | small | settings)


def test_published_layout_gives_back_the_weights(folders):
    stage, tiny = drafting(folders), helpers.tiny()
    ours, theirs = stage(helpers.QUESTIONS), tiny(helpers.QUESTIONS)
    for a, b in zip(ours, theirs, strict=True):
        helpers.assert_same(a, b)
    assert sum(o.usage["images"] for o in ours) >= 3
    for name, value in tiny.vision.tower.state_dict().items():
        assert torch.equal(stage.vision.tower.state_dict()[name], value)


def test_published_layout_draws_what_tiny_weights_draw(folders):
    requests = [r for o in helpers.tiny()(helpers.QUESTIONS) for r in o.value.requests]
    seeded = [replace(r, seed=i) for i, r in enumerate(requests[:3])]
    small = {"height": 64, "width": 64, "steps": 2, "device": "cpu"}
    ours = rendering(folders)(seeded)
    theirs = GillRender(weights="tiny", **small)(seeded)
    for a, b in zip(ours, theirs, strict=True):
        assert abs(a.value.pixels.astype(int) - b.value.pixels).max() <= 1


def test_prefix_of_parallel_training(folders, tmp_path):
    helpers.save_own(tmp_path / "gill", helpers.tiny(), prefix="module.")
    stage = drafting(folders | {"model": str(tmp_path / "gill")})
    assert torch.equal(stage.language.embeddings, helpers.tiny().language.embeddings)
    rendering(folders | {"model": str(tmp_path / "gill")})


def test_checkpoints_of_training_hold_all_embeddings(folders, tmp_path):
    def change(tensors) -> None:
        rows = helpers.tiny().language.embeddings
        tensors["model.input_embeddings.weight"] = rows.clone()

    helpers.save_own(tmp_path / "gill", helpers.tiny(), change)
    stage = drafting(folders | {"model": str(tmp_path / "gill")})
    assert torch.equal(stage.language.embeddings, helpers.tiny().language.embeddings)


def test_slow_tokenizers_and_the_other_prefix(folders, tmp_path):
    """The files of facebook/opt-6.7b; weights as `OPTForCausalLM` stores them."""

    def change(tensors) -> None:
        for name in list(tensors):
            tensors[f"model.{name}"] = tensors.pop(name)
        tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"].clone()

    helpers.save_opt(tmp_path / "opt", helpers.tiny(), change, slow=True)
    stage = drafting(folders | {"language": str(tmp_path / "opt")})
    ours, theirs = stage(helpers.QUESTIONS), helpers.tiny()(helpers.QUESTIONS)
    for a, b in zip(ours, theirs, strict=True):
        helpers.assert_same(a, b)


def test_dimensions_come_from_the_files(tmp_path, monkeypatch):
    """Other widths, layers, image tokens and visual tokens than any we hold."""
    other = replace(
        TINY,
        language=TINY.language | {"hidden_size": 48, "word_embed_proj_dim": 48},
        vision=TINY.vision | {"image_size": 42, "num_hidden_layers": 1},
        mapper=replace(TINY.mapper, states=48, width=16, layers=1, inner=24, queries=70),
        visual_tokens=3,
        vokens=5,
    )
    monkeypatch.setattr(models, "TINY", other)
    monkeypatch.setattr(helpers, "TINY", other)
    monkeypatch.setattr("generators.gill.render.TINY", other)
    stage = GillDraft(weights="tiny", device="cpu")
    monkeypatch.setattr(helpers, "tiny", lambda: stage)
    folders = helpers.save(tmp_path)
    ours, theirs = drafting(folders)(helpers.QUESTIONS), stage(helpers.QUESTIONS)
    for a, b in zip(ours, theirs, strict=True):
        helpers.assert_same(a, b)
    shapes = {unpack_states(r.payload).shape for o in ours for r in o.value.requests}
    assert shapes == {(5, 48)}
    drawn = rendering(folders)._mapped(torch.zeros(2, 5, 48))
    assert drawn.shape == (2, 70, 32)


def altered(folders, tmp_path, part: str, change) -> dict[str, str]:
    """The folders with one checkpoint replaced by a copy with changed tensors."""
    where = tmp_path / part
    write = {"model": helpers.save_own, "language": helpers.save_opt}
    if part == "vision":
        helpers.save_clip(where, helpers.tiny().vision, change)
    else:
        write[part](where, helpers.tiny(), change)
    return folders | {part: str(where)}


@pytest.mark.parametrize(("declared", "rows"), [(421, 30), (900, 800), (410, 410)])
def test_embeddings_must_be_those_of_the_config_and_of_all_words(
    folders, tmp_path, declared, rows
):
    """Tables of another length than the config's, and too short for the vocabulary."""

    def change(tensors) -> None:
        tensors["decoder.embed_tokens.weight"] = torch.zeros(rows, 64)

    broken = altered(folders, tmp_path, "language", change)
    path = tmp_path / "language" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"vocab_size": declared}))
    with pytest.raises(CheckpointError, match=rf"embed_tokens\.weight \({rows}, 64\)"):
        drafting(broken)


def test_missing_vocabulary_is_named(folders, tmp_path):
    copied = tmp_path / "opt"
    shutil.copytree(folders["language"], copied)
    (copied / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no file 'vocab\.json'"):
        drafting(folders | {"language": str(copied)})


def test_missing_companions_are_named_before_anything_runs(folders, tmp_path):
    absent = str(tmp_path / "absent")
    for part in ("language", "vision"):
        named = folders | {part: absent}
        del named["diffusion"]
        with pytest.raises(CheckpointError, match="no such file or folder"):
            GillDraftSettings(**named).spec("gill-draft", "pretrained")
    settings = GillRenderSettings(model=folders["model"], diffusion=absent)
    with pytest.raises(CheckpointError, match="no such file or folder"):
        settings.spec("gill-render", "pretrained")


def parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_full_size_has_the_published_parameters():
    """6.658 billion of OPT-6.7B, and GILL's own 50,096,385 (95.6 MiB in bfloat16)."""
    from transformers import CLIPVisionConfig, OPTConfig

    tokens = GillTokens(toy_tokenizer(FULL.vocabulary), FULL.vokens)
    assert (tokens.cls, tokens.vokens) == (50_265, tuple(range(50_266, 50_274)))
    opt = language_model(OPTConfig(**FULL.language, vocab_size=50_272))
    assert parameters(opt) == pytest.approx(6.658e9, rel=1e-4)
    tower = vision_tower(CLIPVisionConfig(**FULL.vision))
    assert parameters(tower) == pytest.approx(303.18e6, rel=1e-4)
    with torch.device("meta"):
        added = Additions(8, 4096, 1024, 4 * 4096)
    retrieval = 1 + (1024 + 1) * 256 + (4096 + 1) * 256
    own = parameters(added) + parameters(empty_mapper(FULL.mapper)) + retrieval
    assert own == 50_096_385


def test_dummy_weights_interleave(monkeypatch):
    """The code path of full size, at a size a CPU can hold."""
    small = replace(TINY, vocabulary=900)
    monkeypatch.setattr(models, "FULL", small)
    stage = GillDraft(weights="dummy", device="cpu", dtype="bfloat16")
    assert stage.language.embeddings.dtype == torch.bfloat16
    outcomes = stage(helpers.QUESTIONS)
    assert sum(o.usage["images"] for o in outcomes) >= 3
    again = GillDraft(weights="dummy", device="cpu", dtype="bfloat16")
    assert [o.value for o in again(helpers.QUESTIONS)] == [o.value for o in outcomes]


def test_tokenizer_json_and_slow_files_agree(tmp_path):
    from generators.gill.tokens import opt_tokenizer
    from generators.loading.files import Files

    helpers.save_opt(tmp_path / "slow", helpers.tiny(), slow=True)
    helpers.save_opt(tmp_path / "fast", helpers.tiny())
    slow = opt_tokenizer(Files(str(tmp_path / "slow")))
    fast = opt_tokenizer(Files(str(tmp_path / "fast")))
    assert isinstance(slow, Tokenizer)
    for text in ("The house, a  river\n\nand 7 boats.", "</s>a<pad>", "\u00e9\u4e00"):
        assert slow.encode(text).ids == fast.encode(text).ids
