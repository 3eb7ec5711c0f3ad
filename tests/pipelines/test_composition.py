"""From an LVLM's reply to text and image requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trial import rebuild, sample

from plait import listing
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.tasks.published import as_asked
from plait.cluster.walks import drive
from plait.generators.base import Job, Outcome, Result, Skip
from plait.generators.checkpoints import pinning
from plait.generators.document import (
    AnswerForm,
    Document,
    Draft,
    Image,
    ImageRequest,
    Text,
    Turn,
)
from plait.generators.errors import UsageError
from plait.generators.settings import SMALL_BATCH
from plait.generators.system import Repetition, System
from plait.pipelines.composition import EDITING, protocol
from plait.pipelines.systems import Models, resolve, t2i_spec

pytestmark = pytest.mark.contract

TINY = Models(weights="tiny")


def outlined(text: str, most: int) -> Draft:
    return protocol("outline", most).compose(Draft((Text(text),)), sample(0))


def read(text: str, most: int = 4) -> list[str]:
    """Segments in short: text as it is, images in brackets."""
    segments = outlined(text, most).segments
    return [s.text if isinstance(s, Text) else f"[{s.prompt}]" for s in segments]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (
            "Once.\n<image>a red barn</image>\nThe end.",
            ["Once.", "[a red barn]", "The end."],
        ),
        ("<image>a</image><image>b</image>", ["[a]", "[b]"]),
        ("no marks at all", ["no marks at all"]),
        ("upper <IMAGE>a cat</IMAGE> case", ["upper ", "[a cat]", " case"]),
        ("over\n<image>two\n lines</image>\nend", ["over", "[two lines]", "end"]),
        # Broken marks: the text always stays, the description ends with its line.
        ("a\n<image>a dog runs\nand then b", ["a", "[a dog runs]", "and then b"]),
        ("a <image>x <image>y</image> b", ["a ", "[x]", "[y]", " b"]),
        ("stray </image> closing", ["stray  closing"]),
        ("empty <image> </image> mark", ["empty ", " mark"]),
        ("ends open <image>a hill", ["ends open ", "[a hill]"]),
        ("ends with <image>", ["ends with "]),
        ("a <</image>/image> b", ["a  b"]),
        ("", [""]),
    ],
)
def test_outline(reply: str, expected: list[str]) -> None:
    assert read(reply) == expected


def test_marks_beyond_the_limit_are_dropped_and_their_text_is_not_drawn() -> None:
    reply = "".join(f"t{i}\n<image>p{i}</image>\n" for i in range(6))
    assert read(reply, most=2) == ["t0", "[p0]", "t1", "[p1]", "t2", "t3", "t4", "t5"]


pieces = st.sampled_from(
    ["<image>", "</image>", "a", "\n", " ", "word", "<", "image>", "/"]
)


@given(st.lists(pieces, max_size=30).map("".join), st.integers(1, 3))
def test_no_reply_breaks_the_outline(reply: str, most: int) -> None:
    draft = outlined(reply, most)
    assert draft.segments
    assert len(draft.requests) <= most
    assert all(r.prompt and r.prompt.strip() for r in draft.requests)
    texts = [s.text for s in draft.segments if isinstance(s, Text)]
    assert not any("</image>" in text.lower() for text in texts)


@pytest.mark.parametrize(
    ("name", "wants_images", "prompts"),
    [("mmie", True, ["Two hikers rest."]), ("mmie", False, []), ("text", True, [])],
)
def test_mmie_draws_one_image_from_the_whole_text_unless_none_is_wanted(
    name: str, wants_images: bool, prompts: list[str]
) -> None:
    rule, query = protocol(name), replace(sample(0), wants_images=wants_images)
    composed = rule.compose(Draft((Text(" Two hikers rest. "),)), query)
    assert composed.segments[0] == Text(" Two hikers rest. ")
    assert [request.prompt for request in composed.requests] == prompts
    # So that the ablation without images shares the text of the run with them.
    assert (rule.variant, rule.instruction) == ("text", None)


@pytest.mark.parametrize("name", ["flux2-klein", "qwen-image-edit", "instruct-pix2pix"])
def test_only_how_images_are_drawn_tells_an_edited_outline_from_another(name: str) -> None:
    plain, edited = (resolve(f"qwen2-vl-7b+{name}@{r}", TINY) for r in ("outline", EDITING))
    assert (plain.rendering.input_images, edited.rendering.input_images) == (0, 1)
    assert edited.opening == plain.opening
    assert edited.roles["render"].digest == plain.roles["render"].digest
    assert edited.name == f"qwen2-vl-7b+{name}@outline-edit"
    assert edited.lvlm == "qwen2-vl-7b@outline-edit"


def test_how_many_images_are_seen_is_the_models_setting_and_limited_by_its_class() -> None:
    def seen(name: str, count: object) -> int:
        models = Models(weights="tiny", overrides={name: {"input_images": count}})
        return resolve(f"qwen2-vl-7b+{name}@outline-edit", models).rendering.input_images

    own = resolve("qwen2-vl-7b+bench_helpers:Painter@outline-edit", TINY)
    assert own.rendering.input_images == 1, "of a user's class the last one"
    assert seen("qwen-image-edit", 3) == 3
    assert seen("flux2-klein", 5) == 5
    for name, count in (("qwen-image-edit", 4), ("instruct-pix2pix", 2)):
        with pytest.raises(UsageError, match=rf"'{name}'.*at most {count - 1} .*{count}"):
            seen(name, count)
    for count in (0, "all"):
        with pytest.raises(UsageError, match=r"input_images"):
            seen("flux2-klein", count)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sdxl", "StableDiffusionXLPipeline"),
        ("qwen-image", "QwenImagePipeline"),
        ("diffusers:black-forest-labs/FLUX.1-dev", "FluxPipeline"),
        ("flux2-klein", "engine"),
    ],
)
def test_models_that_see_no_images_are_refused_with_those_that_do(
    name: str, reason: str
) -> None:
    overrides = {"flux2-klein": {"engine": "sglang"}}
    models = Models(weights="tiny", overrides=overrides)
    valid = (
        r"qwen-image-edit, instruct-pix2pix, flux2-klein, glm-image, qwen-image-edit-2511, "
        r"flux2-dev, flux2-klein-9b and diffusers:.*Omni"
    )
    with pytest.raises(UsageError, match=rf"'{name}'.*{reason}.*{valid}"):
        resolve(f"qwen2-vl-7b+{name}@outline-edit", models)


def test_text_alone_asks_for_no_weights_that_it_never_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither `plan` and `run`, which pin what they resolve, nor `fetch`.

    Without the Hub, `fetch` would end with an error.
    """
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "config.json").write_text("{}")
    chat = f"hf:{tmp_path}"
    for name in (f"{chat}+sd3@text", f"{chat}@text"):
        with pinning({}) as pins:
            resolve(name, Models(weights="pretrained"))
        assert list(pins.known) == [f"{tmp_path}@main"]
        assert not pins.missing
    assert listing.fetch([f"{chat}+sd3@text"], PlainConsole()) == 0
    alone, named = (resolve(f"qwen2-vl-7b{t2i}@text", TINY) for t2i in ("", "+sd3"))
    assert alone.name == "qwen2-vl-7b@text"
    assert alone.stages == named.stages == resolve("qwen2-vl-7b+sd3", TINY).stages[:1]
    assert (alone.lvlm, alone.t2i) == ("qwen2-vl-7b", "no pictures")


@pytest.mark.parametrize("name", ["anole", "emu2", "qwen2-vl-7b+sd3"])
def test_tiny_models_take_larger_batches_than_published_ones_unless_told(name: str) -> None:
    """What bounds the batch of a published model is the memory of a GPU."""
    model = name.rpartition("+")[2]

    def batches(**overrides: dict[str, int]) -> set[int]:
        system = resolve(name, Models(weights="tiny", overrides=overrides))
        return {stage.placement.batch_size for stage in system.stages}

    assert batches() == {SMALL_BATCH}
    assert batches(**{model: {"batch_size": 3}}) in ({3}, {3, SMALL_BATCH})
    published = resolve(name, Models(weights="dummy"))
    assert min(s.placement.batch_size for s in published.stages) < SMALL_BATCH
    (server,) = resolve("openai:some@text", TINY).stages
    assert server.placement.batch_size == 1


def test_settings_of_a_name_go_to_those_of_its_stages_that_have_them() -> None:
    """GLM-Image has a stage before the drawing one; Cosmos3's name is of both halves."""
    overrides = {
        "glm-image": {"height": 32, "steps": 1, "condition": {"batch_size": 3}},
        "cosmos3-nano": {"device": "cpu", "steps": 1, "max_new_tokens": 5},
    }
    models = Models(weights="tiny", overrides=overrides)
    prior, drawing = resolve("glm-image@t2i", models).stages
    assert prior.settings["height"] == drawing.settings["height"] == 32
    assert (prior.placement.batch_size, drawing.placement.batch_size) == (3, SMALL_BATCH)
    system = resolve("cosmos3-nano+cosmos3-nano@outline", models)
    assert system.roles["draft"].settings["max_new_tokens"] == 5
    assert system.roles["render"].settings["steps"] == drawing.settings["steps"] == 1
    assert {s.options["device"] for s in system.stages} == {"cpu"}
    wrong = Models(weights="tiny", overrides={"glm-image": {"max_new_tokens": 5}})
    with pytest.raises(UsageError, match="max_new_tokens"):
        resolve("glm-image@t2i", wrong)


@pytest.mark.parametrize("engine", [None, "vllm-omni"])
def test_an_engine_runs_both_stages_of_a_model_as_one(engine: str | None) -> None:
    own = {"engine": engine, "engine_version": "0.30.0"} if engine else {}
    models = Models(weights="pretrained", overrides={"glm-image": {"render": own}})
    with pinning({}):
        system = resolve("qwen2-vl-7b+glm-image", models)
    assert ("condition" not in system.roles) == (engine is not None)
    assert system.rendering.keeps_prompt == (engine is None)


def test_a_t2i_model_alone_draws_the_text_of_the_query() -> None:
    """From the noise of the pairings' first image, whatever the wording of a task."""
    alone, pair = (resolve(n, TINY) for n in ("sd3@t2i", "qwen2-vl-7b+sd3"))
    assert alone.stages == pair.stages[1:]
    query, times = sample(0), Repetition(as_asked, seed=3, repeat=1)
    (job,) = next(alone.answer(query, times))
    assert isinstance(job.input, ImageRequest)
    assert job.input == ImageRequest("query 0", seed=times.seed_at(query, 0))
    again = next(alone.answer(query, replace(times, repeat=2)))
    assert again[0].input.seed != job.input.seed  # type: ignore[union-attr]
    drawn = drive(alone.answer(query, times), lambda jobs: [Result(Image.of(b"1"))])
    assert isinstance(drawn, Result)
    assert drawn.value == Document((Image.of(b"1"),))
    turn = Turn("user", (Text("Draw this."), Image.of(b"1")))
    for impossible in ({"wants_images": False}, {"turns": (turn,)}):
        walk = alone.answer(replace(query, **impossible), times)
        assert isinstance(drive(walk, lambda jobs: []), Skip)


EDITORS = ("flux2-klein", "qwen-image-edit", "instruct-pix2pix", "glm-image")


@pytest.mark.parametrize("name", [*EDITORS, "bench_helpers:Painter"])
def test_a_model_that_takes_images_edits_that_of_the_query(name: str) -> None:
    """From the noise of the first image of an outline, whatever the wording of a task."""
    alone = resolve(f"{name}@edit", TINY)
    pair = resolve(f"qwen2-vl-7b+{name}@outline-edit", TINY)
    assert alone.stages == pair.stages[1:]
    assert ("draft" in alone.roles, alone.t2i, alone.rendering.input_images) == (
        False,
        name,
        1,
    )
    before = Image.of(b"before")
    after = Image.of(b"after")
    first = Turn("user", (before, Text("Make it blue.")))
    second = Turn("user", (Text("Now green."),))
    query = replace(sample(0), turns=(first, second))
    asked: list[ImageRequest] = []

    def drawn(jobs: Sequence[Job]) -> list[Outcome[Image]]:
        if jobs[0].spec is alone.roles["render"]:
            asked.extend(job.input for job in jobs)
        return [Result(after) for _ in jobs]

    single = rebuild(alone, condition=None)
    times = Repetition(as_asked, seed=3)
    outcome = drive(single.answer(query, times), drawn)
    assert isinstance(outcome, Result)
    assert outcome.value.images == (after, after)
    shown = [(request.prompt, request.context) for request in asked]
    assert shown == [("Make it blue.", (before,)), ("Now green.", (after,))]
    assert asked[0].seed == times.seed_at(query, 0)
    assert alone.answer_form(query) == AnswerForm(text=False, images=2)


@pytest.mark.parametrize("rule", ["edit", "outline-edit"])
def test_a_server_edits_by_the_stage_that_draws_and_its_dialect_may_have_no_edits(
    rule: str,
) -> None:
    name = "images:gpt-image"
    prefix = "" if rule == "edit" else "qwen2-vl-7b+"
    plain = "t2i" if rule == "edit" else "outline"

    def of(own: dict[str, Any], rule: str = rule) -> System:
        models = Models(weights="tiny", overrides={name: own})
        return resolve(f"{prefix}{name}@{rule}", models)

    system = of({})
    assert system.rendering.input_images == 1
    assert of({"input_images": 3}).rendering.input_images == 3
    digests = {
        s.roles["render"].digest for s in (system, of({"input_images": 3}), of({}, plain))
    }
    assert len(digests) == 1, "records are told apart by their images alone"
    cut = {"dialect": "sglang", "max_sequence_length": 64}
    for own, reason in (
        ({"dialect": "plait"}, "'plait' have no /v1/images/edits"),
        (cut, "'sglang' takes no max_sequence_length"),
        ({"input_images": 17}, "input_images"),
    ):
        with pytest.raises(UsageError, match=reason) as error:
            of(own)
        assert name in str(error.value)
    assert of(cut, plain).roles["render"].settings["max_sequence_length"] == 64


def test_queries_without_an_image_or_with_too_many_are_not_edited() -> None:
    models = Models(weights="tiny", overrides={"flux2-klein": {"input_images": 2}})
    one, two = (resolve("flux2-klein@edit", m) for m in (TINY, models))
    before = Image.of(b"before")
    texts = Turn("user", (Text("Draw."),))
    pair = Turn("user", (before, before, Text("Join both.")))
    drawing = replace(sample(0), turns=(texts,))
    joining = replace(sample(0), turns=(pair,))
    reading = replace(joining, wants_images=False)
    for system, query, reason in (
        (one, drawing, "no image to edit"),
        (one, replace(drawing, turns=(texts, pair)), "no image to edit"),
        (one, joining, "2 images at once"),
        (two, reading, "asks for text"),
    ):
        outcome = drive(system.answer(query, Repetition(as_asked)), lambda jobs: [])
        assert isinstance(outcome, Skip)
        assert reason in outcome.reason
        assert system.answer_form(query) is None
    (job,) = next(two.answer(joining, Repetition(as_asked)))
    assert job.input.context == (before, before)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("qwen2-vl-7b+flux2-klein@edit", "'flux2-klein@edit'"),
        ("sdxl@edit", "StableDiffusionXLPipeline"),
        ("images:@edit", "images:MODEL"),
        ("janus-pro-1b@edit", "'janus-pro-1b' without a protocol"),
        ("gemini:m@edit", "neither a text-to-image"),
        ("sd3", "'sd3@t2i'"),
        ("diffusers:black-forest-labs/FLUX.1-dev", "'diffusers:.*@t2i'"),
        ("qwen2-vl-7b+sd3@t2i", "'sd3@t2i'"),
        ("qwen2-vl-7b@t2i", "unknown text-to-image model"),
        ("cosmos3-nano", r"'cosmos3-nano\+cosmos3-nano'"),
        ("qwen2-vl-7b", "as in"),
        ("qwen2-vl-7b@outline-edit", "as in"),
        ("qwen2-vl-7b@critic=llava-34b", "as in"),
        ("gt@critic", "unknown LVLM 'gt'"),
        *((f"{name}@outline", "neither a text-to-image") for name in ("gemini:m", "bagel")),
        ("gemini:m+sdxl-turbo", "neither a text-to-image model nor a protocol"),
        ("sensenova-u1+sdxl-turbo", "neither a text-to-image model nor a protocol"),
        ("responses:", "responses:MODEL"),
        ("chat_images:m", "chat"),
        ("qwen2-vl-7b+sd33@text", "'sd33'"),
        ("qwen2-vl-7b+sd3@poem", r"'poem'.*'mmie', 'outline'.*'outline-edit'.*'t2i'"),
        ("anole@outline", "'anole' places its images itself"),
        ("janus-pro-1b@critic", "takes an LVLM and a T2I model"),
        ("janus-pro-1b@critic=qwen2-vl-7b", "takes an LVLM and a T2I model"),
    ],
)
def test_a_wrong_name_is_explained_and_the_system_that_it_suggests_is_one(
    name: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as error:
        resolve(name, TINY)
    suggested = re.findall(r"as in '(\S+)'", str(error.value))
    assert [resolve(system, TINY).name for system in suggested] == suggested


def test_a_model_of_two_stages_is_no_stage_by_itself() -> None:
    with pytest.raises(UsageError, match="'glm-image@t2i'"):
        t2i_spec("glm-image", TINY)


def test_a_native_model_that_draws_from_prompts_takes_protocols() -> None:
    own = resolve("janus-pro-1b", TINY)
    found = {
        rule: resolve(f"janus-pro-1b@{rule}", Models(weights="tiny", max_images=3))
        for rule in ("outline", "text", "t2i")
    }
    chains = {rule: system.stages for rule, system in found.items()}
    draft, condition, render = own.stages
    assert chains == {
        "outline": (draft, condition, render),
        "text": (draft,),
        "t2i": (condition, render),
    }
    composed = found["outline"].compose(Draft((Text("A.\n<image>a cat\nB."),)), sample(0))
    assert [r.prompt for r in composed.requests] == ["a cat"]
    assert found["outline"].limits.images_of_reply == 3
    assert "condition" in resolve("emu2@outline", TINY).roles
