"""Breaks plait in one place at a time, and asks which tests notice.

    python tests/helpers/mutants.py [NAME ...] [--old]

Each mutant is one change of the source that breaks *meaning* between a query and the table:
programs run on, files are written, and the numbers say something else. The end-to-end test
on trained weights (`WHOLE`) must fail for each. With `--old` the tests of the part that is
changed run too, without it, so that the table says what only the whole run notices.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WHOLE = "tests/benchmarks/test_miniature_world.py"


@dataclass(frozen=True)
class Mutant:
    """One change that breaks the meaning of results."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    """The tests of the part that is changed."""


DRAWING = ("tests/generators/diffusion", "tests/pipelines/test_text_to_image.py")
WRITING = ("tests/pipelines/vlm",)
COMPOSING = ("tests/pipelines/test_composition.py", "tests/generators/test_system.py")
COMPARING = ("tests/scorers/clip",)
JUDGING = ("tests/scorers/judging", "tests/scorers/internvl")
TRUTH = ("tests/scorers/truth",)
DECODING = ("tests/generators/decoding", "tests/generators/anole/test_draft.py")
CODES = ("tests/generators/anole",)

MUTANTS = (
    Mutant(
        "red and blue of drawn pictures are swapped",
        "generators/diffusion/drawer.py",
        "pixels = np.rint(image.clip(0, 1) * 255).astype(np.uint8)",
        "pixels = np.rint(image.clip(0, 1) * 255).astype(np.uint8)[..., ::-1]",
        DRAWING,
    ),
    Mutant(
        "guidance is ignored",
        "generators/diffusion/calls.py",
        "self._guiding: settings.guidance,",
        "self._guiding: settings.guidance and 1.0,",
        DRAWING,
    ),
    Mutant(
        "the scheduler's prediction type is lost",
        "generators/diffusion/drawer.py",
        "    current = pipeline.scheduler\n",
        "    current = pipeline.scheduler\n"
        "    current = pipeline.scheduler = type(current).from_config(\n"
        '        {**current.config, "prediction_type": "epsilon"}\n'
        "    )\n",
        DRAWING,
    ),
    Mutant(
        "the scheduler is off by one step",
        "generators/diffusion/drawer.py",
        "    current = pipeline.scheduler\n",
        "    current = pipeline.scheduler\n"
        "    inner = current.step\n"
        "    current.step = lambda n, t, x, **k: inner(\n"
        "        n, t - current.config.num_train_timesteps // 10, x, **k\n"
        "    )\n",
        DRAWING,
    ),
    Mutant(
        "latents are decoded at a wrong scale",
        "generators/diffusion/drawer.py",
        "    current = pipeline.scheduler\n",
        "    current = pipeline.scheduler\n"
        "    vae = pipeline.vae\n"
        "    vae.register_to_config(scaling_factor=2 * vae.config.scaling_factor)\n",
        DRAWING,
    ),
    Mutant(
        "pictures of an answer stand in the wrong order",
        "generators/staged.py",
        "drawn = iter(images)",
        "drawn = iter(images[::-1])",
        COMPOSING,
    ),
    Mutant(
        "of an image drawn several times the last is kept",
        "pipelines/critic.py",
        "return max(tries, key=_rank)",
        "return tries[-1]",
        ("tests/pipelines/test_critic.py",),
    ),
    Mutant(
        "each mark of an outline is drawn by the words of the first",
        "pipelines/composition.py",
        "segments.append(ImageRequest(prompt=description))",
        "segments.append(\n"
        "                next(\n"
        "                    (s for s in segments if isinstance(s, ImageRequest)),\n"
        "                    ImageRequest(prompt=description),\n"
        "                )\n"
        "            )",
        COMPOSING,
    ),
    Mutant(
        "the LVLM reads pictures with red and blue swapped",
        "pipelines/vlm/prompts.py",
        "images = tuple(self._fit(decode(image)) for image in request.images)",
        "images = tuple(\n"
        '                Pillow.merge("RGB", self._fit(decode(image)).split()[::-1])\n'
        "                for image in request.images\n"
        "            )",
        WRITING,
    ),
    Mutant(
        "the answer stands as if the question's picture were a line of text",
        "generators/decoding/streams.py",
        "following = _following(ids)",
        "following = (self._lengths[there] + 1)[:, None].repeat(1, self._axes)",
        WRITING,
    ),
    Mutant(
        "answers of a batch go to the wrong requests",
        "pipelines/vlm/stage.py",
        "in zip(prompts, tracks, lengths, strict=True)",
        "in zip(prompts, [*tracks[1:], *tracks[:1]], lengths, strict=True)",
        WRITING,
    ),
    Mutant(
        "the question's picture is not shown to the LVLM as it is, but turned upside down",
        "pipelines/vlm/prompts.py",
        "images = tuple(self._fit(decode(image)) for image in request.images)",
        "images = tuple(\n"
        "                self._fit(decode(image)).rotate(180) for image in request.images\n"
        "            )",
        WRITING,
    ),
    Mutant(
        "CLIP compares a picture with the text of another",
        "scorers/clipscore.py",
        "for pair, image in zip(scored, images, strict=True)",
        "for pair, image in zip(scored, images[::-1], strict=True)",
        COMPARING,
    ),
    Mutant(
        "CLIP reads pictures with red and blue swapped",
        "scorers/embeddings/stage.py",
        "return self.encoder.transform(decode(image))",
        "return self.encoder.transform(decode(image)).flip(0)",
        COMPARING,
    ),
    Mutant(
        "the judge is shown the question's picture in place of the answer's",
        "scorers/judging/mmie.py",
        '"answer": pages.write(document.segments),',
        '"answer": pages.write(\n'
        "                tuple(\n"
        "                    next(\n"
        "                        (q for q in query.question if isinstance(q, Image)), s\n"
        "                    )\n"
        "                    if isinstance(s, Image)\n"
        "                    else s\n"
        "                    for s in document.segments\n"
        "                )\n"
        "            ),",
        JUDGING,
    ),
    Mutant(
        "positions of decoded tokens are shifted by one",
        "generators/decoding/streams.py",
        "position_ids=ids[..., 0] if self._axes == 1 else ids.permute(2, 0, 1),",
        "position_ids=(ids + (embeddings.shape[1] == 1)).permute(2, 0, 1).squeeze(0),",
        DECODING,
    ),
    Mutant(
        "codes of a picture are laid out by columns",
        "generators/decoding/payloads.py",
        "scaled = (self.values(codes).clamp",
        "scaled = (self.values(np.swapaxes(codes, 1, 2)).clamp",
        CODES,
    ),
    Mutant(
        "truth takes left for right",
        "scorers/truth/image_reader.py",
        '"left" if x < middle else "right"',
        '"right" if x < middle else "left"',
        TRUTH,
    ),
    Mutant(
        "truth takes red for blue",
        "scorers/truth/image_reader.py",
        "lab = _lab(pixels)",
        "lab = _lab(pixels[..., ::-1])",
        TRUTH,
    ),
)


def passes(mutant: Mutant | None, tests: tuple[str, ...]) -> bool:
    """Whether `tests` pass in a copy of the project with the change in it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        _copy(copy)
        if mutant is not None:
            _break(copy / mutant.file, mutant)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", *tests]
        return subprocess.run(command, cwd=copy, capture_output=True).returncode == 0


def _copy(place: Path) -> None:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)


def _break(file: Path, mutant: Mutant) -> None:
    text = file.read_text()
    if text.count(mutant.before) != 1:
        raise ValueError(f"{mutant.name}: {mutant.file} has not exactly one of its lines")
    file.write_text(text.replace(mutant.before, mutant.after))


def main() -> int:
    """Prints the table, and returns 1 where a mutant passes the end-to-end test."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="parts of names; by default all mutants")
    parser.add_argument("--old", action="store_true", help="run the part's own tests too")
    options = parser.parse_args()
    mutants = [
        mutant
        for mutant in MUTANTS
        if not options.names or any(name in mutant.name for name in options.names)
    ]
    parts = {mutant.tests for mutant in mutants} if options.old else set()
    for tests in ((WHOLE,), *sorted(parts)):
        if not passes(None, tests):
            print(f"{' '.join(tests)}: fails without any mutant")
            return 1
    print("| what is broken | the end-to-end test | the part's own tests |\n|---|---|---|")
    missed = 0
    for mutant in mutants:
        whole = passes(mutant, (WHOLE,))
        missed += whole
        old = _word(passes(mutant, mutant.tests)) if options.old else "not run"
        print(f"| {mutant.name} | {_word(whole)} | {old} |", flush=True)
    return 1 if missed else 0


def _word(passed: bool) -> str:
    return "pass" if passed else "**fail**"


if __name__ == "__main__":
    sys.exit(main())
