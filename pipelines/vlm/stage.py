"""Answers requests with a vision-language model of `transformers`, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
import transformers

from plait.generators.architectures import random_weights
from plait.generators.base import Failure, Fault, Outcome, Result, Weights
from plait.generators.content import answer_all
from plait.generators.decoding.sampling import NO_NUMBERS
from plait.generators.decoding.texts import TextTrack
from plait.generators.document import Draft, Request, Text
from plait.generators.errors import CheckpointError
from plait.generators.loading.strict import load_model, load_processor
from plait.generators.overflow import SCORES, no_numbers
from plait.generators.thoughts import Reply, is_mark, opens_thought, separate
from plait.pipelines.chat.endings import CUT, CUT_NOTE, THOUGHT, THOUGHT_CHARACTERS
from plait.pipelines.chat.settings import ChatSettings
from plait.pipelines.vlm.decoding import PromptBatch, plain_generation, writer_of
from plait.pipelines.vlm.prompts import ChatPrompt, ChatPromptWriter, special_tokens

P = TypeVar("P", bound=ChatPrompt)
V = TypeVar("V")


class PromptedModel(Generic[P, V]):
    """A model with its processor, and how a batch of prompts comes to be encoded.

    A prompt that the processor refuses, or that is too long, fails alone.
    """

    def __init__(self, weights: Weights = "pretrained", **settings: Any) -> None:
        """Load the model; `settings` are the fields of `ChatSettings`.

        Raises CheckpointError when the checkpoint does not fit its architecture.
        """
        self.settings = ChatSettings.model_validate(settings)
        self._model, processor = load(self.settings, weights)
        self._tokenizer = processor.tokenizer
        special = special_tokens(processor.tokenizer)
        self._dropped = {id for id, token in special.items() if not is_mark(token)}
        self._prompts = ChatPromptWriter(processor, self.settings)
        self._write = writer_of(self._model, self.settings)
        text_config = self._model.config.get_text_config()
        self._context: int | None = getattr(text_config, "max_position_embeddings", None)
        self._new_tokens = self.settings.new_tokens(weights)

    def _read(self, prompts: list[P], inputs: Any, lengths: list[int]) -> list[Outcome[V]]:
        """Return one outcome per prompt; `inputs` are the prompts encoded as a batch."""
        raise NotImplementedError

    def _answer(self, prompts: list[P]) -> list[Outcome[V]]:
        """Return one outcome per prompt; those that fail alone are taken out first."""
        try:
            inputs = self._prompts.encode(prompts)
        except Exception as error:
            # A processor raises for the whole batch: find the request it rejects.
            if len(prompts) > 1:
                alone: list[Outcome[V]] = []
                for prompt in prompts:
                    alone += self._answer([prompt])
                return alone
            fault = Fault.BAD_INPUT if isinstance(error, ValueError) else Fault.ERROR
            return [Failure(f"the processor refuses the request: {error}", fault)]
        lengths = inputs["attention_mask"].sum(1).tolist()
        too_long = [self._too_long(length) for length in lengths]
        if not any(too_long):
            return self._read(prompts, inputs, lengths)
        # The others are encoded again, without the padding to the longest.
        answerable: list[P | Failure] = []
        for prompt, failure in zip(prompts, too_long, strict=True):
            answerable.append(failure or prompt)
        return answer_all(answerable, self._answer)

    def _too_long(self, length: int) -> Failure | None:
        limit = self.settings.max_input_tokens
        if limit is not None and length > limit:
            return Failure(f"the request has {length} tokens; max_input_tokens is {limit}")
        if self._context is not None and length >= self._context:
            return Failure(
                f"the request has {length} tokens and fills the model's context of "
                f"{self._context}"
            )
        return None


class VisionLanguageModel(PromptedModel[ChatPrompt, Draft]):
    """Request -> Draft of one text, by any `AutoModelForImageTextToText`.

    Sampled text comes from the record's own seed. Models that streams serve are decoded by
    them; others by `generate`, with padding on the left that is masked. Nothing of the
    other requests of a batch enters an answer but rounding: sums are taken in an order that
    depends on the batch's size. Tests find no answer that differs in float32. In bfloat16,
    where two tokens are often as good as equal, 2 of 16 greedy and 7 of 16 sampled answers
    of a tiny model did on a CPU; `batch_size = 1` makes all of them the same again.
    """

    takes_max_tokens: ClassVar[bool] = True

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """Return one draft per request; the text without white space around it."""
        return answer_all([self._prompts(request) for request in inputs], self._answer)

    def _longest(self, prompt: ChatPrompt) -> int:
        """Return how many tokens the answer may have, whatever the prompt's length."""
        return min(self._new_tokens, prompt.request.max_tokens or self._new_tokens)

    def _read(
        self, prompts: list[ChatPrompt], inputs: Any, lengths: list[int]
    ) -> list[Outcome[Draft]]:
        limits: list[int] = []
        for prompt, length in zip(prompts, lengths, strict=True):
            limit = self._longest(prompt)
            if self._context is not None:
                limit = min(limit, self._context - length)
            limits.append(limit)
        batch = PromptBatch(
            inputs,
            images=[prompt.image_digests for prompt in prompts],
            limits=limits,
            seeds=[prompt.request.seed or 0 for prompt in prompts],
        )
        tracks = self._write(batch)
        outcomes: list[Outcome[Draft]] = []
        for prompt, track, length in zip(prompts, tracks, lengths, strict=True):
            outcomes.append(self._result(prompt, track, length))
        return outcomes

    def _result(
        self, prompt: ChatPrompt, track: TextTrack, length: int
    ) -> Result[Draft] | Failure:
        if track.stop == NO_NUMBERS:
            return no_numbers(SCORES, self._model.dtype)
        reply = self._reply(prompt, track)
        usage = {"input_tokens": length, "output_tokens": track.tokens}
        notes: dict[str, Any] = {
            "finish": track.stop,
            "prompt": prompt.text,
            "images": len(prompt.images),
            **usage,
        }
        if track.stop == "length":
            usage[CUT] = 1
            notes[CUT] = CUT_NOTE
        if reply.thought:
            usage[THOUGHT_CHARACTERS] = len(reply.thought)
            notes[THOUGHT] = reply.thought
        if prompt.images:
            notes["image_sizes"] = [list(image.size) for image in prompt.images]
        if prompt.neutralised:
            notes["neutralised"] = list(prompt.neutralised)
        if track.limit < self._longest(prompt):
            notes["context"] = {"tokens": self._context, "room": track.limit}
        if reply.loss:
            reason = f"{reply.loss} (finish reason {track.stop}); raise max_new_tokens"
            return Failure(reason, Fault.ERROR, usage, notes)
        return Result(Draft((Text(reply.text.strip()),)), usage, notes)

    def _reply(self, prompt: ChatPrompt, track: TextTrack) -> Reply:
        """Return what the model said, apart from a thought before it.

        Special tokens are no part of a text, but some of them mark a thought.
        """
        kept = [token for token in track.ids if token not in self._dropped]
        text = self._decode(kept, skip_special_tokens=False)
        reply = separate(text, opened=opens_thought(prompt.text))
        if reply.unfinished or reply.text != text:
            return reply
        return Reply(self._decode(track.ids, skip_special_tokens=True))

    def _decode(self, ids: Sequence[int], **options: Any) -> str:
        text: str = self._tokenizer.decode(
            ids, clean_up_tokenization_spaces=False, **options
        )
        return text


def load(settings: ChatSettings, weights: Weights) -> tuple[Any, Any]:
    """Return the model on its device(s), and its processor, which pads on the left.

    Raises CheckpointError for a checkpoint that does not fit the architecture it names,
    or that has no chat template.
    """
    transformers.logging.disable_progress_bar()
    where = device_map_of(settings.device, settings.device_map == "auto")
    dtype = getattr(torch, settings.dtype)
    match weights:
        case "tiny":
            model, processor = random_weights.tiny(settings.model)
            model.to("cuda" if where == "auto" else where[""])
        case "dummy":
            model, processor = random_weights.dummy(settings.model, dtype, where)
        case "pretrained":
            model, processor = load_pretrained(
                settings.model, settings.revision, dtype, where
            )
    _prepare(processor, settings.model)
    model.generation_config = plain_generation(model, processor.tokenizer)
    return model, processor


def device_map_of(device: str, spread: bool = True) -> Any:
    """Return `auto` for several GPUs, if it may spread; else everything on one device."""
    if device != "auto":
        return {"": device}
    if not torch.cuda.is_available():
        return {"": "cpu"}
    return "auto" if spread and torch.cuda.device_count() > 1 else {"": "cuda"}


def load_pretrained(
    model: str, revision: str | None, dtype: torch.dtype, device_map: Any
) -> tuple[Any, Any]:
    """Return a checkpoint's model, and its processor.

    Raises CheckpointError for one that does not fit the architecture it names.
    """
    transformers.logging.disable_progress_bar()
    loaded = load_model(
        "AutoModelForImageTextToText",
        model,
        revision,
        dtype=dtype,
        device_map=device_map,
    )
    rows = loaded.get_input_embeddings().weight.shape[0]
    return loaded, load_processor(model, revision, rows)


def _prepare(processor: Any, model: str) -> None:
    """Have a processor pad on the left, and write chats; CheckpointError if it cannot."""
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is None:
        raise CheckpointError(f"checkpoint {model!r} has no processor for text and images")
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if processor.chat_template is None:
        processor.chat_template = getattr(tokenizer, "chat_template", None)
    if processor.chat_template is None:
        raise CheckpointError(f"checkpoint {model!r} has no chat template")
