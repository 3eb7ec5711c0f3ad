"""From a system's name to its chain of stages. Imports no model code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from plait.generators.base import Kind, StageSpec, Weights, WeightsName
from plait.generators.catalogue import (
    SYSTEMS,
    Named,
    by_name,
    find,
    has_prefix,
    is_custom,
    planners,
    prefix_of,
    valid_names,
)
from plait.generators.custom import custom_spec, custom_system
from plait.generators.diffusion.inputs import seeing_models, unseen
from plait.generators.errors import UsageError
from plait.generators.extras import import_extra
from plait.generators.given import GroundTruth
from plait.generators.mini.resolve import as_mini, mini_settings, refuse_mini_only
from plait.generators.mini.table import MINI, is_mini_only
from plait.generators.names import unknown, with_overrides
from plait.generators.natives import native, part_overrides, part_settings
from plait.generators.own_code import is_given
from plait.generators.rendering import Critic, Rendering
from plait.generators.rounds import Rounds, compose
from plait.generators.settings import ModelSettings, StageSettings, with_small_batch
from plait.generators.system import System
from plait.generators.text_to_image import TextToImageAlone
from plait.generators.work import SCORED, FigureRange
from plait.generators.writing import NativeSystem, PlannedSystem
from plait.pipelines.chat.settings import (
    ChatSettings,
    GeneratedImagesSettings,
    ServerSettings,
)
from plait.pipelines.composition import (
    CRITIC,
    EDIT_ALONE,
    EDITING,
    PROTOCOLS,
    T2I_ALONE,
    protocol,
    text_alone,
)
from plait.pipelines.critic import CriticReview, CriticSettings
from plait.pipelines.endpoints.settings import ImagesSettings
from plait.pipelines.presets import TextToImageSettings, preset, prior_of
from plait.pipelines.servers.engines import engine_spec
from plait.pipelines.servers.settings import EngineModelSettings, ServerTable
from plait.pipelines.servers.start import with_server
from plait.pipelines.thinker import (
    OWN_WORDING,
    StepReview,
    ThinkerPlanner,
    ThinkerSettings,
    ThinkerWording,
    read_wording,
)


@dataclass(frozen=True, kw_only=True)
class Models:
    """Settings of a run that concern all its models."""

    weights: WeightsName
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings by the model's name, from `[models.NAME]` of the config."""
    servers: Mapping[str, ServerTable] = field(default_factory=dict)
    """Servers that plait starts, from `[servers.NAME]` of the config."""
    gpu_gib: float = 80.0
    """Memory of one GPU, to decide how many a model needs."""
    max_images: int = 4
    """Most images of one answer under protocols that outline it."""
    critic: CriticSettings = field(default_factory=CriticSettings)
    """How images are judged and drawn again under the protocol `critic`."""

    def of(self, name: str) -> Mapping[str, Any]:
        """Return the user's settings for one model."""
        return self.overrides.get(name, {})


class SystemName(NamedTuple):
    """The parts of `LVLM[+T2I][@PROTOCOL[=CRITIC]]`.

    Of any other name, all of it is `lvlm`; so is the model of `T2I@t2i`.
    """

    lvlm: str
    t2i: str | None = None
    protocol: str | None = None

    @property
    def critic(self) -> str | None:
        """The critic that the protocol names."""
        return (self.protocol or "").partition("=")[2] or None

    @property
    def models(self) -> tuple[str, ...]:
        """The models it names."""
        return tuple(m for m in (self.lvlm, self.t2i, self.critic) if m is not None)


def parts_of(name: str) -> SystemName:
    """Return the parts of a system's name, split from the right.

    Model names may contain `@` and `+`: only a known protocol ends a name, and only what
    may be a text-to-image model follows a `+`.
    """
    pair, rule = _split_protocol(name)
    for place in reversed(range(len(pair))):
        if pair[place] == "+" and _may_draw(pair[place + 1 :]):
            return SystemName(pair[:place], pair[place + 1 :], rule)
    lvlm, plus, t2i = pair.rpartition("+")
    if plus and not has_prefix(pair, Named.LVLM, *SYSTEMS):
        return SystemName(lvlm, t2i, rule)
    return SystemName(pair, None, rule)


def _split_protocol(name: str) -> tuple[str, str | None]:
    """Return a name without the protocol at its end, and the protocol with its critic."""
    pair, at, critic = name.rpartition(f"@{CRITIC}=")
    if at and critic:
        return pair, f"{CRITIC}={critic}"
    pair, at, rule = name.rpartition("@")
    if at and rule in PROTOCOLS:
        return pair, rule
    return name, None


def _may_draw(name: str) -> bool:
    """Return whether `name` is meant as a T2I model, `@` and anything after it aside."""
    bare = name.partition("@")[0]
    return is_t2i(bare) or is_t2i(name) or is_custom(bare)


def resolve(name: str, models: Models) -> System:
    """Return the system a user named; UsageError says what would have been valid."""
    if name == "gt":
        return GroundTruth(name="gt")
    if is_given(name):
        return custom_system(name, models.weights, models.of(name))
    parts = parts_of(name)
    if parts.lvlm in planners():
        return _resolve_planned(name, parts, models)
    if is_native(parts.lvlm) and parts.t2i is None:
        return _native(parts, models)
    if find(parts.lvlm, Named.SERVED) is not None:
        return _resolve_interleaved(name, parts, models)
    if parts.t2i is not None or parts.protocol is not None:
        return _resolve_composed(name, parts, models)
    if is_custom(name):
        return custom_system(name, models.weights, models.of(name))
    if is_lvlm(name):
        t2i = name if is_t2i(name) else "sdxl-turbo"
        raise UsageError(
            f"system {name!r} only writes text; give it a text-to-image model, as in "
            f"'{name}+{t2i}', or use '{name}@text' for text alone"
        )
    if is_t2i(name):
        raise UsageError(
            f"system {name!r} only draws; give it an LVLM, as in 'qwen2-vl-7b+{name}', or "
            f"use '{name}@{T2I_ALONE}' for the text-to-image model alone"
        )
    prefix_of(name, "system", *SYSTEMS, Named.LVLM)
    _refuse_unknown_protocol(name, models)
    pairs = (f"{lvlm}+T2I" for lvlm in by_name(Named.LVLM))
    raise unknown("system", name, [*pairs, f"T2I@{T2I_ALONE}", *valid_names(*SYSTEMS)])


def is_native(name: str) -> bool:
    """Return whether `name` is a native model, of plait or a class of transformers."""
    return name in by_name(Named.NATIVE) or has_prefix(name, Named.NATIVE)


def _resolve_declared(name: str, models: Models) -> NativeSystem:
    """Return `native:hf:ORG/NAME` or `native:PLACE`, in rounds of text and image.

    UsageError for other weights than pretrained ones.
    """
    model = name.removeprefix("native:").removeprefix("hf:")
    if not model or models.weights != "pretrained":
        raise UsageError(
            f"system {name!r}: write native:hf:ORG/NAME or native:FOLDER, with --weights "
            "pretrained; janus-pro-1b has others"
        )
    parts: dict[str, Any] = {
        "draft": ChatSettings(model=model),
        "render": GeneratedImagesSettings(model=model),
        "compose": Rounds(),
    }
    settings = part_settings(parts, models.of(name), f"models.{name}")
    rounds = settings["compose"]
    render = settings["render"].spec(f"{name}-render", "pretrained", models.gpu_gib)
    return NativeSystem(
        name=name,
        draft=_stage(settings["draft"], f"{name}-draft", "pretrained", models.gpu_gib),
        rendering=Rendering(render=render),
        compose=partial(compose, rounds),
        rounds=rounds.rounds,
    )


def _native(parts: SystemName, models: Models) -> System:
    """Return a native model, which may be composed like an LVLM and a T2I model.

    UsageError for a protocol of one that interleaves by itself.
    """
    model = parts.lvlm
    rule_name = parts.protocol
    named = model in by_name(Named.NATIVE)
    if named:
        own = native(model, models.weights, models.of(model), models.gpu_gib)
    else:
        own = _resolve_declared(model, models)
    if rule_name is None:
        return own
    name = f"{model}@{rule_name}"
    drawing = own.rendering
    assert drawing is not None
    if named and drawing.condition is None:
        raise UsageError(
            f"system {name!r}: {model!r} places its images itself; it takes no protocol"
        )
    if rule_name == EDIT_ALONE:
        raise UsageError(
            f"system {name!r}: {model!r} reads the images of a query as it is; write "
            f"{model!r} without a protocol"
        )
    if parts.critic is not None or rule_name in (CRITIC, EDITING):
        raise UsageError(
            f"system {name!r}: the protocol {rule_name!r} takes an LVLM and a T2I model; "
            f"{model!r} takes mmie, outline, text or {T2I_ALONE}"
        )
    if rule_name == "text":
        return text_alone(name, own.draft, model)
    if rule_name == T2I_ALONE:
        return TextToImageAlone(name=name, rendering=drawing, t2i=name)
    return protocol(rule_name, models.max_images).system(name, own.draft, drawing)


def _resolve_interleaved(name: str, parts: SystemName, models: Models) -> System:
    """Return a model behind a server that draws its own images: one drafting stage."""
    if parts != SystemName(name):
        raise UsageError(
            f"system {name!r}: {parts.lvlm!r} answers with images of its own; it takes "
            "neither a text-to-image model nor a protocol"
        )
    settings = _settings(name, Named.SERVED)
    draft = _spec(name, settings, models)
    return NativeSystem(name=name, draft=draft, max_images=0, tells_modality=True)


def _resolve_composed(name: str, parts: SystemName, models: Models) -> System:
    lvlm = parts.lvlm
    t2i = parts.t2i
    label = parts.protocol or "mmie"
    rule_name = label.partition("=")[0]
    if rule_name in (T2I_ALONE, EDIT_ALONE):
        if t2i is not None:
            raise UsageError(
                f"system {name!r}: protocol {rule_name!r} is of a text-to-image model "
                f"alone; write '{t2i}@{rule_name}'"
            )
        drawing = _drawing(lvlm, rule_name, models)
        return TextToImageAlone(name=name, rendering=drawing, t2i=lvlm)
    rule = protocol(rule_name, models.max_images)
    if rule_name == "text" and t2i is not None:
        t2i_settings(t2i)
    draft = lvlm_spec(lvlm, models)
    if rule_name == "text":
        return text_alone(name, draft, lvlm)
    if t2i is None:
        example = "flux2-klein" if rule_name == EDITING else "sdxl-turbo"
        raise UsageError(
            f"system {name!r}: protocol {rule_name!r} draws images; name a text-to-image "
            f"model, as in '{lvlm}+{example}@{label}'"
        )
    _refuse_unknown_protocol(t2i, models)
    tail = "" if rule_name == "mmie" else f"@{label}"
    pair = f"{lvlm}+{t2i}{tail}"
    drawing = _drawing(t2i, rule_name, models)
    if rule_name == CRITIC:
        if not drawing.render.seeded:
            raise UsageError(
                f"system {pair!r}: {t2i!r} reads no seed, so that it would draw the same "
                "image again"
            )
        drawing = replace(drawing, critic=_critic(parts.critic or lvlm, models))
    return rule.system(pair, draft, drawing, lvlm=f"{lvlm}{tail}", t2i=t2i)


def planned_stages(name: str, models: Models) -> tuple[StageSpec, ...]:
    """Return the stages of `PLANNER+T2I`, also where its prompts are not at hand."""
    parts = parts_of(name)
    settings = _planner_settings(parts.lvlm, models)
    drawing = _drawing_in_turn(_t2i_of_planner(name, parts), settings, models)
    planner = chat_spec(settings.planner, models)
    critic = chat_spec(settings.critic, models)
    return (planner, *drawing.roles.values(), critic)


def _resolve_planned(name: str, parts: SystemName, models: Models) -> System:
    """Return a planner and a critic over a T2I model.

    UsageError without a T2I model, with a protocol, and for published weights without
    their prompts.
    """
    t2i = _t2i_of_planner(name, parts)
    settings = _planner_settings(parts.lvlm, models)
    wording = _wording(parts.lvlm, settings, models)
    official = settings.mode == "official"
    loads = import_extra("json_repair", "official mode").loads if official else None
    draft = chat_spec(settings.planner, models)
    critic = chat_spec(settings.critic, models)
    # A stage that reads no seed would give the same reply again.
    planner = ThinkerPlanner(
        wording=wording,
        attempts=settings.attempts if draft.seeded else 1,
        max_steps=settings.max_steps,
        loads=loads,
        official=official,
    )
    review = StepReview(
        wording=wording.critic,
        most_tries=settings.tries,
        attempts=settings.attempts if critic.seeded else 1,
        loads=loads,
        official=official,
    )
    drawing = _drawing_in_turn(t2i, settings, models)
    return PlannedSystem(
        name=name,
        draft=draft,
        planner=planner,
        rendering=replace(drawing, critic=Critic(critic, review)),
        max_images=settings.max_steps,
        lvlm=parts.lvlm,
        t2i=t2i,
    )


def _t2i_of_planner(name: str, parts: SystemName) -> str:
    if parts.protocol is not None:
        raise UsageError(
            f"system {name!r}: {parts.lvlm!r} plans its answers; it takes no protocol"
        )
    if parts.t2i is None:
        raise UsageError(
            f"system {name!r} plans and judges; name what draws, as in "
            f"'{parts.lvlm}+flux2-klein'"
        )
    return parts.t2i


def _planner_settings(name: str, models: Models) -> ThinkerSettings:
    usual: ThinkerSettings = planners()[name].make()
    return with_overrides(usual, models.of(name), f"models.{name}")


def _wording(name: str, settings: ThinkerSettings, models: Models) -> ThinkerWording:
    if settings.released is not None:
        return read_wording(settings.released)
    needed = settings.prompts is None and models.weights == "pretrained"
    if needed or settings.mode == "official":
        raise UsageError(
            f"{name!r} is asked by the prompts of its authors: give your copy of their "
            "UEval/system.py, or the checkout that holds it, as "
            f"models.{name}.prompts=official:PATH; 'plait' is our wording, for other "
            "models in corrected mode"
        )
    return OWN_WORDING


def _drawing_in_turn(t2i: str, settings: ThinkerSettings, models: Models) -> Rendering:
    """Return how a T2I model draws step after step; UsageError for an unknown one.

    From the images before where it can, else from text alone; UsageError for such a model
    in official mode. A server is given images in official mode, or where `input_images`
    is set.
    """
    _refuse_unknown_protocol(t2i, models)
    served = isinstance(t2i_settings(t2i), ImagesSettings)
    if served and settings.mode != "official" and "input_images" not in models.of(t2i):
        # Whether a server edits is known only once it has been asked.
        return replace(_drawing_from_text(t2i, models), in_turn=True)
    try:
        drawing = _drawing_from_images(t2i, EDITING, models)
    except _BlindModelError:
        if settings.mode == "official":
            raise
        drawing = _drawing_from_text(t2i, models)
    return replace(drawing, in_turn=True)


class _BlindModelError(UsageError):
    """A T2I model draws from text alone."""


def _drawing(t2i: str, rule: str, models: Models) -> Rendering:
    """Return how a T2I model draws under a protocol."""
    if rule in (EDITING, EDIT_ALONE):
        return _drawing_from_images(t2i, rule, models)
    return _drawing_from_text(t2i, models)


def _drawing_from_text(t2i: str, models: Models) -> Rendering:
    """Return how a T2I model draws each image from its prompt alone."""
    render, prior = t2i_stages(t2i, models)
    return Rendering(render=render, condition=prior, keeps_prompt=prior is not None)


def _critic(critic: str, models: Models) -> Critic:
    """Return the critic of the protocol `critic`."""
    settings = models.critic
    stage = chat_spec(critic, models)
    manner = settings.verdict or ("probability" if _tells_probabilities(stage) else "reply")
    if manner == "probability":
        stage = answers_spec(critic, models)
    return Critic(stage, CriticReview(settings, manner))


def _drawing_from_images(t2i: str, rule: str, models: Models) -> Rendering:
    """Return how a T2I model draws each image from its prompt and the last images too.

    UsageError, which names the `rule`, for a model that draws from text alone, where that
    is known before it is loaded.
    """
    settings = t2i_settings(t2i)
    own = models.of(t2i)
    if settings is None:
        return replace(_drawing_from_text(t2i, models), input_images=1)
    if isinstance(settings, ImagesSettings):
        settings = with_overrides(settings, own, f"models.{t2i}")
        if reason := settings.reason_not_to_edit:
            raise UsageError(f"{t2i!r}: {reason}")
        images = settings.input_images or 1
        return replace(_drawing_from_text(t2i, models), input_images=images)
    if not isinstance(settings, TextToImageSettings) or own.get("engine"):
        raise _BlindModelError(
            f"{t2i!r} is run by an engine, which plait gives no images; {rule!r} draws "
            f"with images:MODEL, {seeing_models()}"
        )
    own = {"input_images": 1, **own}
    kind = settings.pipeline
    images = own["input_images"]
    known = kind is not None and isinstance(images, int)
    if known and (reason := unseen(str(kind), images)):
        blind = unseen(str(kind), 1) is not None
        raise (_BlindModelError if blind else UsageError)(f"{t2i!r}: {reason}")
    models = replace(models, overrides={**models.overrides, t2i: own})
    return replace(_drawing_from_text(t2i, models), input_images=images)


def _refuse_unknown_protocol(name: str, models: Models) -> None:
    """UsageError for `MODEL@X` with a model that is known and a protocol that is not."""
    model, at, rule = name.partition("@")
    named = model in by_name(Named.T2I) or model in by_name(Named.LVLM)
    if at and named and rule not in PROTOCOLS:
        protocol(rule, models.max_images)


def is_lvlm(name: str) -> bool:
    """Return whether `name` is a model that answers in text, not a composition."""
    whole = parts_of(name) == SystemName(name)
    return name in by_name(Named.LVLM) or (has_prefix(name, Named.LVLM) and whole)


def is_t2i(name: str) -> bool:
    """Return whether `name` is a model that draws from text, not a system."""
    alone = name.endswith((f"@{T2I_ALONE}", f"@{EDIT_ALONE}"))
    named = has_prefix(name, Named.T2I) and not alone
    return name in by_name(Named.T2I) or is_mini_only(name) or named


def lvlm_spec(name: str, models: Models) -> StageSpec:
    """Return the stage of an LVLM, `hf:ORG/NAME`, `openai:MODEL` or `module:Class`."""
    if is_custom(name):
        return custom_spec(name, models.weights, models.of(name), [Kind.DRAFT])
    return _spec(name, _settings(name, Named.LVLM), models)


def chat_spec(name: str, models: Models) -> StageSpec:
    """Return the stage of any model that answers in text, native ones too, as a judge."""
    if name in by_name(Named.NATIVE):
        draft = native(name, models.weights, models.of(name), models.gpu_gib).draft
        assert draft is not None
        return draft
    if find(name, Named.LVLM) is None and not is_custom(name):
        prefix_of(name, "chat model", Named.LVLM)
        valid = [*valid_names(Named.LVLM), *by_name(Named.NATIVE)]
        raise unknown("chat model", name, valid)
    return lvlm_spec(name, models)


_WRITING = {"max_new_tokens", "temperature", "top_p", "top_k", "repetition_penalty"}
"""Settings of an LVLM that choose the tokens it writes."""


def _tells_probabilities(spec: StageSpec) -> bool:
    return spec.stage == ChatSettings.stage


def answers_spec(name: str, models: Models) -> StageSpec:
    """Return the stage that tells how likely an LVLM gives each of some answers.

    UsageError for a model that plait does not run itself.
    """
    spec = chat_spec(name, models)
    if not _tells_probabilities(spec):
        raise UsageError(
            f"{name!r} does not tell the probabilities of answers: name an LVLM that plait "
            "runs itself, such as qwen2-vl-7b or hf:ORG/NAME, and leave its engine out"
        )
    work = spec.work and replace(spec.work, steps=FigureRange.exact(1.0), usage=SCORED)
    return replace(
        spec,
        name=f"{spec.name} answers",
        kind=Kind.LOGPROBS,
        keyed_as=Kind.SCORE,
        stage="answer-probabilities",
        target="plait.pipelines.vlm.answers:AnswerProbabilities",
        version=1,
        settings={k: v for k, v in spec.settings.items() if k not in _WRITING},
        seeded=False,
        placement=replace(spec.placement, longest_first=False),
        work=work,
    )


def t2i_spec(name: str, models: Models) -> StageSpec:
    """Return the stage of a T2I model, `diffusers:ORG/NAME` or `module:Class`.

    UsageError for a model of two stages.
    """
    render, prior = t2i_stages(name, models)
    if prior is None:
        return render
    raise UsageError(
        f"{name!r} draws in two stages; '{name}@{T2I_ALONE}' is the system of both, and "
        f"'diffusers:{preset(Named.T2I, name).model}' runs both as one"
    )


def t2i_stages(name: str, models: Models) -> tuple[StageSpec, StageSpec | None]:
    """Return the stage of a T2I model as `t2i_spec`, and any that comes before it."""
    settings = t2i_settings(name)
    if settings is None:
        return custom_spec(name, models.weights, models.of(name), [Kind.RENDER]), None
    render = _spec(name, settings, models)
    if name in by_name(Named.LVLM):
        render = replace(render, name=f"{name} images")
    prior = prior_of(name)
    if prior is None or render.stage != settings.stage:
        return render, None
    return render, replace(_spec(name, prior, models), name=f"{name} prior")


def t2i_settings(name: str) -> StageSettings | None:
    """Return a T2I model's settings, None for a user's class; no weights are asked.

    UsageError for a name that is neither.
    """
    if is_custom(name):
        return None
    published = MINI[name].preset if is_mini_only(name) else None
    return _settings(published or name, Named.T2I)


def _settings(name: str, kind: Named) -> StageSettings:
    """Return the settings of a model of a kind, by its name or a prefix; UsageError."""
    match = find(name, kind)
    if match is None:
        prefix_of(name, kind, kind)
        raise unknown(kind, name, valid_names(kind))
    if match.entry.prefix is None:
        named: StageSettings = preset(kind, name)
        return named
    if not match.rest:
        raise UsageError(f"{name!r} names no model; write {match.entry.form}")
    settings: StageSettings = match.entry.make(model=match.rest)
    return settings


def _overrides(name: str, settings: StageSettings, models: Models) -> Mapping[str, Any]:
    """Return the user's overrides of a model that concern the stage of `settings`.

    A model's name may be an LVLM's and a text-to-image model's, or have a stage before.
    """
    named = {
        "draft": preset(Named.LVLM, name),
        "condition": prior_of(name),
        "render": preset(Named.T2I, name),
    }
    stages = {part: own for part, own in named.items() if own is not None}
    if len(stages) < 2:
        return models.of(name)
    part = next(part for part, own in stages.items() if own is settings)
    return part_overrides(stages, models.of(name), f"models.{name}")[part]


def _spec(name: str, settings: StageSettings, models: Models) -> StageSpec:
    refuse_mini_only(name, models.weights)
    overrides = _overrides(name, settings, models)
    where = f"models.{name}"
    # Servers of models have no weights of ours.
    local = isinstance(settings, ModelSettings)
    if models.weights == "mini" and local:
        with mini_settings(name, overrides) as values:
            own = with_overrides(settings, values, where)
            return as_mini(_stage(own, name, "pretrained", models.gpu_gib))
    weights: Weights = "pretrained" if models.weights == "mini" else models.weights
    if local:
        overrides = with_small_batch(overrides, weights)
    settings = with_overrides(settings, overrides, where)
    spec = _stage(settings, name, weights, models.gpu_gib)
    if isinstance(settings, ServerSettings):
        return with_server(spec, settings, models.servers)
    return spec


def _stage(
    settings: StageSettings, name: str, weights: Weights, gpu_gib: float
) -> StageSpec:
    if isinstance(settings, EngineModelSettings) and settings.engine is not None:
        return engine_spec(settings, name, weights, gpu_gib)
    return settings.spec(name, weights, gpu_gib)
