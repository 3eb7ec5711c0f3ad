"""`plait diff`: differences of two runs in scores, texts and images, query by query.

A difference of scores is the second run's minus the first's, over the queries that have a
score in both. Images are paired in the order in which they stand in the answers. Queries
are paired by id; one with another question in the other run is left out and named.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.paired import PairedMeans
from plait.benchmarks.results.repeats import values_by_repeat
from plait.benchmarks.results.table import ResultTable, TableColumn
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.studies.scorer_changes import scorer_changes
from plait.cluster.store import read_blob
from plait.generators.base import RANDOM, Outcome, Result, StageSpec, outcome_name
from plait.generators.buckets import AnyPath
from plait.generators.checkpoints import looks_like_path
from plait.generators.document import Document, Image, Malformed, Query, Text, key_of
from plait.generators.errors import UsageError
from plait.generators.extras import is_installed
from plait.generators.images import ImageError, decode
from plait.generators.names import unknown
from plait.generators.system import DescribedSystem
from plait.scorers.base import Scorer

Answer = Outcome[Document] | None
_AT_ONCE = 512
"""Answers that are read together."""
Pixels = npt.NDArray[np.uint8]
"""(height, width, 3)"""
ImageDistance = Callable[[Pixels, Pixels], float | None]
"""Measures two images of one size; None where they are too small for it."""
NO_DISTANCES: Mapping[str, ImageDistance] = {}


@dataclass(frozen=True)
class FinishedRun:
    """A run as it is compared: its results, and the scores in them."""

    root: AnyPath
    results: RunResults

    @classmethod
    def at(cls, root: AnyPath) -> "FinishedRun":
        """Return the run at `root`; UsageError where there is none."""
        return cls(root, open_results(root))

    @property
    def board(self) -> Board:
        """Everything its tables are made of."""
        return self.results.board

    @cached_property
    def systems(self) -> dict[str, DescribedSystem]:
        """The systems by name."""
        return {system.name: system for system in self.results.systems}

    @cached_property
    def scorers(self) -> dict[str, Scorer]:
        """The scorers by name."""
        return {scorer.name: scorer for scorer in self.results.scorers}

    @cached_property
    def queries(self) -> dict[str, Query | Malformed]:
        """By the key that distinguishes a malformed row from the valid one with its id."""
        return self.results.queries

    def scores(self, system: str, scorer: str) -> dict[str, float]:
        """Return means over repeats, by the key of every query that has a score."""
        values = self.board.values[scorer][:, self._column(system)]
        scores = {}
        for key, value in zip(self.board.keys, values.tolist(), strict=True):
            if not np.isnan(value):
                scores[key] = value
        return scores

    def count_scores(self, system: str, scorer: str) -> dict[str, int]:
        """Return in how many repeats each query has a score, by its key."""
        values = values_by_repeat(self.board, scorer)[:, :, self._column(system)]
        counts = (~np.isnan(values)).sum(axis=0)
        return dict(zip(self.board.keys, counts.tolist(), strict=True))

    def _column(self, system: str) -> int:
        """Return the column of a system in the values of the board."""
        return [*self.systems].index(system)

    def answers(self, system: str, keys: Sequence[str], repeats: int) -> Iterator[Answer]:
        """Yield the answers to queries by their keys, in one repeat after the other."""
        for repeat in range(1, repeats + 1):
            for start in range(0, len(keys), _AT_ONCE):
                some = keys[start : start + _AT_ONCE]
                documents = {}
                for evaluation in self.results.evaluations(
                    some, systems=[system], repeat=repeat
                ):
                    documents[key_of(evaluation.query)] = evaluation.document
                # In the order of the keys, None where there is no answer.
                yield from map(documents.get, some)


class ComparedAnswers(NamedTuple):
    """The answers of two systems, query by query."""

    systems: tuple[str, str]
    unit: str
    """What positions in texts are counted in."""
    pairs: Sequence[AnswerPair]


@dataclass(frozen=True, kw_only=True)
class PairedRuns:
    """Two runs, the systems that are compared, and the queries that both were asked."""

    runs: tuple[FinishedRun, FinishedRun]
    systems: Sequence[tuple[str, str]]
    """One of each run."""
    keys: Sequence[str]
    """Of queries that ask the same in both."""
    changed: Sequence[str]
    """Of queries that ask something else in the other run."""

    @property
    def scorers(self) -> list[str]:
        """The scorers that both runs have."""
        one, other = self.runs
        return [name for name in one.scorers if name in other.scorers]

    @property
    def changed_scorers(self) -> dict[str, list[str]]:
        """What the runs' scorers of one name do differently, by the name."""
        one, other = self.runs
        changed = {}
        for name in self.scorers:
            if changes := scorer_changes(one.scorers[name], other.scorers[name]):
                changed[name] = changes
        return changed

    @property
    def repeats(self) -> int:
        """Answers to each query that both runs have."""
        return min(run.results.about.repeats for run in self.runs)


def run_difference(
    first: AnyPath,
    second: AnyPath,
    system: str | None = None,
    against: str | None = None,
    *,
    answers: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[dict[str, Any], list[ResultTable]]:
    """Compare the runs at `first` and `second`: plain data, and tables of it.

    Systems are paired by name, or `system` of the first run with `against` of the second.
    UsageError for names that a run does not have, and where no system can be paired.
    Texts and images are those of at most `answers` queries, at even distances, since
    measuring two images of 1024 pixels a side takes half a second. `on_progress` is told
    how many answers of how many are compared.
    """
    paired = pair_runs(first, second, system, against)
    compared = compare_answers(paired, answers=answers, on_progress=on_progress)
    return describe_difference(paired, compared)


def pair_runs(
    first: AnyPath, second: AnyPath, system: str | None = None, against: str | None = None
) -> PairedRuns:
    """Return the runs at `first` and `second` with what `run_difference` compares.

    UsageError for names that a run does not have, and where no system can be paired.
    """
    one = FinishedRun.at(first)
    other = FinishedRun.at(second)
    systems = _system_pairs((one, other), system, against)
    same = []
    changed = []
    for key in one.queries:
        if key not in other.queries:
            continue
        if _question(one, key) == _question(other, key):
            same.append(key)
        else:
            changed.append(key)
    return PairedRuns(runs=(one, other), systems=systems, keys=same, changed=changed)


def describe_difference(
    paired: PairedRuns, compared: Sequence[ComparedAnswers]
) -> tuple[dict[str, Any], list[ResultTable]]:
    """Return what `run_difference` does."""
    one, other = paired.runs
    alike = set(paired.keys)
    differences = []
    lines = []
    for systems, scorer in product(paired.systems, paired.scorers):
        plain, line = _scores(paired.runs, systems, scorer, alike)
        differences.append(plain)
        if not _without_scores(plain):
            lines.append(line)
    answered = [answer_differences(*answers) for answers in compared]
    only_first = {}
    only_second = {}
    for kind in _KINDS:
        alone = _alone(getattr(one, kind), getattr(other, kind))
        only_first[kind], only_second[kind] = alone
    content = {
        "first": str(one.root),
        "second": str(other.root),
        "differences": differences,
        "only_first": only_first,
        "only_second": only_second,
        "changed_queries": [*paired.changed],
        "changed_scorers": paired.changed_scorers,
        "answers": answered,
    }
    title = f"{other.root.resolve().name} minus {one.root.resolve().name}"
    tables = []
    if lines:
        tables.append(ResultTable.of(title, _SCORES, lines))
    if answered:
        tables.append(_texts_table(answered))
    illustrated = []
    for row in answered:
        if row["images"]["n"] or row["images"]["unpaired"]:
            illustrated.append(row)
    if illustrated:
        tables.append(_images_table(illustrated))
    return content, tables


def _question(run: FinishedRun, key: str) -> Any:
    """Return what a query asks; None of a malformed row, which asks nothing."""
    return getattr(run.queries[key], "question", None)


def compare_answers(
    paired: PairedRuns,
    *,
    answers: int | None = None,
    further: Mapping[str, ImageDistance] = NO_DISTANCES,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[ComparedAnswers]:
    """Return the answers to at most `answers` queries beside each other.

    Images are measured by the `further` distances too.
    """
    one, other = paired.runs
    n = len(paired.keys) if answers is None else min(answers, len(paired.keys))
    # At even distances, and the same ones every time.
    keys = [paired.keys[i * len(paired.keys) // n] for i in range(n)]
    repeats = paired.repeats
    asked = [*product(range(1, repeats + 1), keys)]
    if not asked:
        return []
    total = len(paired.systems) * len(asked)
    found = []
    done = 0
    for names in paired.systems:
        first_name, second_name = names
        drafts = []
        for system in (one.systems[first_name], other.systems[second_name]):
            drafts.append(system.roles.get("draft"))
        splitter = splitter_of(drafts)
        ours = one.answers(first_name, keys, repeats)
        theirs = other.answers(second_name, keys, repeats)
        compared = []
        for (repeat, key), mine, yours in zip(asked, ours, theirs, strict=True):
            compared.append(answer_pair(key, repeat, (mine, yours), splitter, further))
            done += 1
            on_progress(done, total)
        found.append(ComparedAnswers(names, splitter.unit, compared))
    return found


_KINDS = ("systems", "scorers", "queries")
_NAMED = 5
"""Queries that a remark names."""
_SCORES = (
    "system",
    "scorer",
    "first",
    "second",
    "difference",
    TableColumn("95% interval", numeric=True),
    "n",
    TableColumn("scored in one run only", numeric=False),
)


def _alone(one: Collection[str], other: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the names that only the one has, and those that only the other has."""
    only_one = [name for name in one if name not in other]
    only_other = [name for name in other if name not in one]
    return only_one, only_other


def _system_pairs(
    runs: tuple[FinishedRun, FinishedRun], system: str | None, against: str | None
) -> list[tuple[str, str]]:
    one, other = runs
    if system is None:
        if against is not None:
            raise UsageError("--against names a system of the second run; add --system")
        shared = [name for name in one.systems if name in other.systems]
        if not shared:
            raise UsageError(
                f"the runs share no system: {one.root} has {', '.join(one.systems)}; "
                f"{other.root} has {', '.join(other.systems)}. "
                "Pair two by --system A --against B"
            )
        return [(name, name) for name in shared]
    pair = (system, against or system)
    for run, name in zip(runs, pair, strict=True):
        if name not in run.systems:
            raise unknown(f"system of {run.root}", name, run.systems)
    return [pair]


def _scores(
    runs: tuple[FinishedRun, FinishedRun],
    systems: tuple[str, str],
    scorer: str,
    same: set[str],
) -> tuple[dict[str, Any], list[str]]:
    """Return the scores of two systems by one scorer: plain data, and a line of a table."""
    first = runs[0].scores(systems[0], scorer)
    second = runs[1].scores(systems[1], scorer)
    keys = sorted(same & first.keys() & second.keys())
    only_first, only_second = _alone(first, second)
    ours = np.array([first[key] for key in keys])
    theirs = np.array([second[key] for key in keys])
    scale = runs[0].scorers[scorer].scale
    # The second run goes first, since the first run is what is subtracted.
    means = PairedMeans.of(theirs, ours, scale)
    gap = means.difference
    content = {
        "scorer": scorer,
        "systems": list(systems),
        "first": means.second.as_json("mean"),
        "second": means.first.as_json("mean"),
        "difference": gap.as_json("mean"),
        "n": gap.n,
        "only_first": sorted(only_first),
        "only_second": sorted(only_second),
    }
    form = NumberForm.of(scale)
    signed = NumberForm.of(scale, signed=True)
    line = [
        _name(systems),
        scorer,
        form.number(means.second.value),
        form.number(means.first.value),
        signed.number(gap.value),
        signed.interval(gap.ci95) or gap.reason or "-",
        f"{gap.n:,}",
        _one_sided(len(only_first), len(only_second)),
    ]
    return content, line


def _without_scores(difference: Mapping[str, Any]) -> bool:
    return not any(difference[name] for name in ("n", "only_first", "only_second"))


def _name(systems: Iterable[str]) -> str:
    """`A`, or `A -> B` where the runs' systems have different names."""
    return " -> ".join(dict.fromkeys(systems))


def _one_sided(first: int, second: int) -> str:
    return f"{first:,} first, {second:,} second" if first or second else "-"


ImageDifference = Mapping[str, Any]
"""Of two images of which a pixel differs: whether they have the `same_size`, `MEASURES`."""
MEASURES = {
    "mean_difference": ("mean difference", "{mean:.3g}, max {max:.3g}"),
    "largest_difference": ("largest", "{max:.0f}"),
    "psnr": ("PSNR, dB", "{mean:.1f}, min {min:.1f}"),
    "ssim": ("SSIM", "{mean:.6f}, min {min:.6f}"),
    "lpips": ("LPIPS", "{mean:.3g}, max {max:.3g}"),
}
"""What is measured, None where it cannot be: heading, and what a table shows of all images.
Differences of channels of pixels are from 0 to 255; SSIM is that of Wang et al. (2004),
LPIPS that of Zhang et al. (2018) by AlexNet."""
_SSIM_SIDE = 11
_LPIPS_SIDE = 64
"""The sides in pixels that an image needs: of SSIM's Gaussian window, and of an image that
does not vanish in AlexNet's last layers."""


_ALEXNET = "alexnet-owt-7be5be79.pth"
"""The file of torchvision's `AlexNet_Weights.DEFAULT`."""
_OF_LPIPS = ("torch", "torchvision", "torchmetrics")


def image_difference(
    one: Image, other: Image, further: Mapping[str, ImageDistance] = NO_DISTANCES
) -> ImageDifference | None:
    """Compare the decoded images, 8-bit RGB; None where all pixels are equal.

    By `MEASURES` and by `further` ones. ImageError where an image cannot be decoded,
    DamagedPart where it cannot be read.
    """
    if one.digest == other.digest:
        return None
    first = np.asarray(decode(read_blob(one)))
    second = np.asarray(decode(read_blob(other)))
    if first.shape != second.shape:
        # Nothing can be measured: every measure is None.
        return {"same_size": False, **dict.fromkeys([*MEASURES, *further])}
    return None if np.array_equal(first, second) else _measure(first, second, further)


def _measure(
    one: Pixels, other: Pixels, further: Mapping[str, ImageDistance]
) -> ImageDifference:
    from skimage.metrics import peak_signal_noise_ratio, structural_similarity

    # Signed, since differences of bytes below 0 would wrap around.
    apart = np.abs(one.astype(np.int16) - other)
    side = min(one.shape[:2])
    # The settings of Wang et al. (2004), which are not scikit-image's defaults.
    wang = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    network, _ = lpips()
    ssim = None
    distance = None
    if side >= _SSIM_SIDE:
        ssim = float(structural_similarity(one, other, channel_axis=-1, **wang))
    if network is not None and side >= _LPIPS_SIDE:
        distance = network(one, other)
    measured = {
        "same_size": True,
        "mean_difference": float(apart.mean()),
        "largest_difference": float(apart.max()),
        "psnr": float(peak_signal_noise_ratio(one, other)),
        "ssim": ssim,
        "lpips": distance,
    }
    for name, measure in further.items():
        measured[name] = measure(one, other)
    return measured


def lpips() -> tuple[Callable[[Pixels, Pixels], float] | None, str]:
    """Return LPIPS by torchmetrics, None without AlexNet's weights; and a remark.

    torchmetrics brings the linear layers; the network below them is torchvision's. It would
    be downloaded, or left with random weights, so it must be there.
    """
    path = _torch_hub() / "checkpoints" / _ALEXNET
    if not path.exists():
        return None, f"without LPIPS: torchvision's weights of AlexNet are not at {path}"
    if absent := _absent_packages():
        return None, f"without LPIPS: it needs {' and '.join(absent)}"
    return _lpips_of_alexnet(), "LPIPS by AlexNet"


def _absent_packages() -> list[str]:
    """Return the packages of a network's distance that are not installed."""
    return [name for name in _OF_LPIPS if not is_installed(name)]


_VGG = "vgg16-397923af.pth"
"""The file of torchvision's `VGG16_Weights.DEFAULT`, on which DISTS is built."""


def dists() -> tuple[ImageDistance | None, str]:
    """Return DISTS (Ding et al. 2020), None without VGG16's weights; and a remark.

    It is that of the scorer `dists`, whose settings say to which size images are brought.
    """
    path = _torch_hub() / "checkpoints" / _VGG
    if not path.exists():
        return None, f"without DISTS: torchvision's weights of VGG16 are not at {path}"
    if absent := _absent_packages():
        return None, f"without DISTS: it needs {' and '.join(absent)}"
    from PIL import Image as Pillow

    from plait.scorers.perceptual import Dists

    network = Dists(model=str(path), device="cpu")

    def distance(one: Pixels, other: Pixels) -> float | None:
        if min(one.shape[:2]) < _LPIPS_SIDE:
            return None
        return network.compare(Pillow.fromarray(one), Pillow.fromarray(other))

    return distance, "DISTS by VGG16"


@cache
def _lpips_of_alexnet() -> Callable[[Pixels, Pixels], float]:
    import torch
    from torchmetrics.image.lpip import LearnedPerceptualImagePatchSimilarity

    network = LearnedPerceptualImagePatchSimilarity(net_type="alex", normalize=True)

    def batch_of(image: Pixels) -> torch.Tensor:
        """Return (1, 3, height, width) values from 0 to 1."""
        return torch.tensor(image.transpose(2, 0, 1)[None]) / 255

    def distance(one: Pixels, other: Pixels) -> float:
        with torch.inference_mode():
            return float(network(batch_of(one), batch_of(other)))

    return distance


def _torch_hub() -> Path:
    """Return the folder of `torch.hub.get_dir`, without the import of torch."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("TORCH_HOME", os.path.join(cache, "torch"))
    return Path(home).expanduser() / "hub"


class Splitter(NamedTuple):
    """Splits a text into what positions are counted in."""

    unit: str
    split: Callable[[str], Sequence[object]]

    def first_difference(self, one: str, other: str) -> int | None:
        """Count the units that both texts begin with; None where they are equal."""
        if one == other:
            return None
        common = 0
        # A text may be the beginning of the other, and then ends here.
        for mine, yours in zip(self.split(one), self.split(other), strict=False):
            if mine != yours:
                break
            common += 1
        return common


WORDS = Splitter("words", re.compile(r"\s*\S+|\s+").findall)
"""Each word with the white space before it."""


def splitter_of(stages: Iterable[StageSpec | None]) -> Splitter:
    """Return tokens of the first of the LVLMs whose tokenizer is on this machine.

    Words where none is: behind a server, with random weights, in another layout than
    `tokenizer.json`, or without the library. Nothing is downloaded. CheckpointError where
    the file is broken.
    """
    paths = [path for path in map(_tokenizer_file, stages) if path is not None]
    if not paths or not is_installed("tokenizers"):
        return WORDS
    from plait.generators.loading.files import read_tokenizer

    tokenizer = read_tokenizer(paths[0])

    def token_ids(text: str) -> Sequence[object]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    return Splitter("tokens", token_ids)


def _tokenizer_file(spec: StageSpec | None) -> Path | None:
    """Return the `tokenizer.json` of a stage's model; None where it is not here."""
    if spec is None or spec.weights in (None, *RANDOM):
        return None
    model = spec.options.get("model")
    if not isinstance(model, str):
        return None
    if looks_like_path(model):
        path = Path(model).expanduser() / "tokenizer.json"
        return path if path.is_file() else None
    from huggingface_hub import try_to_load_from_cache

    revision = spec.options.get("revision")
    cached = try_to_load_from_cache(model, "tokenizer.json", revision=revision)
    return Path(cached) if isinstance(cached, str) else None


class AnswerPair(NamedTuple):
    """The answers of two systems to one query."""

    query: str
    repeat: int
    """Counted from 1."""
    outcomes: Sequence[str]
    """Each `done`, `failed`, `skipped` or `missing`; the rest is of two that are done."""
    has_text: bool = False
    """In either answer."""
    first_difference: int | None = None
    """Tokens or words before the texts differ; None where they are equal."""
    images: tuple[ImageDifference | None, ...] = ()
    """Of the images that both answers have, in order; None where all pixels are equal."""
    unpaired_images: int = 0
    """That only one of the answers has."""
    same_order: bool = True
    """Text and images follow each other alike."""

    @property
    def equal(self) -> bool:
        """True where nothing differs, outcomes included."""
        same_outcome = self.outcomes[0] == self.outcomes[1]
        same_text = self.first_difference is None
        same_images = not any(self.images) and not self.unpaired_images
        return same_outcome and same_text and same_images and self.same_order


def answer_pair(
    query: str,
    repeat: int,
    answers: tuple[Answer, Answer],
    splitter: Splitter,
    further: Mapping[str, ImageDistance] = NO_DISTANCES,
) -> AnswerPair:
    """Compare two answers to one query; raises what `image_difference` raises."""
    one, other = answers
    outcomes = []
    for answer in answers:
        outcomes.append("missing" if answer is None else outcome_name(answer))
    if not isinstance(one, Result) or not isinstance(other, Result):
        return AnswerPair(query, repeat, outcomes)
    ours = one.value
    theirs = other.value
    images = []
    try:
        # Images that only one answer has are counted below.
        for mine, yours in zip(ours.images, theirs.images, strict=False):
            images.append(image_difference(mine, yours, further))
    except ImageError as error:
        raise ImageError(f"an answer to {query} holds a broken image: {error}") from error
    our_kinds = [type(segment) for segment in ours.segments]
    their_kinds = [type(segment) for segment in theirs.segments]
    return AnswerPair(
        query,
        repeat,
        outcomes,
        has_text=Text in our_kinds or Text in their_kinds,
        first_difference=splitter.first_difference(ours.text, theirs.text),
        images=tuple(images),
        unpaired_images=abs(len(ours.images) - len(theirs.images)),
        same_order=our_kinds == their_kinds,
    )


def answer_differences(
    systems: tuple[str, str], unit: str, pairs: Sequence[AnswerPair]
) -> dict[str, Any]:
    """Return counts of all answers of two systems, and the pairs that differ.

    Also those that one run alone has answered. Positions in texts are in `unit`.
    """
    done = Counter[tuple[bool, bool]]()
    equal = 0
    other_order = 0
    differing = []
    for pair in pairs:
        one, other = pair.outcomes
        done[one == "done", other == "done"] += 1
        # Two answers that failed alike do not differ, but are no equal answers either.
        equal += pair.equal and one == "done"
        other_order += not pair.same_order
        if not pair.equal:
            differing.append(pair._asdict())
    return {
        "systems": list(systems),
        "compared": done[True, True],
        "equal": equal,
        "only_first": done[True, False],
        "only_second": done[False, True],
        "other_order": other_order,
        "texts": _text_differences(pairs, unit),
        "images": _image_differences(pairs),
        "differing": differing,
    }


def _text_differences(pairs: Sequence[AnswerPair], unit: str) -> dict[str, Any]:
    """Count the pairs with a text, and tell where in `unit` those that differ part."""
    texts = 0
    positions = []
    for pair in pairs:
        texts += pair.has_text
        if pair.first_difference is not None:
            positions.append(pair.first_difference)
    return {
        "n": texts,
        "equal": texts - len(positions),
        "unit": unit,
        "first_difference": _spread(positions),
    }


def _image_differences(pairs: Sequence[AnswerPair]) -> dict[str, Any]:
    """Count the images of all pairs, and sum up each measure of those that differ."""
    n = 0
    unpaired = 0
    other_size = 0
    differing: list[ImageDifference] = []
    for pair in pairs:
        n += len(pair.images)
        unpaired += pair.unpaired_images
        for image in pair.images:
            if image is not None:
                differing.append(image)
                other_size += not image["same_size"]
    counts = {
        "n": n,
        "identical": n - len(differing),
        "other_size": other_size,
        "unpaired": unpaired,
    }
    spreads = {}
    for name in MEASURES:
        spreads[name] = _spread(image[name] for image in differing)
    return counts | spreads


def _spread(values: Iterable[float | None]) -> dict[str, float] | None:
    """Return count, mean, median and ends of the values there are; None without any."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return None
    return {
        "n": len(numbers),
        "mean": float(np.mean(numbers)),
        "median": float(np.median(numbers)),
        "min": float(np.min(numbers)),
        "max": float(np.max(numbers)),
    }


def _texts_table(rows: Sequence[Mapping[str, Any]]) -> ResultTable:
    head = ["system", "answers", "equal", "texts", "equal texts", "first difference after"]
    lines = []
    notes = []
    for row in rows:
        texts = row["texts"]
        position = "-"
        if texts["first_difference"]:
            form = "{median:,.0f} [{min:,.0f}, {max:,.0f}] " + texts["unit"]
            position = form.format(**texts["first_difference"])
            notes = ["First difference: median and range, over texts that differ."]
        line = [
            _name(row["systems"]),
            f"{row['compared']:,}",
            f"{row['equal']:,}",
            f"{texts['n']:,}",
            f"{texts['equal']:,}",
            position,
            _one_sided(row["only_first"], row["only_second"]),
        ]
        lines.append(line)
    return ResultTable.of("Texts", [*head, "answered in one run only"], lines, notes)


def _images_table(rows: Sequence[Mapping[str, Any]]) -> ResultTable:
    # A measure that no two images have, as LPIPS without its weights, has no column.
    names = []
    head = ["system", "images", "identical", "other size", "in one answer only"]
    for name, (heading, _) in MEASURES.items():
        if any(row["images"][name] for row in rows):
            names.append(name)
            head.append(heading)
    lines = []
    for row in rows:
        counts = row["images"]
        line = [_name(row["systems"])]
        for name in ("n", "identical", "other_size", "unpaired"):
            line.append(f"{counts[name]:,}")
        for name in names:
            _, form = MEASURES[name]
            spread = counts[name]
            line.append(form.format(**spread) if spread else "-")
        lines.append(line)
    _, remark = lpips()
    notes = [f"Means, and the worst, of images that differ; {remark}."] if names else []
    return ResultTable.of("Images", head, lines, notes)


def remarks(content: Mapping[str, Any]) -> Iterator[str]:
    """Name what differs and what one run alone has; `--out` holds all names."""
    if not content["differences"]:
        yield "no scores are compared: the runs share no scorer; `plait score` adds one"
    for scorer, changes in content["changed_scorers"].items():
        yield (
            f"{scorer} judges differently in the two runs, so that its scores are not "
            f"comparable: {'; '.join(changes)}"
        )
    without_scores: dict[str, list[str]] = {}
    for row in content["differences"]:
        if _without_scores(row):
            without_scores.setdefault(row["scorer"], []).append(_name(row["systems"]))
    for scorer, names in without_scores.items():
        yield f"no score by {scorer} in either run: {', '.join(names)}"
    for row in content["answers"]:
        # Each once, though it may differ in several repeats.
        names = list(dict.fromkeys(pair["query"] for pair in row["differing"]))
        if names:
            yield f"{_name(row['systems'])}: answers differ in {_some('queries', names)}"
    for what in _KINDS:
        for place in ("first", "second"):
            if names := content[f"only_{place}"][what]:
                yield f"only in the {place} run: {_some(what, names)}"
    if changed := content["changed_queries"]:
        shown = _some("queries", changed)
        yield f"left out, since their question differs in the other run: {shown}"


def _some(what: str, names: Sequence[str]) -> str:
    rest = f", ... ({len(names):,} in all)" if len(names) > _NAMED else ""
    return f"{what} {', '.join(names[:_NAMED])}{rest}"
