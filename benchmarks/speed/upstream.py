"""The loops of the original programs, rewritten around our loaded weights.

Each answers one record at a time, or a batch where its original takes one, and keeps,
rebuilds or lacks a cache as that does. They are the baseline of speed measurements, and
answer as the loaded stage does, from the same random numbers.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig

from plait.generators.anole.draft import AnoleDraft, AnoleTrack, TokenMode, guided_logits
from plait.generators.base import Outcome
from plait.generators.decoding.drafting import InterleavedDraft, LimitedTrack, NativePrompt
from plait.generators.decoding.sampling import penalise
from plait.generators.decoding.texts import TextTrack
from plait.generators.document import Draft, ImageRequest, Payload, Request
from plait.generators.emu2.condition import ConditionMode, Emu2Condition
from plait.generators.gill.draft import GillDraft
from plait.generators.janus.condition import JanusCondition
from plait.generators.janus.models import BEGIN_IMAGE, BOS, EOS, PAD
from plait.generators.minigpt5.draft import MiniGPT5Draft, MiniGPT5Track
from plait.pipelines.text_to_image import TextToImage
from plait.pipelines.vlm.decoding import by_generate
from plait.pipelines.vlm.stage import VisionLanguageModel
from plait.scorers.internvl.prompts import JudgePrompt
from plait.scorers.internvl.stage import MmieScore

S = TypeVar("S", bound=InterleavedDraft[Any])


class OneByOne(ABC, Generic[S]):
    """A native model that answers one request after another."""

    _stage: S

    @torch.inference_mode()
    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """Return one draft per request, in order."""
        outcomes: list[Outcome[Draft]] = []
        for request in inputs:
            prompt = self._stage.prompt(request)
            if isinstance(prompt, NativePrompt):
                outcomes.append(self._answer(prompt))
            else:
                # Why the model cannot be asked this is the outcome itself.
                outcomes.append(prompt)
        return outcomes

    @abstractmethod
    def _answer(self, prompt: NativePrompt) -> Outcome[Draft]: ...


class AnoleLoop(OneByOne[AnoleDraft]):
    """Anole: the cache is rebuilt at every switch between text and image.

    After `Generator` of chameleon.py (GAIR-NLP/anole): a run of text fills a new cache with
    the whole context; an image fills one with three streams in one left-padded batch. The
    original also captures CUDA graphs, which this does not.
    """

    def __init__(self, stage: AnoleDraft) -> None:
        self._stage = stage
        self._model = stage.language.model
        self._vocabulary = stage.language.vocabulary
        self._device = self._model.device

    def _answer(self, prompt: NativePrompt) -> Outcome[Draft]:
        track = self._stage.track(prompt)
        generator = torch.Generator().manual_seed(prompt.seed)
        while track.stop is None:
            match track.mode:
                case TokenMode.TEXT:
                    self._write(track, generator)
                case TokenMode.IMAGE:
                    self._draw(track, generator)
                case TokenMode.CLOSING:
                    track.take(self._vocabulary.end_image)
        return self._stage.result(prompt, track)

    def _write(self, track: AnoleTrack, generator: torch.Generator) -> None:
        """One run of text, up to an image's beginning or the end."""
        penalty = self._stage.settings.repetition_penalty
        vocabulary = self._vocabulary
        ids = sorted((vocabulary.eos, *vocabulary.text, vocabulary.begin_image))
        permitted = torch.tensor(ids, device=self._device)
        cache = DynamicCache()
        fed = torch.tensor([track.tokens], device=self._device)
        while track.stop is None and track.mode is TokenMode.TEXT:
            logits = self._logits(fed, torch.ones_like(fed), cache)[:, permitted]
            if not track.may_begin_image:
                logits[:, ids.index(vocabulary.begin_image)] = -torch.inf
            seen = torch.isin(permitted, torch.tensor(track.tokens, device=self._device))
            lowered = penalise(logits, seen[None], penalty)
            track.take(ids[int(self._stage.text.sample(lowered, [generator]))])
            fed = torch.tensor([track.ids[-1:]], device=self._device)

    def _draw(self, track: AnoleTrack, generator: torch.Generator) -> None:
        """The codes of one image, guided by two further streams."""
        settings = self._stage.settings
        guidance = {"text": settings.guidance_text, "image": settings.guidance_image}
        ids = sorted(self._vocabulary.image)
        permitted = torch.tensor(ids, device=self._device)
        cache = DynamicCache()
        streams = [track.tokens, *track.guidance_prompts()]
        longest = max(map(len, streams))
        rows = []
        masks = []
        for stream in streams:
            padding = [0] * (longest - len(stream))
            rows.append([*padding, *stream])
            masks.append([*padding, *([1] * len(stream))])
        fed = self._tensor(rows)
        mask = self._tensor(masks)
        while track.mode is TokenMode.IMAGE:
            full, image, free = self._logits(fed, mask, cache)[:, permitted]
            mixed = guided_logits(full, image, free, **guidance)
            token = ids[int(self._stage.image.sample(mixed[None], [generator]))]
            track.take(token)
            # All three streams go on with the code that they have chosen together.
            fed = self._tensor([[token]] * 3)
            mask = torch.cat([mask, mask.new_ones(3, 1)], dim=1)

    def _logits(self, fed: Tensor, mask: Tensor, cache: DynamicCache) -> Tensor:
        """Logits (rows, vocabulary) after `fed`, the tokens that are not in the cache."""
        length = int(cache.get_seq_length()) + fed.shape[1]
        if mask.shape[1] < length:
            mask = mask.new_ones(len(fed), length)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -fed.shape[1] :]
        states = self._model.model(
            input_ids=fed,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        logits: Tensor = self._model.lm_head(states[:, -1])
        return logits.float()

    def _tensor(self, rows: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(rows, device=self._device)


class GenerateLoop(VisionLanguageModel):
    """An LVLM as transformers runs it: by `generate`, padded on the left."""

    batched = True

    def __init__(self, stage: VisionLanguageModel) -> None:
        vars(self).update(vars(stage))
        self._write = partial(by_generate, self._model, self.settings)


class PipelineLoop(TextToImage):
    """A text-to-image model as diffusers draws: its pipeline, called with the texts.

    Without what plait adds around that: text encoders run in every call, and the scheduler
    holds its timesteps on the device. A lever of the denoiser (`speed`, `compile`) is the
    loop's too.
    """

    at_every_size = True

    def __init__(self, stage: TextToImage) -> None:
        vars(self).update(vars(stage))
        drawer = copy.copy(stage.plain)
        drawer.pipeline = copy.copy(drawer.pipeline)
        scheduler = drawer.pipeline.scheduler
        drawer.pipeline.scheduler = type(scheduler).from_config(scheduler.config)
        drawer.encoder = None
        self.drawer = self.plain = drawer


class Emu2Loop(Emu2Condition):
    """Emu2-Gen: the whole prompt is computed again for every vector.

    After `generate_image` of emu/emu.py (baaivision/Emu). The original also tokenises the
    growing prompt again each time, which this does not.
    """

    def __init__(self, stage: Emu2Condition) -> None:
        self.settings = stage.settings
        self.model = stage.model
        self.context = stage.context

    @torch.inference_mode()
    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Payload]]:
        """Return one payload per request, in order."""
        outcomes: list[Outcome[Payload]] = []
        for one in inputs:
            outcomes += Emu2Condition.__call__(self, [one])
        return outcomes

    def _vectors(self, prompts: Sequence[NativePrompt], mode: ConditionMode) -> Tensor:
        if mode == "autoencoding":
            return super()._vectors(prompts, mode)
        embedded = self.model.embeddings(prompts)
        return torch.stack([self._regress(prompt) for prompt in embedded])

    def _regress(self, prompt: Tensor) -> Tensor:
        """Vectors (queries, width) that follow one prompt (positions, hidden)."""
        network = self.model.network
        vectors = prompt.new_empty(0, network.project_down.out_features)
        for made in range(self.model.vision.queries):
            sequence = torch.cat([prompt, network.project_up(vectors)])[None]
            states = network.lm.model(inputs_embeds=sequence, use_cache=False)[0][0]
            vectors = network.project_down(states[-(made + 1) :])
        return vectors


class JanusLoop(JanusCondition):
    """Janus: transformers' `generate`, all prompts of a batch at once.

    A static cache of both halves of the batch, and a mask that grows by copying.
    """

    batched = True

    def __init__(self, stage: JanusCondition) -> None:
        vars(self).update(vars(stage))
        model = self.janus.model
        if not hasattr(model.model, "vision_model"):
            # `generate` asks its configuration for the number of codes.
            model.model.vision_model = torch.nn.Module()
            model.model.vision_model.config = model.config.vision_config
        ids = {name: self.janus.id(token) for name, token in _JANUS_IDS.items()}
        own = self.settings
        choice = {} if own.image_greedy else {"top_k": own.image_top_k}
        self._config = GenerationConfig(
            **ids,
            **choice,
            do_sample=not own.image_greedy,
            guidance_scale=own.guidance,
            generation_kwargs={"boi_token_id": self.janus.id(BEGIN_IMAGE)},
        )

    @torch.inference_mode()
    def tracks(self, prompts: Sequence[NativePrompt]) -> list[LimitedTrack]:
        """Return the codes of each prompt's image."""
        longest = max(prompt.length for prompt in prompts)
        pad = self.janus.id(PAD)
        tracks = []
        rows = []
        masks = []
        for prompt in prompts:
            missing = longest - prompt.length
            tracks.append(self.track(prompt))
            rows.append([pad] * missing + prompt.ids)
            masks.append([0] * missing + [1] * prompt.length)
        written = self.janus.model.generate(
            torch.tensor(rows, device=self.device),
            attention_mask=torch.tensor(masks, device=self.device),
            generation_config=self._config,
            generation_mode="image",
        )
        for track, codes in zip(tracks, written.tolist(), strict=True):
            track.take_all(codes)
        return tracks


_JANUS_IDS = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}


class GillLoop(OneByOne[GillDraft]):
    """GILL: without a cache.

    After `GILLModel.generate` (gill/models.py, kohjingyu/gill): every token computes the
    whole sequence again and keeps the states of all layers; all words are written before
    the answer is cut. The original raises an error where the last word is an image, this
    does not.
    """

    def __init__(self, stage: GillDraft) -> None:
        self._stage = stage

    def _answer(self, prompt: NativePrompt) -> Outcome[Draft]:
        (embedded,) = self._stage.embed([prompt])
        ids, states = self._write(embedded, prompt.seed)
        track = self._stage.track(prompt)
        for token, state in zip(ids, states, strict=True):
            track.take(token)
            track.read(state)
            if track.stop is not None:
                break
        return self._stage.result(prompt, track)

    def _write(self, prompt: Tensor, seed: int) -> tuple[list[int], Tensor]:
        """All ids, beyond the end of the answer too, and their states (ids, width)."""
        generator = torch.Generator().manual_seed(seed)
        sequence = prompt
        ids: list[int] = []
        for step in range(self._stage.settings.num_words):
            new = self._sample(self._states(sequence)[-1:], step, generator)
            ids += new
            sequence = torch.cat([sequence, self._stage.embeddings(new)])
        return ids, self._states(sequence)[len(prompt) :]

    def _states(self, sequence: Tensor) -> Tensor:
        positions = torch.arange(len(sequence), device=sequence.device)
        outputs = self._stage.decoder(
            inputs_embeds=sequence[None],
            position_ids=positions[None],
            use_cache=False,
            output_hidden_states=True,
        )
        states: Tensor = outputs.last_hidden_state[0]
        return states

    def _sample(self, state: Tensor, step: int, generator: torch.Generator) -> list[int]:
        """Return one id, or those of all image tokens."""
        first, *others = self._stage.tokens.vokens
        logits = self._stage.logits(state)
        # Of the image tokens only the first is chosen; it brings the others along.
        logits[:, others] = -torch.inf
        for scale in self._stage.scales:
            if scale > 1:
                logits[:, first] = logits[:, first].abs() * scale
        if step < self._stage.settings.min_word_tokens:
            logits[:, first] = -torch.inf
        token = int(self._stage.sampler.sample(logits, [generator]))
        return [first, *others] if token == first else [token]


class MiniGPT5Loop(OneByOne[MiniGPT5Draft]):
    """MiniGPT-5: with a cache; the vokens of an image in one pass.

    After `generate` of minigpt5.py and `predict_step` of train_eval.py (UCSB-AI/MiniGPT-5),
    with every image of an answer kept, as CoMM's loop does.
    """

    def __init__(self, stage: MiniGPT5Draft) -> None:
        self._stage = stage
        self._model = stage.model
        self._table: Tensor = self._model.model.embed_tokens.weight
        self._vokens = self._table[list(stage.vocabulary.vokens)]

    def _answer(self, prompt: NativePrompt) -> Outcome[Draft]:
        (fed,) = self._stage.embed([prompt])
        track = self._stage.track(prompt)
        generator = torch.Generator().manual_seed(prompt.seed)
        cache = DynamicCache()
        while track.stop is None:
            states = self._states(fed, cache)
            track.collect(states[:-1])
            if track.stop is None:
                fed = self._next(track, states[-1], generator)
        return self._stage.result(prompt, track)

    def _states(self, fed: Tensor, cache: DynamicCache) -> Tensor:
        """Hidden states (positions, width) of what is not in the cache."""
        states: Tensor = self._model.model(
            inputs_embeds=fed[None], past_key_values=cache, use_cache=True
        ).last_hidden_state[0]
        return states

    def _next(
        self, track: MiniGPT5Track, state: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Take the next id; what it is fed as (positions, width)."""
        settings = self._stage.settings
        begin = self._stage.vocabulary.begin_image
        logits = self._model.lm_head(state)[None].float()
        generated = torch.zeros_like(logits, dtype=torch.bool)
        generated[0, [settings.leading_id, *track.ids]] = True
        logits = penalise(logits, generated, settings.repetition_penalty)
        if track.must_begin_image:
            logits[0, :begin] = -torch.inf
            logits[0, begin + 1 :] = -torch.inf
        elif not track.may_begin_image:
            logits[0, begin] = -torch.inf
        token = int(self._stage.sampler.sample(logits, [generator]))
        track.take(token)
        track.collect([state])
        return self._vokens if token == begin else self._table[[token]]


class MmieScoreLoop:
    """The official MMIE scorer: a cache that grows by copying.

    After main.py (Lillianwei-h/MMIE@eb0fd6e) and `chat` of InternVL: transformers' greedy
    search over the whole prompt of every document, every image read again.
    """

    def __init__(self, stage: MmieScore) -> None:
        self._stage = stage
        self._judge = stage.judge

    @torch.inference_mode()
    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """Return one judgement per request, in order."""
        return [self._answer(request) for request in inputs]

    def _answer(self, request: Request) -> Outcome[Draft]:
        images = self._stage.decode([request])
        prompt = self._stage.prompt(request, images)
        if not isinstance(prompt, JudgePrompt):
            return prompt
        (embedded,) = self._stage.embed([prompt], images)
        return self._stage.draft_of(prompt, self._write(embedded, prompt.budget.reply))

    def _write(self, prompt: Tensor, limit: int) -> TextTrack:
        reply = TextTrack(limit)
        cache = DynamicCache()
        with self._judge.rope.prompts(self._judge.rope.is_long(len(prompt))):
            token = self._next(prompt, cache)
        reply.take(token, {self._stage.end})
        while reply.stop is None:
            token = self._next(self._judge.embeddings(torch.tensor([token])), cache)
            reply.take(token, {self._stage.end})
        return reply

    def _next(self, fed: Tensor, cache: DynamicCache) -> int:
        """Return the most likely id after the inputs (positions, width)."""
        states = self._judge.decoder(
            inputs_embeds=fed[None], past_key_values=cache, use_cache=True
        ).last_hidden_state
        return int(self._judge.logits(states[:, -1]).argmax())
