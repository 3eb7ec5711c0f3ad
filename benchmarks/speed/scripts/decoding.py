"""How fast plait's language-model stage decodes, beside `generate` and a real server.

    python -m benchmarks.speed.scripts.decoding
    python -m benchmarks.speed.scripts.decoding --model FOLDER --base-url http://127.0.0.1:8000/v1

A Qwen2-VL of 24 million random parameters answers requests with images, greedily and in
float32; `--model` names another checkpoint, or an empty folder in which the random one is
made. For a server: make the folder, serve it with as many threads as torch has, as
`OMP_NUM_THREADS=2 vllm serve FOLDER --served-model-name model --dtype float32
--max-model-len 4096`, and name its URL. The variants take turns, round by round, and every
round has requests of its own, so that nothing is remembered from an earlier one; the
first round warms up.
"""

from __future__ import annotations

import copy
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image as Pillow

from benchmarks.results.table import ResultTable
from benchmarks.speed.device import device_name
from benchmarks.speed.rounds import Variant
from benchmarks.speed.scripts.common import Script
from cluster.loading import load_stage
from cluster.manifest import environment
from generators.base import Result, StageSpec
from generators.document import Image, Request, Text, Turn
from generators.errors import UsageError
from generators.pictures import encode
from pipelines.systems import Models, writer_spec
from pipelines.vlm.random_weights import WORDS, tiny
from pipelines.vlm.stage import VisionLanguageModel

TEXT_SIZE = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6}
TEXT_SIZE |= {"num_attention_heads": 8, "num_key_value_heads": 2}
VISION_SIZE = {"depth": 6, "embed_dim": 256, "num_heads": 4, "mlp_ratio": 4}
VISION_SIZE |= {"hidden_size": TEXT_SIZE["hidden_size"]}
SERVER = "server"
Answered = tuple[float, list[str | None]]
INSTRUCTION = "Answer the question with text and images in turn. " * 4
HEAD = ["variant", "tokens/s", "lowest", "highest", "x first", "x server", "same", "failed"]


def save_model(folder: Path) -> None:
    """Save a random Qwen2-VL in the published layout with its processor."""
    small, processor = tiny("Qwen/Qwen2-VL-7B-Instruct")
    config = copy.deepcopy(small.config)
    vars(config.vision_config).update(VISION_SIZE)
    text = config.text_config
    vars(text).update(
        TEXT_SIZE, layer_types=["full_attention"] * TEXT_SIZE["num_hidden_layers"]
    )
    # With less, texts repeat a word; with more, rounding changes them.
    text.initializer_range = 0.15
    text.rope_parameters["mrope_section"] = [8, 12, 12]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = type(small)(config)
        # As in the tiny model, only words and the end have a score.
        model.lm_head.weight[small.lm_head.weight.abs().sum(dim=1) == 0] = 0.0
    processor.image_processor.size = {"shortest_edge": 784, "longest_edge": 224 * 224}
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def requests_of(count: int, seed: int) -> list[Request]:
    """Make requests of one instruction, one or two images, and a question.

    Another seed gives other images and questions. Every third request has an image of
    another one too.
    """
    source = random.Random(seed)
    images = [_noise(source) for _ in range(count)]
    requests = []
    for i, image in enumerate(images):
        words = " ".join(source.choice(WORDS) for _ in range(source.randint(15, 90)))
        others = [] if i % 3 else [images[i * 7 % count]]
        content: tuple[Text | Image, ...] = (Text(INSTRUCTION), image, *others, Text(words))
        requests.append(Request((Turn("user", content),)))
    return requests


def _noise(source: random.Random) -> Image:
    shape = (source.choice((120, 224, 260)), source.choice((150, 224, 300)), 3)
    pixels = np.random.default_rng(source.getrandbits(32)).integers(0, 255, shape, np.uint8)
    return encode(Pillow.fromarray(pixels))


class GenerateStage(VisionLanguageModel):
    """The same stage as transformers runs it: `generate`, padded on the left."""

    streams = False


def variants_of(folder: Path, tokens: int, requests: int, server: Any) -> list[Variant]:
    """Load all variants, each with a model of its own: a stage remembers images.

    `generate`, whose answers are the others' measure, comes first; `server` is the stage
    that asks a server, or None.
    """
    own = {"dtype": "float32", "num_gpus": 0, "max_new_tokens": tokens}
    spec = spec_of(f"hf:{folder}", own)
    few, *more = sorted({min(size, requests) for size in (16, 64)})
    generate = GenerateStage(**spec.settings, **spec.options)
    made = [Variant(f"generate, batch {few}", generate, few)]
    made += [Variant(f"streams, batch {n}", load_stage(spec), n) for n in (few, *more)]
    return made + ([Variant(SERVER, server, requests)] if server else [])


def spec_of(name: str, settings: Mapping[str, Any]) -> StageSpec:
    """Return the stage of a checkpoint or a server."""
    return writer_spec(name, Models(weights="pretrained", overrides={name: settings}))


def answered(variant: Variant, requests: Sequence[Request]) -> Answered:
    """Answer requests; return tokens per second, and the texts, None for failures."""
    began = time.perf_counter()
    outcomes = [o for batch in variant.batches(requests) for o in variant.compute(batch)]
    seconds = time.perf_counter() - began
    tokens = sum(getattr(o, "usage", {}).get("output_tokens", 0.0) for o in outcomes)
    texts = [o.value.text if isinstance(o, Result) else None for o in outcomes]
    return tokens / seconds, texts


def table_of(names: Sequence[str], rounds: list[list[Answered]], title: str) -> ResultTable:
    """Set the variants side by side; `rounds` has the answers of each in its order."""
    rates = [[each[i][0] for each in rounds] for i in range(len(names))]
    server = rates[names.index(SERVER)] if SERVER in names else None
    cells = []
    for i, (name, own) in enumerate(zip(names, rates, strict=True)):
        texts = [p for each in rounds for p in zip(each[i][1], each[0][1], strict=True)]
        same = sum(text is not None and text == first for text, first in texts)
        ratios = [_ratio(own, rates[0]), _ratio(own, server) if server else "-"]
        numbers = [f"{value:.0f}" for value in (median(own), min(own), max(own))]
        failed = sum(text is None for text, _ in texts)
        cells.append([name, *numbers, *ratios, f"{same}/{len(texts)}", str(failed)])
    notes = ["Medians of rounds in turns; ratios are medians of the rounds' ratios."]
    return ResultTable.of(title, HEAD, cells, notes)


def _ratio(rates: Sequence[float], others: Sequence[float]) -> str:
    return f"{median(a / b for a, b in zip(rates, others, strict=True)):.2f}"


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print the table and write files; return 1 where an answer failed."""
    script = Script(__doc__, "decoding", words)
    for name, default in (("requests", 64), ("tokens", 128), ("rounds", 5)):
        script.parser.add_argument(f"--{name}", type=int, default=default)
    script.parser.add_argument("--model", type=Path, help="folder of a checkpoint")
    script.parser.add_argument("--base-url", help="of a server that serves --model")
    options = script.options()
    asked, server = options.requests, None
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.model or Path(temporary)).resolve()
        if not (folder / "config.json").exists():
            if options.base_url or (folder.exists() and any(folder.iterdir())):
                raise UsageError(f"--model {str(options.model)!r} holds no config.json")
            save_model(folder)
        if options.base_url:
            running = {"base_url": options.base_url, "concurrency": asked}
            running |= {"max_tokens": options.tokens, "temperature": 0.0}
            server = load_stage(spec_of("openai:model", running))
        variants = variants_of(folder, options.tokens, asked, server)
        rounds = [
            [answered(variant, requests_of(asked, seed)) for variant in variants]
            for seed in range(1 + options.rounds)
        ][1:]
    title = f"{asked} requests with images, {options.tokens} tokens at most, greedy, fp32"
    table = table_of([variant.name for variant in variants], rounds, title)
    script.report("Decoding", table, environment() | {"device": device_name()})
    return int(any(None in texts for each in rounds for _, texts in each))


if __name__ == "__main__":
    sys.exit(main())
