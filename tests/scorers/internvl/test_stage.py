"""The judge as a stage: batches, budgets, outcomes and notes."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import subprocess
import sys

import pytest
import torch
from internvl_helpers import picture, request, save, turn_of
from paths import CHECKOUT
from PIL import Image as Pillow

from cluster.records import decode as read_record
from cluster.records import encode as write_record
from cluster.records import rows_of
from cluster.worker import Item
from generators.base import Failure, Fault, Kind, Result, Skip
from generators.decoding.texts import TextTrack
from generators.document import Image, Request, Text
from generators.errors import UsageError
from generators.pictures import encode
from scorers.internvl.models import JudgeModel
from scorers.internvl.prompts import JudgePrompt, PromptWriter
from scorers.internvl.settings import MmieScoreSettings, mmie_score
from scorers.internvl.stage import MmieScore

models = pytest.mark.models
RED, WIDE = picture(1, 40, 30), picture(2, 90, 20)


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> MmieScore:
    """A published toy, which attends further back than the tiny one."""
    folder = save(tmp_path_factory.mktemp("stage"))
    overrides = {
        "model": str(folder),
        "device": "cpu",
        "dtype": "float32",
        "system": "judge",
    }
    return MmieScore(**overrides, max_new_tokens=40)


@pytest.fixture(scope="module")
def tiny() -> MmieScore:
    return MmieScore(weights="tiny", device="cpu")


def mixed() -> list[Request]:
    return [
        request("score the picture ", RED),
        request("a"),
        request("the story shows each step " * 14, WIDE),
        request(WIDE, RED, " which one follows the text"),
        request("question answer feedback score " * 3),
        request("does ", RED, " match ", RED),
    ]


def prompted(stage: MmieScore, one: Request) -> JudgePrompt:
    prompt = stage.prompt(one, stage.pictures([one]))
    assert isinstance(prompt, JudgePrompt)
    return prompt


def texts(outcomes) -> list[str]:
    return [outcome.value.text for outcome in outcomes]


@models
def test_replies_depend_neither_on_the_batch_nor_on_its_order(stage):
    asked_for = mixed()
    together = stage(asked_for)
    assert texts(together) == [texts(stage([r]))[0] for r in asked_for]
    assert texts(together) == texts(stage(asked_for[::-1]))[::-1]
    lengths = {o.usage["output_tokens"] for o in together}
    assert len(lengths) > 1, "some end before others"
    assert len(set(texts(together))) == len(asked_for)


@models
def test_replies_are_those_of_full_recomputation(stage):
    """No cache, no batch: below the change of frequencies every token from scratch."""
    for one in (mixed()[0], mixed()[1], mixed()[5]):
        pictures = stage.pictures([one])
        prompt = stage.prompt(one, pictures)
        (inputs,) = stage.embedded([prompt], pictures)
        ids: list[int] = []
        while len(ids) < 40 and stage.end not in ids:
            more = stage.judge.embeddings(torch.tensor(ids, dtype=torch.long))
            whole = torch.cat([inputs, more])[None]
            assert whole.shape[1] <= 220
            with torch.inference_mode(), stage.judge.rope.prompts(long=False):
                hidden = stage.judge.decoder(inputs_embeds=whole).last_hidden_state
                ids.append(int(stage.judge.logits(hidden[0, -1]).argmax()))
        outcome = stage([one])[0]
        assert outcome.usage["output_tokens"] == len(ids)
        reply_ids = [i for i in ids if i != stage.end]
        text = stage.judge.tokenizer.decode(reply_ids)
        assert outcome.value.text == text.partition("<|end|>")[0].strip()


@models
@pytest.mark.parametrize("words", [15, 30])
def test_a_shared_beginning_is_read_once_and_changes_no_reply(stage, words, monkeypatch):
    """Below and above the change of frequencies; one request is alike to the last token."""
    rubric = "score the picture and the story by each step " * words
    asked_for = [
        request(rubric, RED, " the text follows"),
        request(rubric, RED, " the text follows"),
        request(rubric, RED, " it is vivid but the story is not complete"),
        request(rubric, WIDE, " the text follows"),
        request("a"),
    ]
    read = []
    forward = stage.judge.decoder.forward
    monkeypatch.setattr(
        stage.judge.decoder,
        "forward",
        lambda **inputs: (
            read.append(inputs["inputs_embeds"].shape[:2]) or forward(**inputs)
        ),
    )
    together = stage(asked_for)
    positions = sum(rows * columns for rows, columns in read if columns > 1)
    tokens = [o.usage["input_tokens"] for o in together]
    assert positions < 0.7 * sum(tokens)
    assert (tokens[0] > 220) is (words == 30)
    assert texts(together) == [texts(stage([r]))[0] for r in asked_for]


@models
def test_the_order_of_text_and_pictures_counts(stage):
    first, second = request("is ", RED, WIDE, " it"), request("is ", WIDE, RED, " it")
    assert len(set(texts(stage([first, second])))) == 2


@models
def test_a_literal_placeholder_shifts_no_picture(stage):
    prompt = prompted(stage, request("an <image> here: ", RED, " and ", WIDE))
    plain = prompted(stage, request("here: ", RED, " and ", WIDE))
    count = [p.ids.count(stage._image_id) for p in (prompt, plain)]
    assert count[0] == count[1] == 4 * sum(plain.budget.tiles)
    outcome = stage([request("an <image> here: ", RED)])[0]
    assert outcome.notes["neutralised"] == ["<image>"]


@models
def test_equal_pictures_are_read_once_a_batch(stage, monkeypatch):
    read = []
    features = stage.judge.model.get_image_features
    monkeypatch.setattr(
        stage.judge.model,
        "get_image_features",
        lambda tiles, **others: read.append(len(tiles)) or features(tiles, **others),
    )
    requests = [request("one ", RED), request("two ", RED, WIDE), request("three ", RED)]
    outcomes = stage(requests)
    once = [o.notes["tiles"] for o in outcomes][1]
    assert sum(read) == sum(once)
    stage(requests)
    assert sum(read) == 2 * sum(once), "nothing is kept between batches"


@models
def test_notes_and_usage(stage):
    outcome = stage([request("Image-0: ", RED, "\nscore")])[0]
    assert isinstance(outcome, Result)
    notes = dict(outcome.notes)
    assert notes.pop("finish") in ("stop", "length")
    assert notes == {
        "prompt": "<|system|>\njudge<|end|><|user|>\nImage-0: <image>\nscore<|end|>"
        "<|assistant|>\n",
        "input_tokens": outcome.usage["input_tokens"],
        "context": 4096,
        "over_context": False,
        "image_sizes": [[40, 30]],
        "tiles": [13],
        "max_tiles": 12,
    }
    assert outcome.usage["input_images"] == 1
    prompt = prompted(stage, request("Image-0: ", RED, "\nscore"))
    assert outcome.usage["input_tokens"] == len(prompt.ids) == prompt.budget.prompt


def judge(stage: MmieScore, **overrides) -> MmieScore:
    """The same model under other settings."""
    settings = stage.settings.model_dump() | overrides
    other = copy.copy(stage)
    other.settings = MmieScoreSettings(**settings)
    new_tokens = other.settings.new_tokens("pretrained")
    other.prompt = PromptWriter(stage.judge, other.settings, new_tokens)
    return other


@models
def test_tiles_are_lowered_to_fit_and_said_so(stage):
    requests = [request("rate ", RED, RED, RED), request("rate ", RED)]
    overrides = {"context": 150, "reply_room": 20, "max_new_tokens": 100}
    fitted = judge(stage, **overrides)(requests)
    assert [o.notes["max_tiles"] for o in fitted] == [11, 12]
    assert [o.notes["tiles"] for o in fitted] == [[7] * 3, [13]]
    for outcome in fitted:
        assert outcome.usage["input_tokens"] <= 130
        assert outcome.usage["input_tokens"] + outcome.usage["output_tokens"] <= 150
        assert not outcome.notes["over_context"]
    official = judge(stage, **overrides, fit_context=False)(requests)
    assert [o.notes["tiles"] for o in official] == [[13] * 3, [13]]
    assert official[0].notes["over_context"]
    assert official[0].usage["input_tokens"] > 150


@models
def test_what_cannot_be_answered_stands_alone(stage):
    good = request("score ", RED)
    outcomes = stage(
        [
            request(),
            good,
            request(" ", "\n"),
            request(Image.of(b"no picture"), "score"),
            request("a very long question " * 1000),
            Request((turn_of("judge", role="system"),)),
        ]
    )
    assert outcomes[1].value == stage([good])[0].value
    assert [type(o) for o in outcomes] == [Failure, Result, Failure, Failure, Skip, Failure]
    assert all(o.fault is Fault.BAD_INPUT for o in outcomes if isinstance(o, Failure))
    assert "neither text nor pictures" in outcomes[0].reason
    assert "no known picture format" in outcomes[3].reason
    assert "0 pictures in 0 tiles of 4" in outcomes[4].reason
    assert "the model holds 880" in outcomes[4].reason
    assert stage([]) == []


@models
def test_many_pictures_and_long_texts_are_answered_by_the_tiny_judge(tiny):
    """Published checkpoints hold 131,072 positions; the toy holds 32,768."""
    pictures = [picture(i, 30 + i, 40) for i in range(10)]
    outcomes = tiny([request("rate these ", *pictures), request("why? " * 2000)])
    assert [o.notes["over_context"] for o in outcomes] == [False, True]
    assert all(isinstance(o, Result) for o in outcomes)
    assert len(outcomes[0].notes["tiles"]) == 10


@models
def test_the_tiny_judge_writes_words_and_ends(tiny):
    requests = [request(f"Question {i}: is the answer correct? ", RED) for i in range(12)]
    outcomes = tiny(requests)
    assert {"stop"} <= {o.notes["finish"] for o in outcomes}
    assert all(o.usage["output_tokens"] <= 96 for o in outcomes)
    words = {word for text in texts(outcomes) for word in text.split()}
    assert len(words) > 5
    again = MmieScore(weights="tiny", device="cpu")
    assert texts(again(requests)) == texts(outcomes)


@models
def test_transparent_and_rotated_pictures_are_read_as_everywhere(stage):
    clear = Pillow.new("RGBA", (28, 28), (255, 0, 0, 0))
    white = encode(Pillow.new("RGB", (28, 28), "white"))
    file = io.BytesIO()
    clear.save(file, "PNG")
    both = [request("see ", Image.of(file.getvalue())), request("see ", white)]
    assert len(set(texts(stage(both)))) == 1


@models
def test_replies_survive_the_store(stage):
    requests = mixed()[:3]
    outcomes = stage(requests)
    items = [Item(str(i), "x", r) for i, r in enumerate(requests)]
    table = write_record(Kind.DRAFT, items, outcomes, 0.1)
    for i, row in rows_of(Kind.DRAFT, table, "part.parquet").items():
        assert read_record(Kind.DRAFT, row).value == outcomes[int(i)].value
    notes = [json.loads(text) for text in table.column("notes").to_pylist()]
    assert notes == [outcome.notes for outcome in outcomes]


def test_the_stage_is_described_without_model_code():
    code = (
        "import sys; from scorers.internvl.settings import mmie_score; "
        "mmie_score('tiny', {}); "
        "heavy = {'torch', 'transformers', 'sentencepiece', 'diffusers'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    root = CHECKOUT
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "[]", run.stderr


def test_what_enters_the_key():
    usual = mmie_score("dummy", {})
    assert {"system", "max_tiles", "context", "fit_context", "dtype"} <= set(usual.settings)
    assert not {"tiles_at_once", "device", "model"} & set(usual.settings)
    assert mmie_score("dummy", {"tiles_at_once": 4}).digest == usual.digest
    assert mmie_score("dummy", {"fit_context": False}).digest != usual.digest
    assert usual.settings["max_new_tokens"] == 1024
    assert mmie_score("tiny", {}).settings["max_new_tokens"] == 96
    assert mmie_score("tiny", {"max_new_tokens": 7}).settings["max_new_tokens"] == 7
    assert not usual.seeded
    assert usual.kind is Kind.DRAFT
    assert usual.placement.num_gpus == 1
    # 4.15 billion weights of two bytes and a fifth more, 8 contexts of 1.5 GiB.
    assert usual.placement.gpu_memory_gib == pytest.approx(9.3 + 12, abs=0.1)
    assert mmie_score("tiny", {}).placement.num_gpus == 0


def test_wrong_settings_are_refused():
    with pytest.raises(UsageError, match="did you mean 'max_tiles'"):
        mmie_score("tiny", {"max_tile": 4})


def test_the_system_message_is_the_templates():
    """SHA-256 of `phi3-chat`'s message in internvl/conversation.py."""
    system = MmieScoreSettings().system
    result = hashlib.sha256(system.encode()).hexdigest()
    assert result == "da22fdde9f422876a0b725a4ecec9f15005bfaad700d33c87fe6f29b0bd09447"


@models
def test_a_reply_is_one_text_up_to_the_end_however_spelled(stage):
    [outcome] = stage([request("score")])
    assert [type(s) for s in outcome.value.segments] == [Text]
    ids = stage.judge.tokenizer.encode(["\n good <|end|> and more"])
    assert stage._text(TextTrack(limit=99, ids=ids[1:])) == "good"


@models
def test_scores_that_are_no_numbers_are_an_error_and_not_a_reply(stage, monkeypatch):
    def no_numbers(judge, states):
        return torch.full((len(states), 50), torch.nan)

    monkeypatch.setattr(JudgeModel, "logits", no_numbers)
    with pytest.raises(FloatingPointError, match="no numbers"):
        stage([request("score")])
