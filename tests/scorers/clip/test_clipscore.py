"""The scorer and its settings: who is judged, what names a result, what stays light."""

from __future__ import annotations

import subprocess
import sys

import pytest
from clipscore_helpers import candidate, picture

from generators.base import Job, NotApplicable, Outcome, Result, Unscored, Walk
from generators.checkpoints import pinning
from generators.document import Document, Sample, Score, Text
from generators.errors import CheckpointError, UsageError
from scorers import resolve_scorer
from scorers.clipscore import PUBLISHED, ClipScorer, ClipSettings, clipscore

TINY = clipscore("tiny", {})


def sample(wants_images: bool = True) -> Sample:
    return Sample(
        id="s", category="x", field="y", turns=(), wants_images=wants_images,
        reference=Document((Text("gt"),)), criteria="be kind",
    )  # fmt: skip


def steps(walk: Walk[Score], answer: Outcome[Score]) -> tuple[list[Job], Outcome[Score]]:
    """The jobs a walk asks for, and what it ends in."""
    jobs: list[Job] = []
    try:
        jobs += next(walk)
        walk.send([answer for _ in jobs])
    except StopIteration as stop:
        return jobs, stop.value
    raise AssertionError("the walk asks twice")


def test_multi_step_reasoning_is_not_applicable_even_with_pictures():
    document = Document((Text("so 4"), picture(0)))
    jobs, outcome = steps(TINY.judge(sample(wants_images=False), document), None)
    assert jobs == []
    assert isinstance(outcome, NotApplicable)
    assert outcome.reason == "the query asks for no pictures"


@pytest.mark.parametrize("document", [Document(), Document((Text("words"),))])
def test_document_without_pictures_is_unscored_without_a_job(document):
    jobs, outcome = steps(TINY.judge(sample(), document), None)
    assert jobs == []
    assert outcome == Unscored("the document holds no picture")


def test_one_job_reads_the_document_alone_and_its_outcome_is_the_score():
    document = Document((Text("a"), picture(0), Text("b"), picture(1)))
    answer = Result(Score(0.5))
    jobs, outcome = steps(TINY.judge(sample(), document), answer)
    assert outcome is answer
    assert [(j.spec, j.input, j.label) for j in jobs] == [
        (TINY.stage, candidate("a", picture(0), "b", picture(1)), "s")
    ]
    assert TINY.stages == (TINY.stage,)


def test_resolved_by_name_with_overrides():
    scorer = resolve_scorer("clipscore", "tiny", {"prefix": "", "batch_size": 3})
    assert isinstance(scorer, ClipScorer)
    assert (scorer.name, scorer.scale) == ("clipscore", "0-2.5")
    assert scorer.stage.settings["prefix"] == ""
    assert scorer.stage.placement.batch_size == 3
    with pytest.raises(UsageError, match=r"'prefx'.*did you mean 'prefix'"):
        resolve_scorer("clipscore", "tiny", {"prefx": ""})


@pytest.mark.parametrize(
    "change",
    [
        {"prefix": ""},
        {"long_text": "mean"},
        {"dtype": "float16"},
        {"architecture": "ViT-L-14"},
        {"model": "ViT-L-14:openai"},
    ],
)
def test_settings_that_change_results_change_the_key(change):
    assert clipscore("dummy", change).stage.digest != clipscore("dummy", {}).stage.digest


@pytest.mark.parametrize(
    "change",
    [
        {"forward_size": 2},
        {"decoders": 1},
        {"remembered": 0},
        {"device": "cpu"},
        {"batch_size": 1},
    ],
)
def test_settings_that_change_no_result_change_no_key(change):
    assert clipscore("tiny", change).stage.digest == clipscore("tiny", {}).stage.digest


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_published_names_and_hub_ids_are_pinned_to_a_commit():
    named = ClipSettings(revision=COMMIT)
    assert named.identity("pretrained") == (
        f"hub:timm/vit_base_patch32_clip_224.openai@{COMMIT}"
    )
    assert named.spec("clipscore", "pretrained").options["revision"] == COMMIT
    by_id = ClipSettings(model="openai/clip-vit-base-patch32", revision=COMMIT)
    assert by_id.identity("pretrained") == f"hub:openai/clip-vit-base-patch32@{COMMIT}"


def test_weights_file_is_named_by_its_content_and_needs_an_architecture(tmp_path):
    path = tmp_path / "clip.pt"
    path.write_bytes(b"one")
    with pytest.raises(ValueError, match="set `architecture`"):
        ClipSettings(model=str(path))
    settings = ClipSettings(model=str(path), architecture="ViT-B-32")
    first = settings.identity("pretrained")
    path.write_bytes(b"two")
    assert settings.identity("pretrained") != first


def test_unknown_weights_are_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match=r"did you mean 'ViT-B-32:openai'"):
        clipscore("pretrained", {"model": "ViT-B-32:opnai"})


def test_dummy_weights_of_an_unknown_architecture_are_refused():
    settings = ClipSettings(model="org/name")
    with pytest.raises(CheckpointError, match="need `architecture`"):
        settings.identity("dummy")


def test_memory_follows_the_published_size():
    large = ClipSettings(model="ViT-L-14:openai")
    gib = large.memory_estimate_gib("pretrained")
    assert gib == pytest.approx(0.428e9 * 4 * 1.2 / 2**30)
    assert ClipSettings(params_b=1).memory_estimate_gib("pretrained") > 2 * gib
    assert large.memory_estimate_gib("tiny") == 0


@pytest.mark.models
def test_published_table_agrees_with_open_clip():
    import open_clip

    for name, published in PUBLISHED.items():
        architecture, tag = name.split(":")
        theirs = open_clip.get_pretrained_cfg(architecture, tag)
        assert theirs["hf_hub"] == published.repo + "/"
        quick = "-quickgelu" if theirs.get("quick_gelu") else ""
        assert published.architecture == architecture + quick
        config = open_clip.get_model_config(published.architecture)
        assert config.get("quick_gelu", False) == bool(quick)


def test_planning_imports_no_model_code():
    code = (
        "import sys\n"
        "from scorers.clipscore import clipscore, pairs_of\n"
        "clipscore('tiny', {})\n"
        "models = {'torch', 'numpy', 'open_clip', 'transformers', 'PIL'}\n"
        "assert not models & set(sys.modules), models & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_only_the_repository_behind_a_name_is_pinned() -> None:
    repo = "timm/vit_base_patch32_clip_224.openai"
    with pinning({f"{repo}@main": f"hub:{repo}@{COMMIT}"}) as pins:
        options = ClipSettings().options("pretrained")
    assert set(pins.known) == {f"{repo}@main"}
    assert pins.missing == []
    assert options["revision"] == COMMIT
