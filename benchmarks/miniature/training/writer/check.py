"""How often the mini writer answers held-out queries exactly, by the stage's own code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import Qwen2VLForConditionalGeneration, Qwen2VLProcessor

from benchmarks.miniature.training.writer.data import asked, written
from benchmarks.tasks.miniature.queries import Category, MiniatureQuery, query
from benchmarks.tasks.miniature.samples import sample_of
from pipelines.chat.settings import ChatSettings
from pipelines.vlm.decoding import Sampling, complete, plain_generation
from pipelines.vlm.prompts import ChatPrompt, ChatPromptWriter

TASKS: tuple[tuple[Category, str], ...] = (
    ("SA", "mmie"),
    ("PBL", "mmie"),
    ("MSR", "mmie"),
    ("SA", "outline"),
    ("PBL", "outline"),
)
_LONGEST = 160
_BATCH = 32
_HELD_OUT_SEED = 7


@dataclass(frozen=True, slots=True)
class WriterAnswer:
    """An answer beside the right one."""

    query: MiniatureQuery
    given: str
    right: str

    @property
    def is_right(self) -> bool:
        """Whether it is the right answer to the letter."""
        return self.given == self.right


def held_out(category: Category, n: int) -> list[MiniatureQuery]:
    """The first `n` queries of a category over scenes that training never shows."""
    return [query(i, _HELD_OUT_SEED, "test", category) for i in range(n)]


def answers(
    model: Qwen2VLForConditionalGeneration,
    processor: Qwen2VLProcessor,
    queries: Sequence[MiniatureQuery],
    rule: str,
) -> list[WriterAnswer]:
    """What the model answers greedily under the protocol `rule`."""
    writer = ChatPromptWriter(processor, ChatSettings(model="mini"))
    model.generation_config = plain_generation(model, processor.tokenizer)
    texts: list[str] = []
    for start in range(0, len(queries), _BATCH):
        asked_now = [asked(sample_of(q), rule) for q in queries[start : start + _BATCH]]
        prompts = [p for p in map(writer, asked_now) if isinstance(p, ChatPrompt)]
        limits = [_LONGEST] * len(prompts)
        written_now = complete(model, writer.encoded(prompts), limits, Sampling())
        texts += [processor.tokenizer.decode(c.ids) for c in written_now]
    pairs = zip(queries, texts, strict=True)
    return [WriterAnswer(q, text, written(q, rule)) for q, text in pairs]


def all_answers(
    model: Qwen2VLForConditionalGeneration, processor: Qwen2VLProcessor, n: int
) -> dict[str, list[WriterAnswer]]:
    """The answers to `n` held-out queries of each kind, by `SA@mmie` and so on."""
    return {
        f"{category}@{rule}": answers(model, processor, held_out(category, n), rule)
        for category, rule in TASKS
    }


def exact_share(given: Sequence[WriterAnswer]) -> float:
    """Share of right answers."""
    return sum(answer.is_right for answer in given) / len(given)
