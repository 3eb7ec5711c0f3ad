"""Settings of judges that ask a chat model, and from a name and settings to the judge.

    resolve_judge("judge:gpt-4o", "pretrained", {"mode": "corrected"}, chat=stage_of)

Each prefix of a judge (`judge:`, `criteria:`, `unison:`, ...) has a class of settings here,
which its entry of the catalogue names. What all of them have is in `ChatJudgeSettings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from plait.generators.base import Kind, StageSpec, WeightsName
from plait.generators.catalogue import Named, by_name, by_prefix
from plait.generators.errors import UnknownName, UsageError
from plait.generators.mini.resolve import as_mini, mini_settings
from plait.generators.mini.table import MINI
from plait.generators.names import unknown, with_overrides
from plait.scorers.base import Scorer
from plait.scorers.judging import aspects
from plait.scorers.judging.aspects import AspectsJudge
from plait.scorers.judging.criteria import CriteriaJudge
from plait.scorers.judging.gedit import GeditJudge
from plait.scorers.judging.imgedit import ImgEditJudge
from plait.scorers.judging.imug import ImugJudge
from plait.scorers.judging.isg import IsgJudge
from plait.scorers.judging.judge import ChatJudge, QuestionsJudge, RubricJudge
from plait.scorers.judging.mmie import Corrected, Released, read_released_rubrics
from plait.scorers.judging.rewards import EditScoreJudge, QJudger, UnifiedRewardJudge
from plait.scorers.judging.rubrics import OWN, Rubric
from plait.scorers.judging.settings import AskingSettings
from plait.scorers.judging.specifications import SpecificationsJudge
from plait.scorers.judging.unison import UnisonJudge
from plait.scorers.judging.user_examiner import UserExaminer, schema_of
from plait.scorers.judging.user_judge import UserRubricJudge
from plait.scorers.judging.user_rubric import read_user_rubric
from plait.scorers.turn_names import name_of_turn_scorer
from plait.scorers.vqa import is_vqa


class ChatJudgeSettings(AskingSettings):
    """What a judge of single answers is asked and how its reply is read."""

    released: ClassVar[str]
    """Which file holds the released texts."""
    judged_by: ClassVar[type[QuestionsJudge[Any]]]
    refused: ClassVar[Mapping[str, str]] = {}
    """Options below that the judge does not take, each with why, for people."""

    retries: int | None = Field(default=None, ge=0, le=5)
    """How often a judge whose reply cannot be read is asked for its verdict again; by
    default once, and never in official mode."""
    max_images: int | None = Field(default=None, ge=1)
    """Most images shown, those of the question first; the places of all others are
    marked in the text. By default all are shown."""
    structured: bool = False
    """Whether to ask the server for replies in the JSON schema of the judge's form
    (`response_format`), which becomes part of the stage's settings. For judges of single
    criteria, of ISG-Bench, of OpenING and by a rubric of the user's own, behind an
    OpenAI-compatible endpoint."""

    @model_validator(mode="after")
    def _as_released(self) -> Self:
        """Refuse what official mode, which asks as the released program does, has not."""
        if self.mode == "corrected":
            return self
        if not self.source.is_official:
            raise ValueError(
                "mode 'official' needs the released rubrics: rubric 'official:PATH' with "
                f"your copy of {self.released}"
            )
        if self.retries:
            raise ValueError("mode 'official' asks once, so retries must be 0")
        if self.max_images is not None:
            raise ValueError("mode 'official' has its own limit; leave max_images out")
        if self.structured:
            raise ValueError("mode 'official' asks for no schema; leave structured out")
        return self

    @model_validator(mode="after")
    def _as_taken(self) -> Self:
        """Refuse options that this judge does not take."""
        for option, why in self.refused.items():
            if getattr(self, option):
                raise ValueError(why)
        return self

    @property
    def most_retries(self) -> int:
        """Follow-up questions after replies that cannot be read."""
        if self.retries is not None:
            return self.retries
        return 1 if self.mode == "corrected" else 0

    def judge(self, name: str, stage: StageSpec) -> ChatJudge:
        """Return the judge that asks `stage`; UsageError without the official texts."""
        fields = self.model_dump(exclude={"rubric", "retries", "structured"})
        if self.source.is_users:
            raise UsageError(
                f"{name}: its questions are fixed; a rubric of your own is for {PREFIX}LVLM"
            )
        file = self.source.file
        if file is not None:
            fields["wording"] = self.judged_by.wording_in(file)
        if self.structured:
            stage = with_schema(stage, name, self.judged_by.schema_of(name))
        fields |= {"retries": self.most_retries, "stage": stage}
        scale = self.judged_by.scale_of(name, self.mode)
        return self.judged_by(name=name, scale=scale, **fields)


class JudgeSettings(ChatJudgeSettings):
    """Those of a judge with a rubric."""

    released: ClassVar[str] = "prompts.py from github.com/Lillianwei-h/MMIE"

    def judge(self, name: str, stage: StageSpec) -> RubricJudge | UserRubricJudge:
        """Return the judge that asks `stage`; UsageError without the official texts."""
        if self.source.is_users:
            return self._by_user_rubric(name, stage)
        if self.structured:
            others = [other for other in judge_prefixes() if other != PREFIX]
            raise UsageError(
                f"{name}: structured = true is for judges that reply with JSON "
                f"({', '.join(others)}), "
                "and for rubrics of your own; by plait's they reply with text"
            )
        rubrics = rubrics_of(self)
        is_official = self.mode == "official"
        examiner = Released(rubrics) if is_official else Corrected(rubrics, self.max_images)
        return RubricJudge(
            name=name,
            stage=stage,
            examiner=examiner,
            retries=self.most_retries,
            seed=self.seed,
        )

    def _by_user_rubric(self, name: str, stage: StageSpec) -> UserRubricJudge:
        """Return the judge by a rubric of the user's own."""
        rubric = read_user_rubric(self.source.text)
        if self.structured and rubric.reply == "text":
            raise UsageError(
                f"{name}: structured = true is for replies in JSON, and rubric "
                f'{rubric.name} has reply = "text"'
            )
        wanted = rubric.reply == "schema" and stage.stage == _ENDPOINT
        if self.structured or wanted:
            stage = with_schema(stage, name, schema_of(rubric))
        return UserRubricJudge(
            name=name,
            stage=stage,
            scale=rubric.score,
            examiner=UserExaminer(rubric, self.max_images),
            retries=self.most_retries,
            seed=self.seed,
        )


def _differ_in_form(images: str) -> dict[str, str]:
    """Return why a judge of questions in several forms has no schema and shows `images`."""
    refused = {}
    for option in ("structured", "max_images"):
        refused[option] = (
            f"{option} is not for this judge, whose questions differ in form and show "
            f"{images}; leave it out"
        )
    return refused


class CriteriaSettings(ChatJudgeSettings):
    """The same of a judge of single criteria; its rubric are the questions around them."""

    released: ClassVar[str] = "ueval_eval.py from github.com/zlab-princeton/UEval"
    judged_by: ClassVar[type[QuestionsJudge[Any]]] = CriteriaJudge

    cached: bool = False
    """In official mode, whether to ask as through the released program's cache of
    contexts: with its system turn, the criterion in a turn of its own."""


class IsgSettings(ChatJudgeSettings):
    """The same of a judge of one of ISG-Bench's levels."""

    released: ClassVar[str] = (
        "ISG_eval/get_judge_prompt.py from github.com/Dongping-Chen/ISG"
    )
    judged_by: ClassVar[type[QuestionsJudge[Any]]] = IsgJudge


class AspectsSettings(ChatJudgeSettings):
    """The same of a judge of seven aspects; its rubric is the whole task."""

    released: ClassVar[str] = f"{aspects.FILE} from github.com/LanceZPF/OpenING"
    judged_by: ClassVar[type[QuestionsJudge[Any]]] = AspectsJudge


class SpecificationsSettings(ChatJudgeSettings):
    """The same of a judge of all specifications at once; its rubric are six prompts."""

    released: ClassVar[str] = (
        "github.com/yuyouxixi/SpecV (its checkout, with eval/TRACK/eval_prompt.txt)"
    )
    judged_by: ClassVar[type[QuestionsJudge[Any]]] = SpecificationsJudge


class GeditSettings(ChatJudgeSettings):
    """The same of a judge of edits in two replies; its rubric are both questions."""

    released: ClassVar[str] = (
        "GEdit-Bench/viescore/vie_prompts.py from github.com/stepfun-ai/Step1X-Edit"
    )
    judged_by: ClassVar[type[QuestionsJudge[Any]]] = GeditJudge


class ImgEditSettings(ChatJudgeSettings):
    """The same of a judge of three marks; its rubric are nine prompts."""

    released: ClassVar[str] = (
        "Benchmark/Basic/prompts.json from github.com/PKU-YuanGroup/ImgEdit"
    )
    judged_by: ClassVar[type[QuestionsJudge[Any]]] = ImgEditJudge
    refused: ClassVar[Mapping[str, str]] = {
        "structured": "the names of marks depend on the type of edit, so that there is no "
        "one schema; leave structured out"
    }


class UnisonSettings(ChatJudgeSettings):
    """The same of a judge of Unison's sessions; its rubric are all its questions."""

    released: ClassVar[str] = (
        "Evaluation_Pipeline/common/judge.py from github.com/FudanCVL/Unison"
    )
    judged_by: ClassVar[type[QuestionsJudge[Any]]] = UnisonJudge
    refused: ClassVar[Mapping[str, str]] = _differ_in_form("one or two images")

    pixel_boxes: bool = False
    """Whether the systems write boxes in pixels of the image and not in shares or
    thousandths of it, as OmniGen2 and UniWorld-V1 do."""


class ImugSettings(ChatJudgeSettings):
    """The same of a judge of IMUG-Bench's sessions; its rubric are two prompts."""

    released: ClassVar[str] = (
        "github.com/ccccEsion/IMUG-Bench (its checkout, with scripts/auxiliary/*.txt)"
    )
    judged_by: ClassVar[type[QuestionsJudge[Any]]] = ImugJudge
    refused: ClassVar[Mapping[str, str]] = _differ_in_form("the images that the data name")


class ImageJudgeSettings(ChatJudgeSettings):
    """The same of a judge of single images that was trained on what people prefer."""

    def judge(self, name: str, stage: StageSpec) -> ChatJudge:
        """Return the judge; UsageError for what it does not have.

        Also where a model that was trained on one wording would be asked in ours.
        """
        options = {
            "mode 'official'": self.mode == "official",
            "max_images": self.max_images is not None,
            "structured": self.structured,
        }
        for option, is_set in options.items():
            if is_set:
                raise UsageError(
                    f"{name}: {option} is not for this judge, which rates each image by "
                    "itself in its own form; leave it out"
                )
        model = str(stage.settings.get("model", ""))
        if self.source.path is None and model.startswith(_TRAINED):
            raise UsageError(
                f"{name}: {model} was trained on the released wording; set rubric to "
                f"'official:PATH' with your copy of {self.released}"
            )
        return super().judge(name, stage)


class UnifiedRewardSettings(ImageJudgeSettings):
    """That of UnifiedReward 2.0."""

    released: ClassVar[str] = (
        "point_score_ACS_image_generation.py from github.com/CodeGoat24/UnifiedReward"
    )
    judged_by: ClassVar[type[QuestionsJudge[Any]]] = UnifiedRewardJudge


class EditScoreSettings(ImageJudgeSettings):
    """That of EditScore."""

    released: ClassVar[str] = "vie_prompts.py from github.com/VectorSpaceLab/EditScore"
    judged_by: ClassVar[type[QuestionsJudge[Any]]] = EditScoreJudge


class QJudgerSettings(ImageJudgeSettings):
    """That of Q-Judger."""

    released: ClassVar[str] = (
        "qwen_image_bench.py from github.com/modelscope/DiffSynth-Studio"
    )
    judged_by: ClassVar[type[QuestionsJudge[Any]]] = QJudger


_TRAINED = "CodeGoat24/UnifiedReward"
"""How the names of checkpoints begin that are to be asked in the released wording."""
_ENDPOINT = "chat-endpoint"
"""The one stage whose requests take a `response_format`."""


def with_schema(stage: StageSpec, name: str, schema: Mapping[str, Any]) -> StageSpec:
    """Return a chat stage whose server is asked for replies in a JSON schema.

    UsageError where no such field is sent, or where the stage has one of its own.
    """
    if stage.stage != _ENDPOINT:
        raise UsageError(
            f"{name}: structured = true needs a judge behind an OpenAI-compatible endpoint "
            f"(openai:MODEL with its base_url), not {stage.name!r}; leave structured out"
        )
    body = dict(stage.settings.get("extra_body", {}))
    if "response_format" in body:
        raise UsageError(
            f"{name}: structured = true sets response_format, which extra_body of "
            f"{stage.name!r} sets already; leave one of them out"
        )
    form = {"name": "judgement", "strict": True, "schema": schema}
    body["response_format"] = {"type": "json_schema", "json_schema": form}
    return replace(
        stage,
        name=f"{stage.name} ({name.partition(':')[0]})",
        settings={**stage.settings, "extra_body": body},
    )


PREFIX = "judge:"


Chat = Callable[[str], StageSpec]
"""The stage of a chat model by name (`gpt-6.1-sol`, `hf:ORG/NAME`, `anole`); UsageError for
names it does not know."""


def takes_run_rubric(name: str) -> bool:
    """Return whether a run's own mode and rubric are those of the scorer `name`.

    Other scorers have theirs among their settings.
    """
    return name_of_turn_scorer(name).startswith(PREFIX)


def judge_prefixes() -> list[str]:
    """Return the prefixes, with their colon, of judges that ask a chat model."""
    prefixes = []
    for prefix, entry in by_prefix(Named.SCORER).items():
        if entry.asks == "replies":
            prefixes.append(f"{prefix}:")
    return prefixes


def is_judge(name: str) -> bool:
    """Return whether the scorer `name` asks a chat model for replies."""
    return name_of_turn_scorer(name).startswith(tuple(judge_prefixes()))


def judge_settings(name: str) -> type[AskingSettings]:
    """Return the settings' class of the judge `name`, by its prefix; KeyError."""
    prefix = name_of_turn_scorer(name).partition(":")[0]
    kind: type[AskingSettings] = by_prefix(Named.SCORER)[prefix].load()
    return kind


def resolve_judge(
    name: str,
    weights: WeightsName,
    overrides: Mapping[str, Any],
    gpu_gib: float = 80.0,
    chat: Chat | None = None,
) -> Scorer:
    """Return the judge that a prefix of `judge_prefixes` and a model name.

    UsageError for unknown names, settings and rubrics. `overrides` are fields of the
    prefix's settings; those of a judge with its own model may also be fields of the model's
    settings.
    """
    kind = judge_settings(name)
    model = name.partition(":")[2]
    if model in by_name(Named.JUDGE):
        return _judge_with_own_model(name, kind, weights, overrides, gpu_gib)
    settings = _settings_of(name, model, kind, overrides)
    stage = _chat_stage(name, model, chat)
    return settings.judge(name, stage)


def _judge_with_own_model(
    name: str,
    kind: type[AskingSettings],
    weights: WeightsName,
    overrides: Mapping[str, Any],
    gpu_gib: float,
) -> Scorer:
    """Return a judge such as `judge:mmie-score`, whose model does nothing but judge.

    `overrides` are fields of the judge's settings and of the model's, in one table.
    """
    model = name.partition(":")[2]
    model_settings = by_name(Named.JUDGE)[model].load()
    of_judge: dict[str, Any] = {}
    of_model: dict[str, Any] = {}
    for key, value in overrides.items():
        if key in kind.model_fields:
            of_judge[key] = value
        elif key in model_settings.model_fields:
            of_model[key] = value
        else:
            valid = {*kind.model_fields, *model_settings.model_fields}
            raise unknown(f"key in {name}", key, valid)
    settings = with_overrides(kind(), of_judge, name)
    if settings.mode == "official":
        # The released scorer cuts images into tiles regardless of the context.
        of_model = {"fit_context": False} | of_model
    if weights == "mini":
        with mini_settings(name, of_model) as of_mini:
            own = with_overrides(model_settings(), of_mini, model)
            stage = as_mini(own.spec(model, "pretrained", gpu_gib))
    else:
        own = with_overrides(model_settings(), of_model, model)
        stage = own.spec(model, weights, gpu_gib)
    return settings.judge(name, stage)


def _settings_of(
    name: str, model: str, kind: type[AskingSettings], overrides: Mapping[str, Any]
) -> AskingSettings:
    """Return a judge's settings; UsageError, which says where those of its model belong."""
    try:
        return with_overrides(kind(), overrides, name)
    except UsageError as error:
        if overrides.keys() <= kind.model_fields.keys():
            raise
        hint = f'settings of the model that it asks are those of models."{model}"'
        raise UsageError(f"{error}; {hint}") from None


def refuse_mini_lvlm(name: str, weights: WeightsName) -> None:
    """UsageError for a judge whose mini weights only answer queries.

    Not in `resolve_judge`: runs that were scored with one are still read.
    """
    name = name_of_turn_scorer(name)
    model = chat_model(name)
    if weights == "mini" and model != name and model in MINI and name not in MINI:
        judges = ", ".join(known for known in MINI if known.startswith(PREFIX))
        raise UsageError(
            f"{model!r} is no judge in the miniature world, where it only answers queries. "
            f"There {judges} judges answers by a rubric; endpoints judge there too"
        )


def rubrics_of(settings: JudgeSettings) -> Mapping[str, Rubric]:
    """Return plait's rubrics by category, or the official ones; UsageError without them."""
    file = settings.source.file
    return OWN if file is None else read_released_rubrics(file)


def refuse_wrong_rubric(settings: JudgeSettings) -> None:
    """UsageError for a rubric that cannot be read, whoever is to judge by it."""
    if settings.source.is_users:
        read_user_rubric(settings.source.text)
    else:
        rubrics_of(settings)


def chat_model(name: str) -> str:
    """Return the chat model that the scorer `name` asks; any other name as it is."""
    name = name_of_turn_scorer(name)
    prefix, _, model = name.partition(":")
    asks = f"{prefix}:" in judge_prefixes() or (model and is_vqa(name))
    return model if asks else name


def _chat_stage(name: str, model: str, chat: Chat | None) -> StageSpec:
    """Return the stage of the chat model that a judge asks; UsageError for any other."""
    prefix = f"{name.partition(':')[0]}:"
    own = [f"{prefix}{judge}" for judge in by_name(Named.JUDGE)]
    if chat is None or not model:
        raise unknown("judge", name, [*own, f"{prefix}MODEL"])
    try:
        stage = chat(model)
    except UnknownName as error:
        others = [f"{prefix}{other}" for other in error.valid]
        raise unknown("judge", name, [*own, *others]) from None
    except UsageError as error:
        raise UsageError(f"judge {name!r}: {error}; also {', '.join(own)}") from None
    if stage.kind is not Kind.DRAFT:
        raise UsageError(
            f"judge {name!r} must be a chat model (stage of kind 'draft'), but {model!r} "
            f"is of kind {stage.kind.value!r}"
        )
    return stage
