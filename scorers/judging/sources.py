"""Whose wording judges are given: this project's, a released program's, or a user's own.

parse_rubric("plait")                # this project's wording
parse_rubric("official:MMIE/")       # the user's copy of a released program's prompts
parse_rubric("mine.toml")            # a rubric of the user's own (`user_rubric.py`)
parse_mode("official")               # that program's layout, limits and reader, unchanged

Nothing of a released file is executed, and only the exact released texts are accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from plait.generators.buckets import AnyPath, any_path
from plait.generators.errors import UsageError
from plait.generators.files import write_whole
from plait.generators.names import unknown
from plait.generators.released import OFFICIAL, file_in
from plait.scorers.judging.rubric_file import RubricText
from plait.scorers.judging.rubrics import RELEASED

Mode = Literal["corrected", "official"]
"""`official`: layout, constants and quirks of a released program; `corrected`: ours."""
MODES: tuple[Mode, ...] = get_args(Mode)
DEFAULT_MODE: Mode = "corrected"

PLAIT = "plait"
FORMER = "own"
"""What `PLAIT` was called: configs and manifests say so, and it names in digests."""
PROMPTS = "prompts.py"
"""MMIE's file of prompts."""
INSIDE = (
    PROMPTS,
    "ueval_eval.py",
    "ISG_eval/get_judge_prompt.py",
    "prompts/detailed_score_system.txt",
    "vlmeval/dataset/creation.py",
    "scripts/prompts.py",
    "engine/constant.py",
    "evaluate/generate_judgements/evaluator_apis/llm_judges/evaluation_prompts.py",
    "eval/t2i/eval_prompt.txt",
    "GEdit-Bench/viescore/vie_prompts.py",
    "viescore/vie_prompts.py",
    "Benchmark/Basic/prompts.json",
    "prompts.json",
    "judge_prompt.json",
    "UEval/system.py",
    "inference_qwen/UnifiedReward-2.0-inference/point_score_ACS_image_generation.py",
    "editscore/vie_prompts.py",
    "diffsynth/models/qwen_image_bench.py",
    "Evaluation_Pipeline/common/judge.py",
    "scripts/auxiliary/dynamic_prompt.txt",
)
"""Where a checkout of MMIE, UEval, ISG-Bench, OpenING (for its scores; of its arena name
the file), Creation-MMBench, MLLM-Bench, ProBench, MMRB2, SpecV, GEdit-Bench, ImgEdit,
UnifiedReward (for its scores; of UnifiedReward-Think name the file), EditScore,
DiffSynth-Studio (Q-Judger), Unison or IMUG-Bench holds the text of its judge (of
GEdit-Bench and ImgEdit a folder inside it does, too), and one of InterleaveThinker those of
its planner and critic."""
SPECV_PROMPT = "eval_prompt.txt"
"""SpecV's files of prompts, each in the folder of its track."""
IMUG_PROMPTS: Mapping[str, str] = {
    "dynamic": "dynamic_prompt.txt",
    "image": "eval_prompt.txt",
}
"""IMUG-Bench's files of prompts, side by side, by what they ask about."""
_PLANNERS = "system.py"
"""InterleaveThinker's file of prompts."""

USERS = ".toml"
"""The ending of the file of a user's own rubric."""
KEPT = "rubrics"
"""Folder in a run directory with the users' rubrics that it was judged by, each in one
named by its digest."""


@dataclass(frozen=True, slots=True)
class RubricSource:
    """Where a judge's wording comes from.

    Written as `plait`, `official:PATH` or `PATH.toml`, behind which `#DIGEST` says which
    content of the file is meant.
    """

    path: AnyPath | None = None
    """The released prompts, or the folder that holds them, or the file of a user's own
    rubric; None for our wording."""
    is_users: bool = False
    digest: str = ""
    """Of a user's own rubric; empty for whatever the file holds."""

    def __str__(self) -> str:
        if self.path is None:
            return PLAIT
        if not self.is_users:
            return f"{OFFICIAL}{self.path}"
        return f"{self.path}#{self.digest}" if self.digest else str(self.path)

    @property
    def in_digests(self) -> str:
        """How digests of configs name it: ours by its former name, a user's by content."""
        if self.path is None:
            return FORMER
        return f"{self.path.name}#{self.digest}" if self.digest else str(self)

    @property
    def is_official(self) -> bool:
        """Whether it is a released program's."""
        return self.path is not None and not self.is_users

    @property
    def absolute(self) -> RubricSource:
        """The file of prompts, so named that it means the same in any working directory.

        Whatever becomes of the folder that holds it. UsageError for a user's own rubric
        that cannot be read.
        """
        file = self.file
        if file is None:
            return self
        path = file.expanduser().resolve()
        digest = self.digest or (RubricText.at(path).digest if self.is_users else "")
        return replace(self, path=path, digest=digest)

    @property
    def file(self) -> AnyPath | None:
        """The file of prompts: `path`, or the one in it where it is a folder."""
        if self.path is None or self.is_users:
            return self.path
        files = [file_in(self.path, inside) for inside in INSIDE]
        return next((file for file in files if file.is_file()), files[0])

    @property
    def text(self) -> RubricText:
        """A user's own rubric; UsageError where the file holds another by now."""
        assert self.path is not None
        text = RubricText.at(self.path.expanduser())
        if self.digest not in ("", text.digest):
            raise UsageError(
                f"rubric {str(self.path)!r} has changed since the run was made, and the "
                "run has no copy of it: put the former one back"
            )
        return text

    def keep(self, folder: AnyPath) -> None:
        """Copy the texts into the run directory `folder`, unless it has them already.

        Records are named by their requests, so a run cannot be read without the texts it
        was judged by. Every accepted file of a released program holds the same texts.
        """
        file = self.file
        if file is None:
            return
        if self.is_users:
            self.text.keep(folder / KEPT)
            return
        for name, own in _files_to_keep(file).items():
            if not (copy := folder / name).exists():
                write_whole(copy, own.read_bytes())

    def or_copy_in(self, folder: AnyPath) -> RubricSource:
        """This source, or the copy kept in `folder` where the user's file is gone.

        Also where it holds another rubric by now.
        """
        file = self.file
        if file is None:
            return self
        inside = f"{KEPT}/{self.digest}/{file.name}"
        if not self.is_users:
            inside = next(iter(_files_to_keep(file)))
        copy = folder / inside
        if not copy.is_file() or (file.is_file() and not self.is_users):
            return self
        return replace(self, path=copy)


def _files_to_keep(file: AnyPath) -> dict[str, AnyPath]:
    """Return the files of a released program's prompts by their names in a run directory.

    `file` itself is the first. SpecV has a file for each track, in folders side by side,
    and IMUG-Bench two in one folder.
    """
    if file.name == IMUG_PROMPTS["dynamic"]:
        names = IMUG_PROMPTS.values()
        return {f"{KEPT}/imug/{name}": file.parent / name for name in names}
    if file.name == _PLANNERS:
        return {f"{KEPT}/interleavethinker/{file.name}": file}
    if file.name != SPECV_PROMPT:
        return {file.name: file}
    own = file.parent.name
    tracks = dict.fromkeys((own, *RELEASED["specv"]))
    kept: dict[str, AnyPath] = {}
    for track in tracks:
        path = beside(file, track)
        # The file itself is named also where it is gone, to look for its copy.
        if track == own or path.is_file():
            kept[f"{KEPT}/specv/{track}/{file.name}"] = path
    return kept


def beside(file: AnyPath, folder: str) -> AnyPath:
    """Return the file of the same name in a folder beside that of `file`."""
    return file.parent.parent / folder / file.name


OWN_WORDING = RubricSource()
"""This project's own rubrics."""


def parse_rubric(text: str | None) -> RubricSource:
    """Return the source that `text` names; our wording for None.

    Raises UsageError for anything but `plait` (or `own`), `official:PATH` and `PATH.toml`.
    The file is not read.
    """
    if text in (None, PLAIT, FORMER):
        return OWN_WORDING
    place, _, digest = text.partition(f"{USERS}#")
    if digest or text.endswith(USERS):
        place = f"{place}{USERS}" if digest else text
        return RubricSource(any_path(place), is_users=True, digest=digest)
    if not text.startswith(OFFICIAL):
        raise UsageError(
            f"rubric {text!r} is not valid; a rubric is 'plait', the path of your own "
            "(FILE.toml) or 'official:PATH'"
        )
    path = text.removeprefix(OFFICIAL)
    if not path.strip():
        raise UsageError(
            f"rubric {text!r} is not valid: 'official:' must be followed by the path "
            "of the released prompts"
        )
    return RubricSource(any_path(path))


def parse_mode(text: str | None) -> Mode:
    """Return the mode that `text` names, `corrected` for None; UsageError for others."""
    named: dict[str | None, Mode] = {None: DEFAULT_MODE, **{mode: mode for mode in MODES}}
    if text not in named:
        raise unknown("mode", str(text), MODES)
    return named[text]
