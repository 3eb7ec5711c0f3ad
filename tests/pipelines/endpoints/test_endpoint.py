"""What a chat endpoint sends, and how it reads good and bad replies."""

import base64
import io
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from endpoint_helpers import KEY, MODEL, Answer, asking, completion, error, says, serving
from PIL import Image as Pillow

from generators.base import Failure, Fault, Result, Skip
from generators.document import Image, Request, Text, Turn
from pipelines.endpoints.endpoint import ChatEndpoint
from pipelines.endpoints.errors import EndpointError


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving() as running:
        yield running


def picture(size=(20, 12), encoding="PNG", mode="RGB", **options):
    file = io.BytesIO()
    Pillow.new(mode, size, (200, 30, 30, 128)[: len(mode)]).save(file, encoding, **options)
    return Image.of(file.getvalue())


def only(outcomes):
    (outcome,) = outcomes
    return outcome


def test_a_reply_becomes_a_draft_with_its_usage_and_how_it_came_about(server):
    red = picture()
    with asking(server, system="Be brief.") as ask:
        result = only(ask([says("what is ", red, " this?")]))
    assert isinstance(result, Result)
    assert result.value.segments == (Text("what is <pic> this?"),)
    assert result.usage == {"input_tokens": 11, "output_tokens": 7, "cached_tokens": 5}
    notes = dict(result.notes)
    assert notes["prompt"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what is "},
                {"type": "image", "sha256": red.digest},
                {"type": "text", "text": " this?"},
            ],
        },
    ]
    assert (notes["finish"], notes["model"], notes["images"]) == ("stop", "parrot-0806", 1)
    assert notes["attempts"] == 1


def test_what_is_sent_follows_the_settings(server):
    options = {
        "temperature": 0.7,
        "top_p": 0.9,
        "max_tokens": 5,
        "max_tokens_field": "max_completion_tokens",
        "image_detail": "low",
        "send_seed": True,
        "extra_body": {"top_k": 4},
    }
    with asking(server, **options) as ask:
        ask([says("a", picture(), seed=2**40 + 3)])
    (body,) = server.bodies
    (message,) = body.pop("messages")
    assert body == {
        "model": MODEL,
        "temperature": 0.7,
        "top_p": 0.9,
        "max_completion_tokens": 5,
        "seed": 3,
        "top_k": 4,
    }
    text, image = message["content"]
    assert text == {"type": "text", "text": "a"}
    assert image["image_url"]["detail"] == "low"
    assert server.keys[-1] == f"Bearer {KEY}"


def test_settings_left_open_are_not_sent(server):
    with asking(server, temperature=None, max_tokens=None) as ask:
        ask([says("a", seed=1)])
    assert set(server.bodies[0]) == {"model", "messages"}


def test_pictures_of_an_assistants_turn_follow_it_in_a_users_message(server):
    red = picture()
    turns = (
        Turn("user", (Text("draw"),)),
        Turn("assistant", (Text("here: "), red)),
        Turn("user", (Text("and now?"),)),
    )
    with asking(server) as ask:
        ask([Request(turns)])
    roles = [m["role"] for m in server.bodies[0]["messages"]]
    assert roles == ["user", "assistant", "user", "user"]
    assert server.bodies[0]["messages"][1]["content"] == "here: "
    assert server.bodies[0]["messages"][2]["content"][0]["type"] == "image_url"


def sent_picture(server):
    url = server.bodies[-1]["messages"][-1]["content"][0]["image_url"]["url"]
    head, _, data = url.partition(",")
    return head, base64.b64decode(data)


@pytest.mark.parametrize("encoding", ["PNG", "JPEG"])
def test_a_small_plain_picture_is_sent_byte_for_byte(server, encoding):
    red = picture((20, 12), encoding)
    with asking(server) as ask:
        ask([says(red)])
    head, data = sent_picture(server)
    assert head == f"data:image/{encoding.lower()};base64"
    assert data == red.data


def test_other_pictures_are_encoded_anew_upright_opaque_and_small_enough(server):
    exif = Pillow.Exif()
    exif[0x0112] = 6
    cases = {
        "large": (picture((400, 100)), (64, 16)),
        "rotated": (picture((20, 12), "JPEG", exif=exif), (12, 20)),
        "transparent": (picture((20, 12), mode="RGBA"), (20, 12)),
        "webp": (picture((20, 12), "WEBP"), (20, 12)),
        "cmyk": (picture((20, 12), "JPEG", mode="CMYK"), (20, 12)),
    }
    with asking(server, image_max_side=64, image_format="jpeg") as ask:
        for name, (image, size) in cases.items():
            outcome = only(ask([says(image)]))
            head, data = sent_picture(server)
            shown = Pillow.open(io.BytesIO(data))
            assert outcome.notes["image_sizes"] == [list(size)]
            assert (name, head) == (name, "data:image/jpeg;base64")
            assert (name, shown.size, shown.mode) == (name, size, "RGB")
            assert (name, shown.getexif().get(0x0112, 1)) == (name, 1)


def test_an_unreadable_picture_fails_its_own_record_only(server):
    with asking(server) as ask:
        broken, fine = ask([says("a", Image.of(b"no picture")), says("b")])
    assert isinstance(broken, Failure)
    assert broken.fault is Fault.BAD_INPUT
    assert fine.value.text == "b"
    assert len(server.bodies) == 1


def test_named_control_tokens_are_broken_and_noted(server):
    with asking(server, control_tokens=["<image>"]) as ask:
        result = only(ask([says("an <image> ", picture(), "and <img>")]))
    parts = server.bodies[0]["messages"][0]["content"]
    assert [p.get("text") for p in parts] == ["an < image> ", None, "and <img>"]
    assert result.notes["neutralised"] == ["<image>"]


def test_too_many_pictures_are_skipped(server):
    with asking(server, max_images=1) as ask:
        skipped = only(ask([says(picture(), picture())]))
    assert skipped == Skip("the model reads 1 image(s) per request; this one has 2")
    assert server.bodies == []


@pytest.mark.parametrize(
    ("answer", "fault", "words"),
    [
        (completion(None, refusal="I will not."), Fault.REFUSED, "I will not."),
        (completion("so f", "content_filter"), Fault.REFUSED, "content filter"),
        (completion(None, "content_filter: SAFETY"), Fault.REFUSED, "SAFETY"),
        (completion("x") | {"choices": []}, Fault.REFUSED, "blocked"),
        (completion(" \n"), Fault.ERROR, "empty (finish reason stop)"),
        (completion("", "length"), Fault.ERROR, "raise max_tokens"),
    ],
)
def test_refused_and_empty_replies_are_told_apart_and_paid_for(
    server, answer, fault, words
):
    server.in_turn(Answer(answer))
    with asking(server) as ask:
        failure = only(ask([says("a")]))
    assert isinstance(failure, Failure)
    assert failure.fault is fault
    assert words in failure.reason
    assert failure.usage["input_tokens"] == 11
    assert len(server.bodies) == 1


def test_what_was_written_before_the_filter_struck_stays_readable(server):
    server.in_turn(Answer(completion("so f", "content_filter")))
    with asking(server) as ask:
        assert only(ask([says("a")])).notes["text"] == "so f"


def test_the_servers_limit_on_requests_at_once_is_kept_and_used(server):
    server.script = lambda body: Answer(completion("ok"), hold_s=0.5)
    with asking(server, concurrency=3) as ask, ThreadPoolExecutor(9) as threads:
        calls = [threads.submit(ask, [says(str(i))]) for i in range(9)]
        assert all(isinstance(only(c.result()), Result) for c in calls)
    assert server.most_in_flight == 3


def test_threads_get_their_own_answers(server):
    with asking(server) as ask, ThreadPoolExecutor(8) as threads:
        questions = [[f"{i}.{j}" for j in range(3)] for i in range(24)]
        calls = [threads.submit(ask, [says(t) for t in texts]) for texts in questions]
        echoes = [[o.value.text for o in call.result()] for call in calls]
    assert echoes == questions


def test_close_ends_the_thread(server):
    before = set(threading.enumerate())
    with asking(server):
        (own,) = (t for t in set(threading.enumerate()) - before if t.name == "endpoint")
    assert not own.is_alive()


@pytest.mark.parametrize(
    ("ceiling", "reason"),
    [
        ({"max_total_tokens": 50}, "54 tokens used; max_total_tokens is 50"),
        (
            {
                "max_cost": 0.0001,
                "price_per_million_input": 2.0,
                "price_per_million_output": 3.0,
            },
            "0.000129 spent; max_cost is 0.0001",
        ),
    ],
)
def test_past_the_ceiling_nothing_is_sent(server, ceiling, reason):
    """A reply costs 18 tokens, or (11 * 2 + 7 * 3) / 1e6; the preflight is one too."""
    with asking(server, **ceiling) as ask:
        outcomes = [only(ask([says("a")])) for _ in range(4)]
    assert [isinstance(o, Result) for o in outcomes] == [True, True, False, False]
    assert outcomes[-1].fault is Fault.BUDGET
    assert outcomes[-1].reason == reason
    assert len(server.bodies) == 2
    if "max_cost" in ceiling:
        assert outcomes[0].usage["cost"] == pytest.approx(43e-6)


def test_a_ceiling_that_cannot_be_kept_stops_the_endpoint(server):
    silent = completion("a")
    del silent["usage"]
    server.in_turn(Answer(silent))
    with asking(server, max_total_tokens=10**6) as ask:
        first, second = only(ask([says("a")])), only(ask([says("b")]))
    assert isinstance(first, Result)
    assert second.fault is Fault.BUDGET
    assert "reports no token usage" in second.reason


def test_the_key_is_nowhere_to_be_read(server):
    told_off = error(f"Incorrect API key provided: {KEY}")
    server.in_turn(Answer(error(f"bad {KEY}"), 400), Answer(told_off, 401))
    with asking(server) as ask:
        exposed = [repr(o) for o in ask([says("a")]) + ask([says("b")])]
        exposed += [
            repr(ask),
            repr(ask.settings),
            str(ask.settings.spec("x", "pretrained")),
        ]
    server.preflight = lambda body: Answer(told_off, 401)
    with pytest.raises(EndpointError) as caught, asking(server):
        pass
    exposed += [str(caught.value), repr(caught.value)]
    assert not [text for text in exposed if KEY in text]
    assert "***" in exposed[0]


def test_the_key_comes_from_the_named_variable(server, monkeypatch):
    monkeypatch.setenv("OTHER_KEY", "sk-other")
    with asking(server, api_key_env="OTHER_KEY"):
        assert server.keys[-1] == "Bearer sk-other"
    monkeypatch.delenv("OTHER_KEY")
    with asking(server, api_key_env="OTHER_KEY"):
        assert server.keys[-1] == "Bearer none"


def test_weights_do_not_matter(server):
    stage = ChatEndpoint(weights="tiny", model=MODEL, base_url=server.url)
    assert only(stage([says("a")])).value.text == "a"
    stage.close()


def test_the_preflight_asks_for_a_few_tokens_and_they_count(server):
    """Of a small ceiling a full-length answer would take all, in no record."""
    bodies = []
    server.preflight = lambda body: bodies.append(body) or Answer(completion("ready"))
    with asking(server, max_tokens=1024, max_total_tokens=18) as ask:
        failure = only(ask([says("a")]))
    assert bodies[0]["max_tokens"] == 16
    assert failure.fault is Fault.BUDGET
    assert failure.reason == "18 tokens used; max_total_tokens is 18"
    with asking(server, max_tokens=None):
        assert bodies[1]["max_tokens"] == 16
    with asking(server, max_tokens=5, max_tokens_field="max_completion_tokens"):
        assert bodies[2]["max_completion_tokens"] == 5


def test_a_reasoning_model_cut_short_passes_the_preflight(server):
    """OpenAI answers 400 where reasoning uses up all tokens of the short reply."""
    words = "Could not finish: max_tokens or model output limit was reached."
    server.preflight = lambda body: Answer(error(words), 400)
    with asking(server) as ask:
        assert isinstance(only(ask([says("a")])), Result)


def test_a_ceiling_counts_what_earlier_workers_used(server):
    prices = {"price_per_million_input": 2.0, "price_per_million_output": 3.0}
    with asking(server, max_total_tokens=1000, max_cost=0.01, **prices) as ask:
        ask.continue_from({"input_tokens": 900, "output_tokens": 60, "cost": 9.0})
        assert isinstance(only(ask([says("a")])), Result)
        ask.continue_from({"input_tokens": 40, "output_tokens": 0})
        failure = only(ask([says("b")]))
    assert failure.reason == "1036 tokens used; max_total_tokens is 1000"
