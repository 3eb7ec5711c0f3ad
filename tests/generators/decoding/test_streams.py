"""Streams of all ages through one decoder, beside passes without a cache; shared parts."""

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    ChameleonConfig,
    ChameleonForConditionalGeneration,
    LlamaConfig,
    LlamaModel,
    OPTConfig,
    OPTModel,
    Qwen2VLTextConfig,
    Qwen2VLTextModel,
)

from plait.generators import cuda_graphs
from plait.generators.cuda_graphs import CannotCapture
from plait.generators.decoding import graphs, prefixes, streams
from plait.generators.decoding.prefixes import PrefixPart, levels, marks, passes
from plait.generators.decoding.streams import KeyValueRows, Stream, Streams

pytestmark = pytest.mark.models

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 50,
    "max_position_embeddings": 160,
}


def decoder(kind: str):
    torch.manual_seed(0)
    match kind:
        case "llama":
            sizes = SIZES | {"num_key_value_heads": 2, "intermediate_size": 64}
            model = LlamaModel(LlamaConfig(**sizes))
        case "qwen2-vl":
            rope = {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [1, 1, 2]}
            sizes = SIZES | {"num_key_value_heads": 2, "intermediate_size": 64}
            model = Qwen2VLTextModel(Qwen2VLTextConfig(**sizes, rope_parameters=rope))
        case "opt":
            model = OPTModel(OPTConfig(**SIZES, ffn_dim=64, word_embed_proj_dim=32))
        case "chameleon":
            vq = {"base_channels": 32, "num_embeddings": 8, "embed_dim": 8}
            config = ChameleonConfig(
                **SIZES,
                intermediate_size=64,
                num_key_value_heads=4,
                vocabulary_map={"<image>": 4},
                vq_config=vq | {"latent_channels": 8, "channel_multiplier": [1]},
            )
            model = ChameleonForConditionalGeneration(config).model
    # As initialised, attention adds too little for a wrong mask to be seen.
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.25)
    return model.eval().requires_grad_(False)


def some(random: np.random.Generator, *lengths: int) -> list[torch.Tensor]:
    """Random embeddings of these lengths."""
    drawn = [random.standard_normal((n, 32)) * 0.5 for n in lengths]
    return [torch.from_numpy(values).float() for values in drawn]


def begun(random, head: torch.Tensor, *lengths: int) -> list[torch.Tensor]:
    """Prompts of one beginning and ends of their own."""
    return [torch.cat([head, end]) for end in some(random, *lengths)]


class Checked:
    """Streams with all that each was fed, against passes over it without a cache."""

    def __init__(
        self, kind: str, seed: int, context: int = 64, device: str = "cpu", **options
    ) -> None:
        self.model, self.random = decoder(kind).to(device), np.random.default_rng(seed)
        self.streams = Streams(self.model, context=context, **options)
        self.fed: dict[Stream, torch.Tensor] = {}
        self.places: dict[Stream, torch.Tensor] = {}

    def open(self, prompts, places=None) -> list[Stream]:
        opened = self.streams.open(prompts, places)
        self.fed |= zip(opened, prompts, strict=True)
        self.places |= zip(opened, places or (), strict=places is not None)
        return opened

    def close(self, *leaving: Stream) -> None:
        self.streams.close(leaving)
        for stream in leaving:
            del self.fed[stream]

    def step(self) -> None:
        """Compare the states of a step, then feed every stream a token."""
        states = self.streams.step()
        assert len(states) >= len(self.fed) == len(self.streams)
        for stream in self.fed:
            self.compare(states[stream.row], stream)
        self.feed()

    def step_run(self, tokens: int) -> None:
        """As `step`, of so many tokens in one pass."""
        rows = self.streams.rows([*self.fed])
        more = torch.stack(some(self.random, *[tokens - 1] * len(self.fed)))
        states = self.streams.step_run(rows, more)[rows.there]
        for stream, own, following in zip(self.fed, states, more, strict=True):
            self.fed[stream] = torch.cat([self.fed[stream], following])
            for left in range(tokens):
                self.compare(own[tokens - 1 - left], stream, left)
        self.feed()

    def feed(self) -> None:
        """Feed every stream a token."""
        (following,) = some(self.random, len(self.fed))
        self.streams.feed(self.streams.rows([*self.fed]), following)
        for stream, token in zip(self.fed, following, strict=True):
            self.fed[stream] = torch.cat([self.fed[stream], token[None]])

    def compare(self, state: torch.Tensor, stream: Stream, left: int = 0) -> None:
        """With the last state of what it was fed, but for the `left` last tokens."""
        sequence, options = self.fed[stream], {}
        sequence = sequence[: len(sequence) - left]
        if stream in self.places:
            places = self.places[stream]
            at = after(places, len(sequence) - len(places))
            options = {"position_ids": at.T[:, None]}
        sequence = sequence.to(self.model.device)
        outputs = self.model(inputs_embeds=sequence[None], use_cache=False, **options)
        assert (state - outputs.last_hidden_state[0, -1]).abs().max() < 1e-4


def after(places: torch.Tensor, count: int) -> torch.Tensor:
    """Position ids with those of text that follows."""
    more = places.max() + 1 + torch.arange(count)
    return torch.cat([places, more[:, None].repeat(1, 3)])


KINDS = pytest.mark.parametrize("kind", ["llama", "opt", "chameleon", "qwen2-vl"])


def bound_to_memory(monkeypatch):
    """A capture that computes anew, and fails where a graph would use memory of before."""
    used: list[tuple[int, int]] = []
    store = KeyValueRows._store

    def noted(cache, layer, states) -> None:
        used.append((layer[0].data_ptr(), cache.columns_in_use % 8))
        store(cache, layer, states)

    def captured(run, device):
        run()
        memory, _ = used[-1]

        def replay() -> torch.Tensor:
            states = run()
            assert used[-1] == (memory, 0), "the same memory, masks of whole 16 bytes"
            return states

        return replay

    monkeypatch.setattr(KeyValueRows, "_store", noted)
    return captured


@pytest.fixture(params=["eager", "rounded", "cuda"])
def steps(request, monkeypatch) -> str:
    """How steps are computed: also as a GPU's graphs compute them, and by one."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    monkeypatch.setattr(graphs, "_COLUMNS", 32)
    if request.param == "rounded":
        monkeypatch.setattr(streams, "suits", lambda module, device: True)
        monkeypatch.setattr(cuda_graphs, "capture", bound_to_memory(monkeypatch))
    return "cuda" if request.param == "cuda" else "cpu"


@KINDS
def test_streams_join_and_leave_without_disturbing_others(kind, steps):
    """In a cache whose rows and columns grow on the way."""
    checked = Checked(kind, seed=3, context=150, device=steps)
    for step in range(30):
        if step % 3 == 0:
            longest = 20 + 3 * step
            checked.open(some(checked.random, *checked.random.integers(1, longest, 2)))
        if len(checked.fed) > 4:
            leaving = int(checked.random.integers(len(checked.fed)))
            checked.close(list(checked.fed)[leaving])
        checked.step()


def test_a_captured_step_at_the_end_of_a_context_has_a_mask_of_whole_16_bytes(monkeypatch):
    monkeypatch.setattr(streams, "suits", lambda module, device: True)
    monkeypatch.setattr(cuda_graphs, "capture", bound_to_memory(monkeypatch))
    checked = Checked("llama", seed=3, context=45)
    checked.open(some(checked.random, 40))
    checked.step()


def test_steps_that_cannot_be_captured_are_computed_without(monkeypatch):
    def refuse(run, device):
        raise CannotCapture("operation not permitted when stream is capturing")

    monkeypatch.setattr(streams, "suits", lambda module, device: True)
    monkeypatch.setattr(cuda_graphs, "capture", refuse)
    checked = Checked("llama", seed=3)
    checked.open(some(checked.random, 5, 3))
    with pytest.warns(UserWarning, match="without CUDA graphs"):
        checked.step()
    checked.step()


@pytest.mark.filterwarnings("ignore:decoding without CUDA graphs")
@pytest.mark.parametrize("refused", [False, True])
def test_the_cache_is_freed_with_its_streams(refused, monkeypatch):
    """Not by the garbage collector, which comes after the next batch's has been made."""

    def captured(run, device):
        states = run()
        if refused:
            raise CannotCapture("operation not permitted when stream is capturing")
        return lambda: states

    monkeypatch.setattr(streams, "suits", lambda module, device: True)
    monkeypatch.setattr(cuda_graphs, "capture", captured)
    batch = Streams(decoder("llama"), context=64)
    batch.open(some(np.random.default_rng(0), 5, 3))
    cache = weakref.ref(batch._cache)
    gc.disable()
    try:
        batch.step()
        del batch
        assert cache() is None
    finally:
        gc.enable()


@KINDS
def test_prompts_that_begin_alike_share_the_reading_and_nothing_else(kind, monkeypatch):
    monkeypatch.setattr(prefixes, "WORTH", 8)
    checked = Checked(kind, seed=5)
    random = checked.random
    one, other = some(random, 20, 9)
    (further,) = begun(random, one, 11)
    prompts = [
        *begun(random, one, 1),
        *begun(random, further, 7, 3),
        *begun(random, other, 2, 12),
        *some(random, 30, 1),
    ]
    prompts = [prompts[i] for i in (5, 0, 3, 1, 6, 4, 2)] + [one, one]
    checked.open(some(random, 4))
    opened = checked.open(prompts)
    assert [stream.row for stream in opened] == list(range(1, 10))
    for _ in range(4):
        checked.step()
        if len(checked.fed) > 7:
            checked.close(list(checked.fed)[2])


def test_parts_that_start_apart_are_read_in_one_pass_beyond_the_longest_prompt(monkeypatch):
    """One goes on at 44 for 9 positions, another at 20 for 39: together 83 columns."""
    monkeypatch.setattr(prefixes, "WORTH", 40)
    checked = Checked("llama", seed=7)
    columns, usual = [], KeyValueRows.reserve

    def reserve(self, rows, wanted):
        columns.append(wanted)
        usual(self, rows, wanted)

    monkeypatch.setattr(KeyValueRows, "reserve", reserve)
    one, other = some(checked.random, 44, 20)
    checked.open(
        [*begun(checked.random, one, 10, 10), *begun(checked.random, other, 40, 40, 40)]
    )
    assert max(columns) > 64, "else the case is not tried"
    checked.step()


def placed(*runs: int | tuple[int, int]) -> torch.Tensor:
    """Position ids (tokens, 3) of text and of images (rows, columns), by the rule."""
    ids, start = [], 0
    for run in runs:
        if isinstance(run, int):
            ids += [(start + i,) * 3 for i in range(run)]
            start += run
        else:
            rows, columns = (range(n) for n in run)
            ids += [(start, start + r, start + c) for r in rows for c in columns]
            start += max(run)
    return torch.tensor(ids)


RUNS = [
    (5, (4, 2), 3),
    (5, (2, 4), 3),
    (9,),
    (1, (3, 3), 1, (2, 5), 2),
    (2, (4, 6)),
    (3, (6, 2)),
    (5, (4, 2), 1, (1, 2), 1),
]


@pytest.mark.parametrize("worth", [8, 10**6])
def test_tokens_of_images_stand_in_rows_and_columns(worth, monkeypatch):
    """With beginnings shared or not."""
    monkeypatch.setattr(prefixes, "WORTH", worth)
    checked = Checked("qwen2-vl", seed=8, axes=3)
    (head,) = some(checked.random, 13)
    places = [placed(*runs) for runs in RUNS]
    prompts = [
        begun(checked.random, head, 40)[0][: len(position_ids)] for position_ids in places
    ]
    checked.open(prompts[:4], places[:4])
    for step in range(8):
        if step == 2:
            checked.open(prompts[4:], places[4:])
        checked.step()
        if step in (1, 3):
            checked.close(list(checked.fed)[step - 1])
    checked.step_run(3)
    checked.step()


def test_what_is_shared_is_read_once():
    checked = Checked("llama", seed=6)
    (head,) = some(checked.random, 40)
    prompts = begun(checked.random, head, 3, 6, 2, 5, 4, 3, 2, 9)
    passes, usual = [], checked.model.forward

    def noted(*, inputs_embeds, **options):
        passes.append(tuple(inputs_embeds.shape[:2]))
        return usual(inputs_embeds=inputs_embeds, **options)

    checked.model.forward = noted
    Streams(checked.model, context=64).open(prompts)
    assert passes == [(1, 40), (8, 8)], "7 x 40 positions saved"
    passes.clear()
    Streams(checked.model, context=64).open(prompts[:6])
    assert passes == [(6, 45)], "5 x 40 are not worth a pass of their own"


@pytest.mark.parametrize("lengths", [(7, 3, 5, 63), (4, 4, 4, 4)])
@KINDS
def test_tokens_of_one_pass_have_the_states_of_one_by_one(kind, lengths, steps):
    """Beside a row that a stream has left, at the end of the context."""
    checked = Checked(kind, seed=6, device=steps)
    opened = checked.open(some(checked.random, *lengths))
    checked.close(opened[-1])
    checked.step()
    checked.step_run(4)
    checked.step()
    checked.step_run(2)
    checked.step()


@pytest.mark.parametrize("lengths", [(7, 3, 5), (4, 4, 4)])
@KINDS
def test_a_stream_that_is_not_fed_stays_where_it_is(kind, lengths, steps):
    """Its states are the same again, and those of the others go on."""
    checked = Checked(kind, seed=4, device=steps)
    one, two, three = checked.open(some(checked.random, *lengths))
    checked.step()
    for going in ([True, False, True], [False, False, True], [True, True, False]):
        rows = checked.streams.rows([one, two, three])
        (token,) = some(checked.random, 3)
        before = checked.streams.step()[rows.there]
        checked.streams.feed(rows, token, torch.tensor(going, device=steps))
        for stream, embedding, is_fed in zip((one, two, three), token, going, strict=True):
            checked.compare(before[[one, two, three].index(stream)], stream)
            if is_fed:
                checked.fed[stream] = torch.cat([checked.fed[stream], embedding[None]])
    states = checked.streams.step()
    for stream in checked.fed:
        checked.compare(states[stream.row], stream)


def test_rows_are_given_up_where_a_smaller_graph_serves(monkeypatch):
    """Of 10 rows, computed as 16: the last ones move when 8 are left, then when 4 are."""
    monkeypatch.setattr(streams, "suits", lambda module, device: True)
    monkeypatch.setattr(cuda_graphs, "capture", bound_to_memory(monkeypatch))
    checked = Checked("llama", seed=5)
    opened = checked.open(some(checked.random, *range(3, 13)))
    moves, usual = [], KeyValueRows.spread

    def spread(cache, sources, targets, columns):
        moves.append((sources.tolist(), targets.tolist()))
        usual(cache, sources, targets, columns)

    monkeypatch.setattr(KeyValueRows, "spread", spread)
    computed = []
    for leaving in ([1], [4], [2, 9], [0], [3], [], [8]):
        checked.close(*(opened[i] for i in leaving))
        checked.step()
        computed.append(len(checked.streams.step()))
    assert computed == [10, 8, 8, 8, 4, 4, 4]
    assert moves == [([8, 9], [1, 4]), ([5, 6, 7], [0, 2, 3])]


def lettered(*words: str) -> list[prefixes.Marks]:
    return [np.array([ord(letter) for letter in word], dtype=np.int64) for word in words]


def test_parts_by_hand(monkeypatch):
    monkeypatch.setattr(prefixes, "WORTH", 4)

    def of(*words: str) -> list[list[PrefixPart]]:
        return list(levels(lettered(*words)))

    assert of("abcde", "xyz", "abcdf", "abq", "xyzzy") == [
        [PrefixPart((0, 2, 3), 0, 2), PrefixPart((1,), 0, 3), PrefixPart((4,), 0, 5)],
        [PrefixPart((0,), 2, 5), PrefixPart((2,), 2, 5), PrefixPart((3,), 2, 3)],
    ]
    # One letter shared by four is not worth a pass, four letters shared by two are.
    assert of("abcde", "abcdf", "axxxx", "ayyyy") == [
        [PrefixPart((0, 1), 0, 4), PrefixPart((2,), 0, 5), PrefixPart((3,), 0, 5)],
        [PrefixPart((0,), 4, 5), PrefixPart((1,), 4, 5)],
    ]
    # A rubric, its questions, their answers; and one that ends where others go on.
    assert of("rrrQQQQ1", "rrrPPPPP1", "rrrQQQQ2", "rrrPPPPP22", "rrrQQQQ") == [
        [PrefixPart((0, 1, 2, 3, 4), 0, 3)],
        [PrefixPart((0, 2, 4), 3, 7), PrefixPart((1, 3), 3, 8)],
        [
            PrefixPart((0,), 7, 8),
            PrefixPart((2,), 7, 8),
            PrefixPart((1,), 8, 9),
            PrefixPart((3,), 8, 10),
        ],
    ]
    # What only stands at the same place is not shared.
    assert of("aaaaTHESAME", "bbbbTHESAME") == [
        [PrefixPart((0,), 0, 11), PrefixPart((1,), 0, 11)]
    ]
    assert of() == [[]]


def test_passes_by_hand(monkeypatch):
    monkeypatch.setattr(prefixes, "WORTH", 6)
    lengths = [3, 9, 10, 7, 8, 1, 4]
    parts = [PrefixPart((i,), 0, length) for i, length in enumerate(lengths)]
    found = [[len(part) for part in together] for together in passes(parts)]
    # 10, 9, 8 have 1 + 2 of padding, and 7 would have 3 more; 4, 3 have 3 + 4 beside 7.
    assert found == [[10, 9, 8], [7, 4], [3, 1]]
    assert passes([]) == []


@given(st.lists(st.text("ab", max_size=12), max_size=8))
def test_parts_make_up_every_prompt(words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefixes, "WORTH", 3)
        found = [part for level in levels(lettered(*words)) for part in level]
    for i, word in enumerate(words):
        own = [part for part in found if i in part.members]
        assert [p for part in own for p in range(part.start, part.end)] == [
            *range(len(word))
        ]
    for part in found:
        assert len({words[i][: part.end] for i in part.members}) == 1


@settings(max_examples=20)
@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=4))
def test_marks_are_those_of_the_embeddings(words):
    table = torch.randn(2, 5, generator=torch.Generator().manual_seed(1))
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for one in words:
            ids = torch.tensor([ord(letter) - ord("a") for letter in one])
            of_all, apart = marks(table.to(dtype)[ids]), marks(table.to(dtype))
            assert of_all.tolist() == [apart[i] for i in ids]
            assert apart[0] != apart[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_marks_tell_prompts_apart_by_every_value(dtype):
    """One value the least bit larger, one with another sign, two that change places."""
    values = torch.linspace(-1, 1, 7).to(dtype)
    others = values.repeat(2 * len(values), 1)
    larger, negated = others.split(len(values))
    larger.diagonal().copy_(torch.nextafter(values, torch.full_like(values, 9)))
    negated.diagonal().neg_()
    swapped = torch.stack([values.roll(1), values.flip(0)])
    places = torch.tensor(
        [[3, 4, 5], [4, 3, 5], [3, 5, 4], [3, 4, 6], [3, 4, 0], [2, 4, 5]]
    )
    of_values = marks(torch.cat([values[None], others, swapped]))
    of_places = marks(values.repeat(len(places), 1), places)
    assert len({*of_values, *of_places}) == len(of_values) + len(of_places)
