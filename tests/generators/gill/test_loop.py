"""Where images and answers begin and end, and what GILL's settings change."""

import json

import pytest
import torch
from natives import asked, edit, published, tiny
from picture_helpers import smooth

from generators.decoding.drafting import Stop
from generators.document import Request, Text, Turn
from generators.gill.tokens import opt_tokenizer
from generators.loading.files import Files

pytestmark = pytest.mark.models

QUESTION = asked("What is a red house?", seed=3)


def track(question=QUESTION, **settings):
    stage = tiny("gill", **settings)
    return stage.tokens, stage.tracks([stage.prompt(question)])[0]


def test_an_image_at_the_last_step_is_finished():
    """Upstream fails there: it has not read the states of the image's tokens."""
    tokens, answer = track(num_words=1, gen_scale_factor=1e5)
    assert answer.ids == list(tokens.vokens)
    assert answer.stop is Stop.WORDS
    assert [image.shape for image in answer.images] == [(8, 64)]


def test_only_the_first_image_token_is_ever_chosen():
    tokens, answer = track(num_words=20, max_num_rets=9, gen_scale_factor=1e5)
    assert answer.ids == list(tokens.vokens) * 9
    assert answer.stop is Stop.IMAGES


def test_an_image_waits_for_its_words():
    tokens, answer = track(num_words=9, min_word_tokens=7, gen_scale_factor=1e5)
    assert answer.ids[7:] == list(tokens.vokens) * 2
    assert not set(answer.ids[:7]) & set(tokens.vokens)


@pytest.mark.parametrize("room", [1, 7, 8, 11])
def test_images_need_room_for_all_their_tokens(room):
    settings = {"num_words": 20, "gen_scale_factor": 1e5, "newline": "never"}
    stage = tiny("gill", **settings)
    frame = stage.prompt(asked("\x01"))
    long = asked("\x01" * (1 + stage.context - room - frame.length))
    tokens, answer = track(long, **settings)
    vokens = list(tokens.vokens)
    assert answer.ids[:8] == vokens if room >= 8 else not set(answer.ids) & set(vokens)
    assert (answer.stop, len(answer.ids)) == (Stop.CONTEXT, room)


def test_notes_and_history():
    turns = (
        Turn("system", (Text("Be kind. "),)),
        Turn("user", (Text("Hi"),)),
        Turn("assistant", (Text(" Yes."), smooth())),
        Turn("user", (Text("Why?"),)),
    )
    (pictures,) = tiny("gill")([Request(turns)])
    assert pictures.notes["prompt"] == "Be kind. Q: Hi\nA: Yes.<image>\nQ: Why?\nA:"
    written = pictures.notes["written"]
    assert written.count("<image>") == pictures.usage["images"]
    (named,) = tiny("gill", history_images="vokens")([Request(turns)])
    names = "".join(f"[IMG{i}]" for i in range(8))
    assert named.notes["prompt"] == f"Be kind. Q: Hi\nA: Yes. {names}\nQ: Why?\nA:"
    assert named.usage["input_images"] == 0


def test_one_bos_or_one_for_each_text():
    request = asked(smooth(), "look", smooth(1), "there")
    for every, opening in ((False, [True, False]), (True, [True, True])):
        stage = tiny("gill", always_add_bos=every)
        ids = [p for p in stage.prompt(request).pieces if isinstance(p, list)]
        assert [part[0] == stage.tokens.bos for part in ids] == opening


def test_text_after_the_last_image_is_dropped_by_default():
    requests = [asked(words, seed=i) for i, words in enumerate(("a house", "boat", "one"))]

    def trailing(**settings) -> bool:
        drafts = [o.value for o in tiny("gill", **settings)(requests)]
        return any(d.requests and isinstance(d.segments[-1], Text) for d in drafts)

    assert not trailing()
    assert trailing(trailing_text=True)


def test_images_may_be_cropped_instead_of_squashed():
    request = asked(smooth(1, width=90, height=30))
    squashed, cropped = (
        tiny("gill", resize=resize).prompt(request).pixels[0]
        for resize in ("squash", "crop")
    )
    assert squashed.shape == cropped.shape == (3, 28, 28)
    assert (squashed - cropped).abs().max() > 0.1


def test_tokenizer_json_and_slow_files_agree(saved, tmp_path):
    slow = opt_tokenizer(Files(saved("gill", "draft")["language"]))
    slow.save(str(tmp_path / "tokenizer.json"))
    fast = opt_tokenizer(Files(str(tmp_path)))
    for text in ("The house, a  river\n\nand 7 boats.", "</s>a<pad>", "\u00e9\u4e00"):
        assert slow.encode(text).ids == fast.encode(text).ids


def test_checkpoints_of_training_load_too(copied, stage):
    """Names have a prefix of parallel training; tables hold all embeddings, not 8 rows."""
    places, folder = copied("gill", "draft", "model")
    usual = stage("gill").table

    def change(tensors) -> None:
        for name in list(tensors):
            tensors[f"module.{name}"] = tensors.pop(name)
        tensors["module.model.input_embeddings.weight"] = usual.clone()

    edit(folder, "pretrained_ckpt.pth.tar", change)
    assert torch.equal(published("gill", "draft", places).table, usual)
    about = json.loads((folder / "model_args.json").read_text())
    del about["gen_token_idx"]
    (folder / "model_args.json").write_text(json.dumps(about))
    published("gill", "draft", places)
