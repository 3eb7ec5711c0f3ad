"""Differences of two systems' answers to the same queries, in their text and images.

Texts are compared token by token, images pixel by pixel. Images are paired in the order in
which they stand in the answers; pixels are those of the decoded image, 8-bit RGB.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.results.table import ResultTable
from cluster.store import read_blob
from cluster.walks import Pending
from generators.base import RANDOM, Outcome, Result, StageSpec, outcome_name
from generators.checkpoints import looks_like_path
from generators.document import Document, Image, Text
from generators.pictures import PictureError, decode

Pixels = npt.NDArray[np.uint8]
"""(height, width, 3)"""
Answer = Outcome[Document] | Pending
Lpips = Callable[[Pixels, Pixels], float]
_SSIM_SIDE = 11
"""The side of SSIM's Gaussian window in pixels: the least that an image can have."""
_LPIPS_SIDE = 64
"""Smaller images vanish in AlexNet's last layers and have no LPIPS distance."""


@dataclass(frozen=True, slots=True)
class Splitter:
    """Splits a text into what positions are counted in."""

    unit: str
    split: Callable[[str], Sequence[object]]

    def first_difference(self, one: str, other: str) -> int | None:
        """Count the units that both texts begin with; None where they are equal."""
        if one == other:
            return None
        first, second = self.split(one), self.split(other)
        pairs = enumerate(zip(first, second, strict=False))
        shorter = min(len(first), len(second))
        return next((i for i, (a, b) in pairs if a != b), shorter)


WORDS = Splitter("words", re.compile(r"\s*\S+|\s+").findall)
"""Each word with the white space before it."""


def splitter_of(stages: Iterable[StageSpec | None]) -> Splitter:
    """Tokens of the first of the LVLMs `stages` whose tokenizer is on this machine.

    Words where none is: behind a server, with random weights, or in another layout than
    `tokenizer.json`. Nothing is downloaded. CheckpointError where the file is broken.
    """
    files = (None if spec is None else _tokenizer_file(spec) for spec in stages)
    path = next(filter(None, files), None)
    return WORDS if path is None else Splitter("tokens", _tokens_by(path))


def _tokens_by(path: Path) -> Callable[[str], Sequence[object]]:
    from generators.loading.files import read_tokenizer

    tokenizer = read_tokenizer(path)

    def tokens(text: str) -> Sequence[object]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return tokens


def _tokenizer_file(spec: StageSpec) -> Path | None:
    model = spec.options.get("model")
    if not isinstance(model, str) or spec.weights is None or spec.weights in RANDOM:
        return None
    if looks_like_path(model):
        path = Path(model).expanduser() / "tokenizer.json"
        return path if path.is_file() else None
    from huggingface_hub import try_to_load_from_cache

    revision = spec.options.get("revision")
    cached = try_to_load_from_cache(model, "tokenizer.json", revision=revision)
    return Path(cached) if isinstance(cached, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDifference:
    """Two images of which a pixel differs; None for what cannot be measured."""

    same_size: bool
    mean_difference: float | None = None
    """Mean absolute difference over pixels and channels, 0 to 255."""
    largest_difference: float | None = None
    """Of one channel of one pixel, 0 to 255."""
    psnr: float | None = None
    """Peak signal-to-noise ratio in dB."""
    ssim: float | None = None
    """Structural similarity (Wang et al. 2004), -1 to 1."""
    lpips: float | None = None
    """Learned perceptual distance (Zhang et al. 2018) by AlexNet."""


class ImageMeter:
    """Compares images, by LPIPS too where its weights are on this machine."""

    def __init__(self) -> None:
        self._lpips: Lpips | None = None
        self.note = ""
        """With or without LPIPS, and why; empty until images of one size differ."""

    def __call__(self, one: Image, other: Image) -> ImageDifference | None:
        """The difference; None where all pixels are equal.

        PictureError where an image cannot be decoded, DamagedPart where it cannot be read.
        """
        if one.digest == other.digest:
            return None
        first, second = (np.asarray(decode(read_blob(image))) for image in (one, other))
        if first.shape != second.shape:
            return ImageDifference(same_size=False)
        return None if np.array_equal(first, second) else self._measured(first, second)

    def _measured(self, one: Pixels, other: Pixels) -> ImageDifference:
        from skimage.metrics import peak_signal_noise_ratio, structural_similarity

        if not self.note:
            self._lpips, self.note = lpips()
        apart = np.abs(one.astype(np.int16) - other)
        side, ssim, distance = min(one.shape[:2]), None, None
        if side >= _SSIM_SIDE:
            wang = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
            ssim = float(structural_similarity(one, other, channel_axis=-1, **wang))
        if self._lpips is not None and side >= _LPIPS_SIDE:
            distance = self._lpips(one, other)
        return ImageDifference(
            same_size=True,
            mean_difference=float(apart.mean()),
            largest_difference=float(apart.max()),
            psnr=float(peak_signal_noise_ratio(one, other)),
            ssim=ssim,
            lpips=distance,
        )


def lpips() -> tuple[Lpips | None, str]:
    """LPIPS by torchmetrics, or None where AlexNet's weights are not here; a remark.

    torchmetrics brings the linear layers; the network below them is torchvision's. It would
    be downloaded, or left with random weights, so it must be there.
    """
    import torch
    from torchvision.models import AlexNet_Weights

    file = str(AlexNet_Weights.DEFAULT.url).rpartition("/")[2]
    path = Path(torch.hub.get_dir()) / "checkpoints" / file
    if not path.exists():
        return None, f"without LPIPS: torchvision's weights of AlexNet are not at {path}"
    from torchmetrics.image.lpip import LearnedPerceptualImagePatchSimilarity

    network = LearnedPerceptualImagePatchSimilarity(net_type="alex", normalize=True)

    def distance(one: Pixels, other: Pixels) -> float:
        inputs = (torch.tensor(p.transpose(2, 0, 1)[None]) / 255 for p in (one, other))
        with torch.inference_mode():
            return float(network(*inputs))

    return distance, "LPIPS by AlexNet"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPair:
    """The answers of two systems to one query."""

    query: str
    repeat: int
    """Counted from 1."""
    outcomes: tuple[str, str]
    """`done`, `failed`, `skipped` or `missing`; where both are not done, all else is
    empty."""
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
    def compared(self) -> bool:
        """True where both are answers."""
        return self.outcomes == ("done", "done")

    @property
    def equal(self) -> bool:
        """True where nothing differs, outcomes included."""
        images = any(self.images) or self.unpaired_images or not self.same_order
        same = self.outcomes[0] == self.outcomes[1]
        return same and self.first_difference is None and not images


def answer_pair(
    query: str,
    repeat: int,
    answers: tuple[Answer, Answer],
    splitter: Splitter,
    meter: ImageMeter,
) -> AnswerPair:
    """Compare two answers to one query; raises what `meter` raises."""
    one, other = answers
    outcomes = _outcome(one), _outcome(other)
    if not isinstance(one, Result) or not isinstance(other, Result):
        return AnswerPair(query=query, repeat=repeat, outcomes=outcomes)
    ours, theirs = one.value, other.value
    try:
        images = tuple(map(meter, ours.images, theirs.images))
    except PictureError as error:
        raise PictureError(f"an answer to {query} holds a broken image: {error}") from error
    return AnswerPair(
        query=query,
        repeat=repeat,
        outcomes=outcomes,
        has_text=any(isinstance(s, Text) for s in (*ours.segments, *theirs.segments)),
        first_difference=splitter.first_difference(ours.text, theirs.text),
        images=images,
        unpaired_images=abs(len(ours.images) - len(theirs.images)),
        same_order=[*map(type, ours.segments)] == [*map(type, theirs.segments)],
    )


def _outcome(answer: Answer) -> str:
    return "missing" if isinstance(answer, Pending) else outcome_name(answer)


MEASURES = {
    "mean_difference": ("mean difference", "{mean:.3g}, max {max:.3g}"),
    "largest_difference": ("largest", "{max:.0f}"),
    "psnr": ("PSNR, dB", "{mean:.1f}, min {min:.1f}"),
    "ssim": ("SSIM", "{mean:.6f}, min {min:.6f}"),
    "lpips": ("LPIPS", "{mean:.3g}, max {max:.3g}"),
}
"""Fields of `ImageDifference`: heading, and what a table shows of all images."""


@dataclass(frozen=True, kw_only=True)
class AnswerDifferences:
    """All answers of a system of one run compared with those of one of another run."""

    systems: tuple[str, str]
    counts: Mapping[str, Any]
    """As plain data, without the pairs themselves."""
    differing: Sequence[AnswerPair]
    """The pairs that are not equal, also those that one run alone has answered."""

    @classmethod
    def of(
        cls, systems: tuple[str, str], unit: str, pairs: Iterable[AnswerPair]
    ) -> "AnswerDifferences":
        """Count `pairs`, whose positions in texts are in `unit`."""
        totals: Counter[str] = Counter()
        differing: list[AnswerPair] = []
        for pair in pairs:
            totals["answers"] += pair.compared
            totals["texts"] += pair.has_text
            totals["images"] += len(pair.images)
            differing += [] if pair.equal else [pair]
        counts = _counts(totals, unit, differing)
        return cls(systems=systems, counts=counts, differing=differing)

    @property
    def name(self) -> str:
        """`A`, or `A -> B` where the runs' systems have different names."""
        return " -> ".join(dict.fromkeys(self.systems))

    def as_json(self) -> dict[str, Any]:
        """As plain data; `differing` names every pair that is not equal."""
        pairs = [asdict(pair) for pair in self.differing]
        return {"systems": list(self.systems), **self.counts, "differing": pairs}


def _counts(
    totals: Mapping[str, int], unit: str, differing: Sequence[AnswerPair]
) -> dict[str, Any]:
    positions = [p.first_difference for p in differing if p.first_difference is not None]
    images = [image for pair in differing for image in pair.images if image is not None]
    measured = {name: [getattr(image, name) for image in images] for name in MEASURES}
    done = [[outcome == "done" for outcome in pair.outcomes] for pair in differing]
    return {
        "compared": totals["answers"],
        "equal": totals["answers"] - sum(pair.compared for pair in differing),
        "only_first": sum(one and not other for one, other in done),
        "only_second": sum(other and not one for one, other in done),
        "other_order": sum(not pair.same_order for pair in differing),
        "texts": {
            "n": totals["texts"],
            "equal": totals["texts"] - len(positions),
            "unit": unit,
            "first_difference": _spread(positions),
        },
        "images": {
            "n": totals["images"],
            "identical": totals["images"] - len(images),
            "other_size": sum(not image.same_size for image in images),
            "unpaired": sum(pair.unpaired_images for pair in differing),
            **{name: _spread(values) for name, values in measured.items()},
        },
    }


def _spread(values: Iterable[float | None]) -> dict[str, float] | None:
    """None where nothing is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {
        "n": len(known),
        "mean": float(np.mean(known)),
        "median": float(np.median(known)),
        "min": float(min(known)),
        "max": float(max(known)),
    }


def tables(rows: Sequence[AnswerDifferences], note: str) -> Iterator[ResultTable]:
    """Texts, and images where there are any, with a `note` on how those are measured."""
    head = ["system", "answers", "equal", "texts", "equal texts", "first difference after"]
    differ = any(row.counts["texts"]["first_difference"] for row in rows)
    if rows:
        yield ResultTable.of(
            "Texts",
            [*head, "answered in one run only"],
            [_texts_line(row.name, row.counts) for row in rows],
            ["First difference: median and range, over texts that differ."] * differ,
        )
    drawn = [r for r in rows if any(r.counts["images"][n] for n in ("n", "unpaired"))]
    names = [name for name in MEASURES if any(r.counts["images"][name] for r in drawn)]
    head = ["system", "images", "identical", "other size", "in one answer only"]
    if drawn:
        yield ResultTable.of(
            "Images",
            [*head, *(MEASURES[name][0] for name in names)],
            [_images_line(row.name, row.counts["images"], names) for row in drawn],
            [f"Means, and the worst, of images that differ; {note}."] if names else [],
        )


def _texts_line(name: str, counts: Mapping[str, Any]) -> list[str]:
    texts, alone = counts["texts"], (counts["only_first"], counts["only_second"])
    numbers = (counts["compared"], counts["equal"], texts["n"], texts["equal"])
    form = "{median:,.0f} [{min:,.0f}, {max:,.0f}] " + texts["unit"]
    at = form.format(**texts["first_difference"]) if texts["first_difference"] else "-"
    one_sided = f"{alone[0]:,} first, {alone[1]:,} second" if any(alone) else "-"
    return [name, *(f"{number:,}" for number in numbers), at, one_sided]


def _images_line(name: str, counts: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    numbers = (counts[n] for n in ("n", "identical", "other_size", "unpaired"))
    found = ((MEASURES[n][1], counts[n]) for n in names)
    cells = (form.format(**spread) if spread else "-" for form, spread in found)
    return [name, *(f"{number:,}" for number in numbers), *cells]
