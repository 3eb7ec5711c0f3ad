"""InterleaveThinker: what is asked in which order, as its program does and as it should."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from paths import HELPERS
from thinker_helpers import (
    ATTEMPTS,
    QUESTION,
    RECORDED,
    WORDING,
    Call,
    Scripted,
    name_of,
    png,
    stories,
)
from trial import (
    LIGHT,
    as_asked,
    outcomes,
    painter,
    rebuild,
    run,
    sample,
    system_of_stages,
    talk,
)

from plait.benchmarks.runs.config import load_config
from plait.cluster.plan import Plan
from plait.cluster.walks import drive
from plait.generators.base import Failure, Fault, Job, Kind, Outcome, Result, StageSpec
from plait.generators.document import (
    Document,
    Draft,
    Image,
    ImageRequest,
    Query,
    Text,
    Turn,
)
from plait.generators.errors import UsageError
from plait.generators.images import decode
from plait.generators.keys import derived_seed
from plait.generators.system import TRIES, Repetition, System
from plait.pipelines import thinker
from plait.pipelines.chat.endings import CUT
from plait.pipelines.systems import Models, planned_stages, resolve
from plait.pipelines.thinker import (
    OWN_WORDING,
    WHITE,
    Step,
    StepReview,
    ThinkerPlanner,
    ThinkerSettings,
    ThinkerWording,
    UnreadablePlanError,
    plan_in,
)

REPETITION = Repetition(as_asked, seed=5)
ASKED = ThinkerWording(**WORDING)


def asking(name: str) -> StageSpec:
    return StageSpec(name=name, kind=Kind.DRAFT, target=f"stages:{name}", seeded=True)


def system(official: bool = False, tries: int = 3, **changes: Any) -> System:
    loads = json.loads if official else None
    mode: dict[str, Any] = {"loads": loads, "official": official}
    made = system_of_stages(
        name="s",
        draft=asking("planner"),
        render=painter(),
        critic=asking("critic"),
        planner=ThinkerPlanner(ASKED, ATTEMPTS, 8, **mode),
        review=StepReview(ASKED.critic, tries, ATTEMPTS, **mode),
        variant="plain",
        input_images=1,
        in_turn=True,
        max_images=8,
    )
    return rebuild(made, **changes)


@dataclass
class Stages:
    """Answers jobs from a script, and keeps them."""

    script: Scripted
    jobs: list[Job] = field(default_factory=list)
    instead: dict[int, Outcome[Any]] = field(default_factory=dict)
    """What comes of the job of that number."""

    def __call__(self, jobs: Sequence[Job]) -> list[Outcome[Any]]:
        return [self._outcome(job) for job in jobs]

    def _outcome(self, job: Job) -> Outcome[Any]:
        self.jobs.append(job)
        if len(self.jobs) - 1 in self.instead:
            return self.instead[len(self.jobs) - 1]
        if isinstance(job.input, ImageRequest):
            seen = [decode(part) for part in job.input.context if isinstance(part, Image)]
            before = seen[0] if seen else None
            seed = job.input.seed
            assert seed is not None
            return Result(Image.of(png(self.script.draws(job.input.prompt, seed, before))))
        (turn,) = job.input.turns  # type: ignore[union-attr]
        parts = [s.text if isinstance(s, Text) else "[]" for s in turn.content]
        images = [decode(s) for s in turn.content if isinstance(s, Image)]
        reply = self.script.says(job.spec.name, "".join(parts), images)
        return Result(Draft((Text(reply),)))


def asked(*content: Text | Image, wants_images: bool = True) -> Query:
    turns = (Turn("user", content or (Text(QUESTION),)),)
    about = {"id": "q", "category": "art", "field": "open"}
    return Query(turns=turns, wants_images=wants_images, **about)


def told(document: Document) -> list[str]:
    segments = document.segments
    return [s.text if isinstance(s, Text) else name_of(decode(s)) for s in segments]


# ------------------------------------------------------------------- as the program does


def test_in_official_mode_every_call_is_that_of_the_program() -> None:
    """Where the plan alone shows that the program fails, nothing is drawn."""
    recorded = json.loads(RECORDED.read_text())
    ended = 0
    for story, upstream in zip(stories(), recorded, strict=True):
        stages = Stages(Scripted(story))
        outcome: Any = drive(system(official=True).answer(asked(), REPETITION), stages)
        calls = [as_upstream(call) for call in stages.script.calls]
        if "error" in upstream:
            ended += 1
            assert isinstance(outcome, Failure)
            assert calls == upstream["calls"][: len(calls)]
            planned = any(call[0] == "draw" for call in calls)
            assert not planned or calls == upstream["calls"]
            continue
        assert calls == upstream["calls"]
        text, *images = told(outcome.value)
        assert (text, images) == (upstream["text"], upstream["images"])
    assert 20 < ended < 60


def as_upstream(call: Call) -> Call:
    """A call without the marks that stand for images, which come first in both."""
    if call[0] != "critic":
        return call
    assert call[1].startswith("[][]LOOK")
    return [call[0], call[1][4:], call[2]]


def test_official_mode_asks_for_the_text_alone_and_keeps_its_seeds() -> None:
    plan = json.dumps({"execution_plan": [step("draw it", "Done.")]})
    story = {"planner": [plan], "critic": [verdict(True)]}
    stages = Stages(Scripted(story))
    shown = asked(Text("Go "), Image.of(png(decode(WHITE))), Text("on"))
    drive(system(official=True).answer(shown, replace(REPETITION, repeat=3)), stages)
    planner, draw, look = stages.script.calls
    assert planner == ["planner", "PLAN <Go on> PLANNED", []]
    assert draw == ["draw", "draw it", 100, None]
    assert look[2][0] == "white"


# ------------------------------------------------------------------- as it should


def step(prompt: str | None, text: str | None = None) -> dict[str, Any]:
    return {"prompt": prompt, "auxiliary_text": text, "instruction": "Do it."}


def verdict(passed: bool, refined: str = "") -> str:
    words = {"previous_step_success": passed, "refine_prompt": refined}
    return f"<think>So.</think><answer>{json.dumps(words)}</answer>"


def seed_of(image: int, tried: int) -> int:
    first = REPETITION.seed_at(asked(), image)
    return derived_seed(first, "", 0, tried) if tried else first


def test_in_corrected_mode_each_step_edits_the_last_and_null_prompts_are_text() -> None:
    steps = [step("a", "One."), step(None, "Two."), step("c", "None"), step("d")]
    story = {
        "planner": ["Well.", "{'execution_plan': " + str(steps) + "}"],
        "critic": [
            *(verdict(False, "a2"), verdict(True)),
            *("?", "?", verdict(False, ""), verdict(False, "c3")),
            # No reply can be read: the image stays, whatever was said of others.
            *("?", "?", "?"),
        ],
    }
    stages = Stages(Scripted(story))
    outcome: Any = drive(system().answer(asked(), REPETITION), stages)
    calls = stages.script.calls
    drawn = [call for call in calls if call[0] == "draw"]
    names = {}
    for prompt, image, tried, before in [
        ("a", 0, 0, None),
        ("a2", 0, 1, None),
        ("c", 1, 0, "a2"),
        ("c", 1, 1, "a2"),
        ("c3", 1, 2, "a2"),
        ("d", 2, 0, "c3"),
    ]:
        call = drawn.pop(0)
        assert call == ["draw", prompt, seed_of(image, tried), names.get(before)]
        names[prompt] = told_of(call)
    assert not drawn
    plan = "PLAN <How is a kite made? Answer.> PLANNED"
    assert [call[1] for call in calls if call[0] == "planner"] == [plan, plan]
    looks = [call[1][4:] for call in calls if call[0] == "critic"]
    assert looks == [
        *("LOOK <a> <a>", "LOOK <a> <a2>"),
        *("LOOK <c> <c>",) * 3,
        "LOOK <c> <c>",
        *("LOOK <d> <d>",) * 3,
    ]
    seeds = [job.input.seed for job in stages.jobs if job.spec.kind is Kind.DRAFT]  # type: ignore[union-attr]
    assert len({*seeds}) == len(seeds), "no reply is asked for with the same seed again"
    expected = ["One.", names["a2"], "Two.", "Do it.", names["c3"], "Do it.", names["d"]]
    assert told(outcome.value) == expected
    tries = outcome.notes[TRIES]
    assert [(t["image"], t["try"], t["verdict"], t["kept"]) for t in tries] == [
        *((1, 1, 0.0, False), (1, 2, 1.0, True)),
        *((2, 1, 0.0, False), (2, 2, 0.0, False), (2, 3, None, True)),
        (3, 1, None, True),
    ]
    assert "no score" in tries[-1]["reason"]


def told_of(call: Call) -> str:
    """The colour of the image that a call draws, by its definition."""
    _, prompt, seed, seen = call
    shade = hashlib.sha256(f"{prompt}|{seed}|{seen}".encode()).digest()[:3]
    return shade.hex()


def test_images_of_a_question_are_shown_and_edited() -> None:
    plan = json.dumps({"execution_plan": [step("a", "One."), step(None, "Two.")]})
    script = Scripted({"planner": [plan], "critic": [verdict(True)]})
    grey = script.draws("grey", 1, None)
    script.calls.clear()
    question = asked(Text("From "), Image.of(png(grey)), Text(", what comes?"))
    drive(system().answer(question, REPETITION), stages := Stages(script))
    planner, draw, look = stages.script.calls
    assert planner == ["planner", "GO ON <From [], what comes?>", [name_of(grey)]]
    assert draw[3] == look[2][0] == name_of(grey)


def test_a_model_that_draws_from_text_alone_is_judged_beside_the_last_image() -> None:
    plan = json.dumps({"execution_plan": [step("a"), step("b")]})
    stages = Stages(Scripted({"planner": [plan], "critic": [verdict(True)]}))
    drive(system(input_images=0).answer(asked(), REPETITION), stages)
    draws = [call for call in stages.script.calls if call[0] == "draw"]
    looks = [call for call in stages.script.calls if call[0] == "critic"]
    assert [draw[3] for draw in draws] == [None, None]
    assert looks[1][2][0] == looks[0][2][1]


def test_a_query_that_wants_no_images_has_none() -> None:
    plan = json.dumps({"execution_plan": [step("a", "One."), step("b", "Two.")]})
    stages = Stages(Scripted({"planner": [plan], "critic": ["?"]}))
    query = asked(wants_images=False)
    outcome: Any = drive(system().answer(query, REPETITION), stages)
    assert told(outcome.value) == ["One.", "Two."]


def test_a_talk_is_planned_turn_by_turn_after_its_own_answers() -> None:
    plan = json.dumps({"execution_plan": [step("a", "One.")]})
    stages = Stages(Scripted({"planner": [plan], "critic": [verdict(True)]}))
    outcome: Any = drive(system().answer(talk(0), REPETITION), stages)
    planners = [call for call in stages.script.calls if call[0] == "planner"]
    first, second = planners
    assert first[2] == []
    assert second[1] == "GO ON <query 0\n\nOne.[]\n\nAnd then?>"
    draws = [call for call in stages.script.calls if call[0] == "draw"]
    assert draws[1][3] == second[2][0] == told(outcome.value)[1]
    assert [t["image"] for t in outcome.notes[TRIES]] == [1, 2]


RUN_TOGETHER = "None}, {'step_number': 2"
CUT_REPLY = Failure("cut in a thought", Fault.ERROR, {CUT: 1})
LOST = Failure("gone", Fault.DIED)


@pytest.mark.parametrize("official", [False, True])
def test_a_cut_thought_is_asked_for_again_and_a_lost_worker_fails(official: bool) -> None:
    plan = json.dumps({"execution_plan": [step("a", "One.")]})
    story = {"planner": [plan], "critic": [verdict(True)]}
    for place in (0, 2):
        stages = Stages(Scripted(story), instead={place: CUT_REPLY})
        outcome = drive(system(official).answer(asked(), REPETITION), stages)
        assert isinstance(outcome, Result)
        assert len(stages.jobs) == 4
        stages = Stages(Scripted(story), instead={place: LOST})
        assert drive(system(official).answer(asked(), REPETITION), stages) == LOST


def test_a_redraw_that_is_refused_leaves_the_last_image_or_fails_the_program() -> None:
    plan = json.dumps({"execution_plan": [step("a", "One.")]})
    bad = verdict(False, "b")
    refused = Failure("unsafe", Fault.UNSAFE)
    for official in (False, True):
        script = Scripted({"planner": [plan], "critic": [bad]})
        stages = Stages(script, instead={3: refused})
        outcome: Any = drive(system(official).answer(asked(), REPETITION), stages)
        if official:
            assert outcome == refused
        else:
            assert told(outcome.value)[1] == told_of(script.calls[1])


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("No.", "no list"),
        ('{"execution_plan": []}', "no list"),
        ('{"execution_plan": [{"prompt": "a"}, 5]}', "step 2 is 5"),
        ('{"execution_plan": [{"prompt": null, "instruction": "None"}]}', "neither"),
        ('{"execution_plan": [{"prompt": ["a"]}]}', "no text"),
        (json.dumps({"execution_plan": [step("a", RUN_TOGETHER)]}), "no text"),
        (json.dumps({"execution_plan": 9 * [step("a")]}), "9 steps; max_steps is 8"),
    ],
)
def test_a_plan_that_cannot_be_followed_fails_after_the_last_attempt(
    reply: str, why: str
) -> None:
    with pytest.raises(UnreadablePlanError, match=why):
        plan_in(reply, 8)
    stages = Stages(Scripted({"planner": [reply], "critic": ["?"]}))
    outcome = drive(system().answer(asked(), REPETITION), stages)
    assert isinstance(outcome, Failure)
    assert why in outcome.reason
    assert len(stages.jobs) == ATTEMPTS


def test_a_plan_is_read_in_the_forms_of_json_and_of_python() -> None:
    steps = [{"step_number": 1, "prompt": 'it\'s a "kite"', "auxiliary_text": None}]
    expected = [Step("Do.", 'it\'s a "kite"')]
    steps[0]["instruction"] = "Do."
    for text in (str({"execution_plan": steps}), json.dumps({"execution_plan": steps})):
        assert plan_in(f"<answer>\n{text}\n</answer>", 8) == expected


# ------------------------------------------------------------------- names and settings

NAME = "interleavethinker+flux2-klein"
TINY = Models(weights="tiny")


def models(weights: Any = "tiny", **settings: Any) -> Models:
    return Models(weights=weights, overrides={"interleavethinker": settings})


def test_the_system_is_its_two_models_and_what_draws() -> None:
    found = resolve(NAME, TINY)
    assert [stage.name for stage in found.stages] == [
        "thinker-planner",
        "flux2-klein",
        "thinker-critic",
    ]
    assert found.stages == planned_stages(NAME, TINY)
    assert (found.lvlm, found.t2i, found.rendering.input_images) == (
        "interleavethinker",
        "flux2-klein",
        1,
    )
    most = found.limits.jobs
    assert [most[role] for role in found.roles] == [5, 32 * 3, 32 * 2 * 5]
    edited = resolve("qwen2-vl-7b+flux2-klein@outline-edit", TINY)
    assert found.roles["render"] == edited.roles["render"], "its records are shared"
    alone = resolve("interleavethinker+sdxl-turbo", TINY)
    assert (alone.rendering.input_images, alone.rendering.in_turn) == (0, True)
    served = resolve("interleavethinker+images:m", TINY)
    assert (served.rendering.input_images, served.rendering.in_turn) == (0, True)
    seeing = replace(TINY, overrides={"images:m": {"input_images": 1}})
    assert resolve("interleavethinker+images:m", seeing).rendering.input_images == 1
    staged = resolve("interleavethinker+glm-image", models(planner="stages:Thinker"))
    assert [stage.name for stage in staged.stages][1:3] == ["glm-image prior", "glm-image"]
    assert decode(WHITE).size == (1024, 1024)
    assert decode(WHITE).getextrema() == ((255, 255),) * 3


def test_a_stage_without_a_seed_is_asked_once() -> None:
    named = {"interleavethinker": {"planner": "qwen2-vl-7b", "critic": "qwen2-vl-7b"}}
    found = resolve(NAME, Models(weights="tiny", overrides=named))
    most = found.limits.jobs
    assert [most[role] for role in found.roles] == [1, 32 * 3, 32 * 2]


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("interleavethinker", {}, r"interleavethinker\+flux2-klein"),
        ("interleavethinker+flux2-klein@outline", {}, "takes no protocol"),
        ("interleavethinker+flux9", {}, "unknown text-to-image model 'flux9'"),
        (NAME, {"critic": "qwen9"}, "unknown chat model 'qwen9'"),
        (NAME, {"attempts": 0}, "attempts"),
        (NAME, {"prompts": "mine.py"}, "official:PATH"),
        (NAME, {"mode": "official"}, "UEval/system.py"),
        (NAME, {"mode": "official", "prompts": "plait"}, "UEval/system.py"),
        (NAME, {"prompts": "official:nowhere"}, "No such file"),
    ],
)
def test_what_cannot_plan_is_said(name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve(name, models(**settings))


def test_published_weights_are_asked_by_the_texts_they_were_trained_on() -> None:
    with pytest.raises(UsageError, match="official:PATH"):
        resolve(NAME, models("pretrained", planner="openai:a", critic="openai:b"))
    found = resolve(
        "interleavethinker+images:c",
        models("pretrained", planner="openai:a", critic="openai:b", prompts="plait"),
    )
    assert found.rendering.input_images == 0


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose texts are taken for the released ones."""
    digests = {k: hashlib.sha256(t.encode()).hexdigest() for k, t in WORDING.items()}
    monkeypatch.setattr(thinker, "DIGESTS", digests)
    file = tmp_path / "checkout" / "UEval" / "system.py"
    file.parent.mkdir(parents=True)
    names = ("PLAN", "GUIDE", "LOOK")
    pairs = zip(names, WORDING.values(), strict=True)
    file.write_text("".join(f"{name} = {text!r}\n" for name, text in pairs))
    return tmp_path / "checkout"


def test_released_texts_are_read_from_a_checkout_and_kept_with_a_run(
    released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = f"official:{released}"
    found = resolve(NAME, models(prompts=prompts))
    assert isinstance(found.planner, ThinkerPlanner)
    assert found.planner.wording == ASKED
    values = {"systems": [NAME], "models": {"interleavethinker": {"prompts": prompts}}}
    config = load_config(None, values)
    (source,) = (s for s in config.rubrics if s.is_official)
    run = tmp_path / "run"
    run.mkdir()
    source.keep(run)
    (released / "UEval" / "system.py").unlink()
    kept = config.with_rubrics(lambda rubric: rubric.or_copy_in(run))
    again = ThinkerSettings(**kept.models["interleavethinker"])
    assert again.released == run / "rubrics" / "interleavethinker" / "system.py"
    assert resolve(NAME, models(prompts=again.prompts)).planner == found.planner


def test_official_mode_needs_the_parser_of_the_program_and_a_model_that_edits(
    released: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    official = models(mode="official", prompts=f"official:{released}")
    monkeypatch.setitem(sys.modules, "json_repair", None)
    with pytest.raises(UsageError, match="pip install 'json-repair'"):
        resolve(NAME, official)
    monkeypatch.setitem(sys.modules, "json_repair", json)
    found = resolve(NAME, official)
    assert isinstance(found.planner, ThinkerPlanner)
    assert not found.planner.sees_images
    assert found.opening != resolve(NAME, TINY).opening
    with pytest.raises(UsageError, match="draws from text alone"):
        resolve("interleavethinker+sdxl-turbo", official)


# ------------------------------------------------------------------- stopped in an answer


def plan_with_log(log: Path, die_at: str | None = None) -> Plan:
    """Answers of up to three steps, by stages that write down what they are asked."""
    thinker = StageSpec(
        name="planner",
        kind=Kind.DRAFT,
        target="stages:Thinker",
        settings={"steps": 3},
        options={"log": str(log)},
        seeded=True,
        placement=LIGHT,
    )
    chain = system(
        draft=thinker,
        critic=replace(thinker, name="critic", settings={"steps": 4}),
        render=painter(log=str(log), die_at=die_at),
        planner=ThinkerPlanner(OWN_WORDING, attempts=6, max_steps=3),
        review=StepReview(OWN_WORDING.critic, most_tries=3, attempts=4),
        max_images=3,
    )
    query = replace(sample(0), category="PBL", wants_images=True)
    return Plan(systems=[chain], queries=[query], scorers=[], prompt=as_asked)


_DRIVER = """
import sys
from pathlib import Path
from test_thinker import plan_with_log, run
run(plan_with_log(Path(sys.argv[1]), die_at="p2"), Path(sys.argv[2]))
"""


@pytest.mark.processes
@pytest.mark.usefixtures("worker_threads")
def test_a_run_that_is_killed_between_two_images_makes_nothing_again(
    tmp_path: Path,
) -> None:
    whole, log = tmp_path / "whole.log", tmp_path / "killed.log"
    run(plan_with_log(whole), tmp_path / "whole")
    (expected,) = outcomes(plan_with_log(whole), tmp_path / "whole").values()
    assert len(expected.value.images) == 3

    words = [sys.executable, "-c", _DRIVER, str(log), str(tmp_path / "killed")]
    places = f"{Path(__file__).parent}:{HELPERS}:{os.environ.get('PYTHONPATH', '')}"
    env = {**os.environ, "PYTHONPATH": places}
    driver = subprocess.run(words, env=env, stderr=subprocess.DEVNULL, timeout=120)
    assert driver.returncode == -signal.SIGKILL
    before = log.read_text().splitlines()
    kinds = {" ".join(line.split()[:2]) for line in before}
    assert kinds == {"say 3", "say 4", "draw p1"}, "a plan, a verdict and the first image"

    assert run(plan_with_log(log), tmp_path / "killed").counts["done"] == 1
    (resumed,) = outcomes(plan_with_log(log), tmp_path / "killed").values()
    assert resumed == expected
    after = log.read_text().splitlines()
    assert after[: len(before)] == before
    assert sorted(after) == sorted(whole.read_text().splitlines())
    assert len({*after}) == len(after)
