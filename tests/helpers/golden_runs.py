"""Makes the recorded runs of `tests/golden/runs` anew, on purpose.

python tests/helpers/golden_runs.py [NAME]...

What comes out differs from what was there in its times, and where models or the engine have
changed; `golden_outputs.py --accept` then writes what the commands say of it.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from cli_helpers import plait
from comparing_helpers import creation_row, mmrb2_pair, write_mmrb2, write_tsv
from golden_stages import scribble
from judging_helpers import STAND_IN, stand_in_digests
from mmie_helpers import folder as write_mmie
from mmie_helpers import gpt, human
from mmie_helpers import row as mmie_row
from opening_helpers import released
from paths import CHECKOUT, HELPERS, TESTS
from picture_helpers import flat, saved
from PIL import Image as Pillow
from task_rows import ISG, UEVAL, isg_text, write_isg, write_ueval

from plait.scorers.judging import mmie as mmie_judge

RUNS = TESTS / "golden" / "runs"
HERE = "@HERE@"
"""In recorded manifests and in commands: the folder that holds data and run."""
EARLIER = "ac1bfd77"
"""The commit that made the run of an earlier version."""
_MADE_BY_READING = (
    *("leaderboard.*", "differences.json", "failures.csv", "pairings.*", "report*"),
    *("bias.*", "compare-*", "run*.log", "spans*", "trace*", "*.lock"),
)
_LEFT_OUT = (
    *("argv", "forecast", "forecast_outcome", "git", "hardware", "platform", "python"),
    *("other_work", "timing", "trace"),
)
"""Of manifests: hosts, versions and durations."""
_MOMENT = "2026-01-02T03:04:05Z"

TINY = ("--weights", "tiny")
AUTHOR, NATIVE = "golden_stages:Author", "golden_stages:Illustrator"
OUTLINER = "golden_stages:Outliner"
PENCIL, BRUSH = "golden_stages:Pencil", "golden_stages:Brush"
EXAMINER, LONGEST = "golden_stages:Examiner", "comparing_helpers:Longest"
FIRSTBORN, GRADER = "comparing_helpers:Firstborn", "judge:comparing_helpers:Grader"
TERSE, WORDY = "comparing_helpers:Terse", "comparing_helpers:Wordy"
BRIEF, COUNT = "comparing_helpers:Brief", "api_helpers:PictureCount"


@dataclass(frozen=True)
class GoldenRun:
    """One folder of `runs`: data, a run on them named `run`, and perhaps `other`."""

    make: Callable[[Path], None]
    """Writes data and runs into a folder."""
    reads: Sequence[Sequence[str]] = ()
    """Commands that read it, beside those that read every run."""


def done(*words: str) -> None:
    """Do a command that makes records; ends the program where the command is wrong."""
    finished = plait(*words)
    if finished.returncode not in (0, 1):  # 1: what has failed on purpose
        sys.exit(f"plait {' '.join(words)}\n{finished.stdout}{finished.stderr}")


def made(root: Path, data: str, systems: Iterable[str], *more: str) -> None:
    """`plait run --data DATA --out ROOT --system ... --weights tiny`, and more words."""
    named = [word for name in systems for word in ("--system", name)]
    done("run", "--data", data, "--out", str(root), *TINY, *named, *more)


def by(*scorers: str) -> list[str]:
    """The words that name scorers."""
    return [word for name in scorers for word in ("--scorer", name)]


def mmie_data(folder: Path) -> str:
    """Queries of all categories: answered, failed, skipped, muted; one malformed."""

    def query(id: str, field: str, text: str, *images: str) -> dict[str, Any]:
        shown = [(f"See {name}.", f"./images/{name}.png") for name in images]
        truth = gpt((f"A good answer to {id}.", "./images/b.png"), ("The end.", None))
        return mmie_row(id, field=field, conversations=[human((text, None), *shown), truth])

    rows = [
        query("SA-1", "Literature", "Tell a good story.", "a"),
        query("SA-2", "Literature", "Go on, !mute.", "a"),
        query("PBL-1", "Art", "How to draw a good house?", "a", "b"),
        query("PBL-2", "Health", "How to rest, !silent?", "b"),
        query("PBL-3", "Finance", "How to save, !crash?"),
        query("MSR-1", "Physics", "Why is the <b>sky</b> blue & good, !skip?", "b"),
        query("MSR-2", "Physics", "An image that is not there.", "gone"),
    ]
    pictures = {"b.png": flat("blue", (16, 16))}
    return str(write_mmie(folder / "data", rows, pictures))


def mmie(folder: Path) -> None:
    """Native, composite and with a critic; costs, every outcome; scored in two steps.

    And the native model with another seed.
    """
    data, root = mmie_data(folder), folder / "run"
    critic = f"{OUTLINER}+{PENCIL}@critic={EXAMINER}"
    systems = ("gt", f"{AUTHOR}+{PENCIL}", critic, NATIVE)
    reply = ("--set", 'composition.critic.verdict="reply"')
    made(root, data, systems, *reply, *by("bleu", BRIEF, COUNT, GRADER))
    done("score", str(root), *by("chrf", "clipscore"))
    made(folder / "other", data, (NATIVE,), "--seed", "1", *by("bleu", COUNT))
    ratings = (
        f"{query},{system},{rater},{(3 * i + 2 * j + k) % 7}"
        for i, query in enumerate(("SA-1", "SA-2", "PBL-1", "PBL-3"))
        for j, system in enumerate(systems[1:])
        for k, rater in enumerate(("ann", "bo"))
    )
    lines = ("id,system,annotator,score", *ratings)
    (folder / "ratings.csv").write_text("".join(f"{line}\n" for line in lines))
    done("annotate", str(root), "--items", "6", "--out", str(folder / "annotate"))
    for number, rater in enumerate(("ann", "bo")):
        rate(folder / "annotate", rater, number)


def rate(folder: Path, rater: str, number: int) -> None:
    """Answer every question of a page in `folder` as its raters do."""
    key = json.loads((folder / "key.json").read_text())
    log = []
    for position, item in enumerate(key["items"].values()):
        questions = key["forms"][item["form"]]["questions"]
        for i, question in enumerate(questions):
            keys = question["keys"]
            pressed = keys[(position * (i + 1) + number) % len(keys)][0]
            log.append([position, i, pressed, 1000 * len(log)])
    order = [[token, 0] for token in key["items"]]
    state = {"study": key["study"], "rater": rater, "order": order, "log": log}
    (folder / "answers").mkdir(exist_ok=True)
    (folder / "answers" / f"answers-{rater}.json").write_text(json.dumps(state))


def mmie_official(folder: Path) -> None:
    """A judge in the released program's way, by rubrics of the released ones' shape."""
    (folder / "prompts.py").write_text(STAND_IN)
    rubric = f"official:{folder}/prompts.py"
    words = ("--mode", "official", "--rubric", rubric, *by(GRADER, "judge:mmie-score"))
    made(folder / "run", mmie_data(folder), (f"{AUTHOR}+{PENCIL}", NATIVE), *words)


@contextmanager
def stand_in_rubrics() -> Iterator[None]:
    """Within it, rubrics of the released ones' shape are taken for the released ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mmie_judge, "DIGESTS", stand_in_digests())
        yield


def shards(folder: Path) -> None:
    """Two commands that answer a part of the queries each."""
    data, systems = mmie_data(folder), ("gt", NATIVE)
    for shard in ("1/2", "2/2"):
        words = ("--repeats", "2", "--shard", shard, *by("bleu", COUNT))
        made(folder / "run", data, systems, *words)


def ueval(folder: Path) -> None:
    """Criteria that a judge rules on one by one."""
    space = UEVAL | {"id": "8", "task": "space", "image_rubrics": []}
    mute = UEVAL | {"id": "9", "text_rubrics": ["!mute"]}
    place = write_ueval(folder / "data", [UEVAL, space, mute])
    systems, scorers = ("gt", NATIVE), by(f"criteria:{EXAMINER}", "isg-structure")
    made(folder / "run", f"ueval:{place}", systems, *scorers)


def isg(folder: Path) -> None:
    """All levels of answers of others."""
    story = {**ISG, "id": "0001", "Category": "Historical", "predict": {}}
    story |= {"Golden": [isg_text("1848.")]}
    good = [{"id": "0000", "output": ISG["Golden"]}]
    wrong = [{"id": "0000", "output": ISG["Golden"][::-1]}]
    place = write_isg(folder / "data", [ISG, story], good=good, wrong=wrong)
    levels = (f"isg-{level}:{EXAMINER}" for level in ("block", "image", "holistic"))
    systems = ("published:good", "published:wrong", NATIVE)
    made(folder / "run", f"isg:{place}", systems, *by("isg-structure", *levels))


def opening(folder: Path) -> None:
    """Answers of others and of a native model, compared pair by pair."""
    place = released(folder / "data")
    systems = ("published:M1", "published:M2", NATIVE)
    made(folder / "run", f"opening:{place}", systems, *by("isg-structure"))
    done("compare", str(folder / "run"), *OPENING)


OPENING = ("--protocol", "opening", "--judge", FIRSTBORN)
MMRB2 = ("--protocol", "mmrb2", "--judge", FIRSTBORN)
TRUTH = ("agreement", f"{HERE}/run", "truth:match")
CREATION = ("--protocol", "creation", "--judge", LONGEST)


def creation(folder: Path) -> None:
    """Verdicts in both orders, of which some cannot be read, refuse or follow position."""
    says = ("", "!first", "!mute", "!silent", "!refuse", "")
    rows = [
        creation_row(i, question=f"request {i} {text}", criteria="vivid")
        for i, text in enumerate(says)
    ]
    tsv = write_tsv(folder / "Creation.tsv", rows)
    made(folder / "run", f"creation:{tsv}", (TERSE, WORDY), *by(BRIEF))
    done("compare", str(folder / "run"), *CREATION)


def pairings(folder: Path) -> None:
    """Every LVLM with every T2I model, twice; figures of sets of images beside the true."""
    things = ("a cat", "two red cups", "a !blank page", "a house", "rain", "a boat", "it")
    rows, pictures = [], {}
    for i, thing in enumerate(things):
        asked = human((f"How to draw {thing}?", None))
        truth = gpt((f"Like {thing}.", f"./images/{i}.png"))
        rows.append(mmie_row(f"PBL-{i}", field="Art", conversations=[asked, truth]))
        pictures[f"{i}.png"] = saved(Pillow.fromarray(scribble(i)), "PNG")
    data = str(write_mmie(folder / "data", rows, pictures))
    systems = [f"{w}+{a}" for w in (TERSE, AUTHOR) for a in (PENCIL, BRUSH)]
    scorers = by("fid", "kid", "clipscore", "diversity", "chrf")
    made(folder / "run", data, systems, "--repeats", "2", *scorers)


def t2i(folder: Path) -> None:
    """T2I models alone, on prompts of one's own."""
    prompts = folder / "mine.txt"
    prompts.write_text("a cat\ntwo red cups\na !blank page\n")
    systems = (f"{PENCIL}@t2i", f"{BRUSH}@t2i")
    words = ("--repeats", "2", *by("clipscore-prompt", "diversity", COUNT))
    made(folder / "run", f"prompts:{prompts}", systems, *words)


def miniature(folder: Path) -> None:
    """A world whose truth is known, and a control that is wrong about it."""
    systems = ("gt", "gt:shuffled-images")
    scorers = by("truth:match", "truth:text", "truth:image", "consistency", COUNT)
    made(folder / "run", "miniature:9", systems, *scorers)


def native(folder: Path) -> None:
    """A real architecture at toy size, whose images are decoded in a stage of their own."""
    made(folder / "run", mmie_data(folder), ("anole",), *by("bleu", "ssim"))


def people(folder: Path) -> None:
    """Pairs of answers of which people chose one, and what judges prefer."""
    pairs = [mmrb2_pair(f"p{i}", chosen="B" if i % 3 else "A") for i in range(6)]
    place = write_mmrb2(folder / "data", {"interleaved": pairs[:-2], "edit": pairs[-2:]})
    systems = ("published:A", "published:B")
    made(folder / "run", f"mmrb2:{place}", systems, *by(BRIEF))
    done("compare", str(folder / "run"), *MMRB2)


def earlier(folder: Path) -> None:
    """A run that an earlier version has made."""
    data = mmie_data(folder)
    systems = ("gt", "comparing_helpers:Picky+comparing_helpers:Square")
    named = [word for name in systems for word in ("--system", name)]
    scorers = by("bleu", BRIEF, GRADER, "clipscore")
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "earlier"
        git = ("git", "-C", str(CHECKOUT), "worktree")
        subprocess.run([*git, "add", "--detach", str(tree), EARLIER], check=True)
        path = os.pathsep.join(map(str, (tree, tree / HELPERS.relative_to(CHECKOUT))))
        words = ["run", "--data", data, "--out", str(folder / "run"), *TINY]
        subprocess.run(
            [sys.executable, str(tree / "plait.py"), *words, *named, *scorers],
            env=os.environ | {"PYTHONPATH": path, "PLAIT_EXECUTOR": "local"},
            check=False,
        )
        subprocess.run([*git, "remove", "--force", str(tree)], check=True)


CORPUS = {
    "mmie": GoldenRun(
        mmie,
        (
            (
                "agreement",
                f"{HERE}/run",
                f"{HERE}/ratings.csv",
                "--all",
                "--out",
                f"{HERE}/out/people.json",
            ),
            ("diff", f"{HERE}/run", f"{HERE}/other", "--out", f"{HERE}/out/diff.json"),
            ("annotate", f"{HERE}/run", "--out", f"{HERE}/annotate", "--collect"),
            ("agreement", f"{HERE}/run", f"{HERE}/annotate/annotations.csv", "--all"),
            ("annotate", f"{HERE}/run", "--pairs", "--out", f"{HERE}/out/pairs"),
            ("leaderboard", f"{HERE}/run", f"{HERE}/other", "--out", f"{HERE}/out/both"),
            ("agreement", f"{HERE}/run", f"{HERE}/ratings.csv"),
            (
                *("correct", f"{HERE}/run", f"{HERE}/ratings.csv", "--drawn", "random"),
                *("--scorer", GRADER, "--out", f"{HERE}/out/correct.json"),
            ),
        ),
    ),
    "native": GoldenRun(native),
    "miniature": GoldenRun(
        miniature,
        (
            (*TRUTH, "--all", "--out", f"{HERE}/out/t.json"),
            TRUTH,
        ),
    ),
    "mmie-official": GoldenRun(mmie_official),
    "shards": GoldenRun(shards),
    "ueval": GoldenRun(ueval),
    "isg": GoldenRun(isg),
    "opening": GoldenRun(opening, (("compare", f"{HERE}/run", *OPENING),)),
    "creation": GoldenRun(creation, (("compare", f"{HERE}/run", *CREATION),)),
    "pairings": GoldenRun(pairings, (("bench", "pairings", f"{HERE}/run"),)),
    "t2i": GoldenRun(t2i),
    "people": GoldenRun(
        people, (("compare", f"{HERE}/run", *MMRB2), ("agreement", f"{HERE}/run"))
    ),
    "earlier": GoldenRun(earlier),
}


def record(name: str) -> None:
    """Make the run `name` anew in its folder."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / name
        folder.mkdir()
        with stand_in_rubrics():
            CORPUS[name].make(folder)
        for file in [*folder.rglob("manifest.json"), *folder.rglob("shard.json")]:
            forget_outputs(file.parent)
            _forget_machine(file, folder)
        shutil.rmtree(RUNS / name, ignore_errors=True)
        shutil.copytree(folder, RUNS / name)


def forget_outputs(root: Path) -> None:
    """Remove from the run in `root` what commands that read it have written."""
    for path in list(root.iterdir()):
        if any(fnmatch.fnmatch(path.name, pattern) for pattern in _MADE_BY_READING):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _forget_machine(path: Path, folder: Path) -> None:
    """Rewrite what a run says of itself without hosts, versions, durations and places."""
    content = json.loads(path.read_text().replace(str(folder), HERE))
    kept = {name: value for name, value in content.items() if name not in _LEFT_OUT}
    for name in ("started", "finished"):
        if name in kept:
            kept[name] = _MOMENT
    if "packages" in kept:
        kept["packages"] = {"plait": "0.0"}
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...")] = None,
) -> None:
    """Make the recorded runs anew, all or those that are named."""
    if len(names or CORPUS) > 1:  # in processes of their own: images are known by content
        for name in names or CORPUS:
            subprocess.run([sys.executable, __file__, name], check=True)
        return
    for name in names or ():
        record(name)
        files = [path for path in (RUNS / name).rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        print(f"{name}: {len(files)} files, {size / 1024:.0f} KiB")


if __name__ == "__main__":
    typer.run(main)
