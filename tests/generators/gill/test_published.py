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


def test_every_difference_is_named_in_one_error(folders, tmp_path):
    def change(tensors) -> None:
        del tensors["decoder.layers.0.fc1.weight"]
        tensors["decoder.layers.7.fc1.weight"] = torch.zeros(2)
        tensors["decoder.final_layer_norm.bias"] = torch.zeros(63)

    with pytest.raises(CheckpointError) as raised:
        drafting(altered(folders, tmp_path, "language", change))
    message = str(raised.value)
    assert "1 missing: decoder.layers.0.fc1.weight" in message
    assert "1 unexpected: decoder.layers.7.fc1.weight" in message
    assert "decoder.final_layer_norm.bias (63,), not (64,)" in message


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


def test_own_keys_are_strict_in_both_stages(folders, tmp_path):
    def change(tensors) -> None:
        tensors["model.stray"] = torch.zeros(1)

    broken = altered(folders, tmp_path, "model", change)
    with pytest.raises(CheckpointError, match=r"1 unexpected: model\.stray"):
        drafting(broken)
    with pytest.raises(CheckpointError, match=r"1 unexpected: model\.stray"):
        rendering(broken)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("visual_embeddings.bias", (3,), r"visual_embeddings\.bias \(3,\), not \(256,\)"),
        ("visual_embeddings.weight", (256, 31), r"require \(256, 32\)"),
        (
            "input_embeddings.weight",
            (8, 63),
            r"model\.input_embeddings\.weight has the shape \(8, 63\).* have 64 values",
        ),
        ("input_embeddings.weight", (64,), r"not one of 2 dimensions"),
    ],
)
def test_misshapen_parts_of_the_draft(folders, tmp_path, name, shape, message):
    def change(tensors) -> None:
        tensors[f"model.{name}"] = torch.zeros(shape)

    with pytest.raises(CheckpointError, match=message):
        drafting(altered(folders, tmp_path, "model", change))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("query_embs", "lacks"),
        ("tfm.decoder.layers.1.norm3.bias", r"1 missing: .*norm3\.bias"),
        ("tfm.encoder.layers.0.linear1.weight", "lacks"),
    ],
)
def test_missing_parts_of_the_mapper(folders, tmp_path, name, message):
    def change(tensors) -> None:
        del tensors[f"model.gen_text_hidden_fcs.0.{name}"]

    with pytest.raises(CheckpointError, match=message):
        rendering(altered(folders, tmp_path, "model", change))


def test_vision_tower_is_strict_and_the_text_tower_is_not_read(folders, tmp_path):
    def change(tensors) -> None:
        tensors["text_model.whatever"] = torch.zeros(1)
        del tensors["vision_model.post_layernorm.weight"]

    with pytest.raises(CheckpointError, match=r"vision tower of .*post_layernorm\.weight"):
        drafting(altered(folders, tmp_path, "vision", change))


@pytest.mark.parametrize(
    ("part", "file"),
    [
        ("model", "pretrained_ckpt.pth.tar"),
        ("language", "model-00001-of-00002.safetensors"),
        ("vision", "model.safetensors"),
    ],
)
def test_truncated_files(folders, tmp_path, part, file):
    copied = tmp_path / part
    shutil.copytree(folders[part], copied)
    (copied / file).write_bytes((copied / file).read_bytes()[:-300])
    with pytest.raises(CheckpointError, match=rf"{file} is broken"):
        drafting(folders | {part: str(copied)})


@pytest.mark.parametrize(
    ("part", "file"),
    [
        ("model", "model_args.json"),
        ("model", "pretrained_ckpt.pth.tar"),
        ("language", "config.json"),
        ("vision", "preprocessor_config.json"),
    ],
)
def test_missing_files_are_named(folders, tmp_path, part, file):
    copied = tmp_path / part
    shutil.copytree(folders[part], copied)
    (copied / file).unlink()
    with pytest.raises(CheckpointError, match=f"has no file '{file}'"):
        drafting(folders | {part: str(copied)})


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


def test_ids_of_the_image_tokens_must_be_those_trained_with(folders, tmp_path):
    copied = tmp_path / "gill"
    shutil.copytree(folders["model"], copied)
    about = json.loads((copied / "model_args.json").read_text())
    about["gen_token_idx"] = [i + 1 for i in about["gen_token_idx"]]
    (copied / "model_args.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match="was trained with image tokens"):
        drafting(folders | {"model": str(copied)})


def test_pickled_code_is_refused(folders, tmp_path, capsys):
    copied = tmp_path / "gill"
    shutil.copytree(folders["model"], copied)
    pickled = {"state_dict": {"model.logit_scale": _PrintsWhenLoaded()}}
    torch.save(pickled, copied / "pretrained_ckpt.pth.tar")
    with pytest.raises(CheckpointError, match="holds more than tensors"):
        rendering(folders | {"model": str(copied)})
    assert "executed" not in capsys.readouterr().out


class _PrintsWhenLoaded:
    def __reduce__(self):
        return (print, ("executed",))


def test_a_diffusion_model_of_another_width_is_refused(folders, tmp_path):
    def change(tensors) -> None:
        name = "model.gen_text_hidden_fcs.0.model"
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = (
            torch.zeros(24, 32),
            torch.zeros(24),
        )

    with pytest.raises(CheckpointError, match=r"gives vectors of 24.*reads vectors of 32"):
        rendering(altered(folders, tmp_path, "model", change))


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


def test_a_worker_makes_the_stages_of_a_spec(folders):
    named = {k: v for k, v in folders.items() if k != "diffusion"}
    spec = GillDraftSettings(**named, device="cpu").spec("gill-draft", "pretrained")
    assert spec.identity.count("folder:") == 3
    assert GillDraft(**spec.settings, **spec.options).language.context == 2048
    settings = GillRenderSettings(
        model=folders["model"],
        diffusion=folders["diffusion"],
        device="cpu",
        dtype="float32",
    )
    spec = settings.spec("gill-render", "pretrained")
    assert spec.identity.count("folder:") == 2
    GillRender(**spec.settings, **spec.options)


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


def test_hub_ids_are_read_from_the_cache_without_a_network(tmp_path, monkeypatch):
    from huggingface_hub import constants

    commit = "0123456789" * 4
    snapshots = {}
    for name in ("gill", "opt", "clip"):
        repository = tmp_path / f"models--someone--{name}"
        snapshots[name] = repository / "snapshots" / commit
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(commit)
    helpers.save_own(snapshots["gill"], helpers.tiny())
    helpers.save_opt(snapshots["opt"], helpers.tiny(), slow=True)
    helpers.save_clip(snapshots["clip"], helpers.tiny().vision)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    named = {"model": "someone/gill", "vision": "someone/clip"}
    settings = GillDraftSettings(**named, language="someone/opt", device="cpu")
    spec = settings.spec("gill-draft", "pretrained")
    assert spec.options["language"] == f"someone/opt@{commit}"
    stage = GillDraft(**spec.settings, **spec.options)
    assert stage.language.tokens.vokens == helpers.tiny().language.tokens.vokens
    with pytest.raises(CheckpointError, match=r"Hub repository 'someone/other'"):
        drafting(named | {"language": "someone/other"})
