"""A chat endpoint: what it sends, how it reads replies, how long it waits."""

import base64
import email.utils
import gzip
import io
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx2
import openai
import pytest
from drawing_servers import RED, url_of, url_part
from endpoint_helpers import KEY, MODEL, Answer, asking, completion, error, says, serving
from PIL import Image as Pillow

from generators.base import Failure, Fault, Result
from generators.document import Image, Request, Text, Turn
from pipelines.endpoints.client import _Wait
from pipelines.endpoints.errors import EndpointError, described, retry_after_s


@pytest.fixture
def server():
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


@pytest.mark.parametrize(
    ("answer", "fault", "words"),
    [
        (completion(None, refusal="I will not."), Fault.REFUSED, "I will not."),
        (completion("so f", "content_filter"), Fault.REFUSED, "content filter"),
        (completion(None, "content_filter: SAFETY"), Fault.REFUSED, "SAFETY"),
        (completion("x") | {"choices": []}, Fault.ERROR, "the reply has no choices"),
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


def test_threads_get_their_own_answers(server):
    with asking(server) as ask, ThreadPoolExecutor(8) as threads:
        questions = [[f"{i}.{j}" for j in range(3)] for i in range(24)]
        calls = [threads.submit(ask, [says(t) for t in texts]) for texts in questions]
        echoes = [[o.value.text for o in call.result()] for call in calls]
    assert echoes == questions


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


def test_no_attempt_begins_after_the_total_time(server):
    server.script = lambda body: Answer(how="stall")
    with asking(server, timeout_s=0.8, give_up_s=1.2, max_attempts=100) as ask:
        failure = only(ask([says("a")]))
    assert failure.fault is Fault.ENDPOINT
    assert len(server.bodies) <= 2


@pytest.mark.parametrize("pause", ["3600", "in an hour"])
def test_a_server_that_asks_for_more_patience_than_there_is_is_asked_once(server, pause):
    moment = email.utils.formatdate(time.time() + 3600, usegmt=True)
    header = {"retry-after": pause if pause.isdigit() else moment}
    server.script = lambda body: Answer(error("come back later"), 429, header)
    with asking(server) as ask:
        failure = only(ask([says("a")]))
    assert len(server.bodies) == 1
    assert failure.fault is Fault.ENDPOINT
    assert "it asks to wait 3" in failure.reason


def status_error(headers):
    request = httpx2.Request("POST", "http://server/v1")
    response = httpx2.Response(429, headers=headers, request=request)
    return openai.RateLimitError("slow down", response=response, body=None)


def test_retry_after_is_read_in_both_forms():
    future = email.utils.formatdate(time.time() + 120, usegmt=True)
    past = email.utils.formatdate(time.time() - 120, usegmt=True)
    assert retry_after_s(status_error({"Retry-After": "7.5"})) == 7.5
    assert 110 < retry_after_s(status_error({"Retry-After": future})) <= 121
    assert retry_after_s(status_error({"Retry-After": past})) == 0
    assert retry_after_s(status_error({"Retry-After": "soon"})) is None
    assert retry_after_s(status_error({})) is None
    assert retry_after_s(TimeoutError()) is None


def test_the_wait_is_what_the_server_asks_or_grows_with_jitter():
    def state(failure, attempt):
        outcome = SimpleNamespace(exception=lambda: failure)
        return SimpleNamespace(outcome=outcome, attempt_number=attempt)

    wait = _Wait(1.0)
    pauses = [wait(state(status_error({"retry-after": "7"}), 1)) for _ in range(50)]
    assert all(7 <= seconds <= 8 for seconds in pauses)
    grown = [[wait(state(TimeoutError(), n)) for _ in range(200)] for n in (1, 4, 20)]
    assert [max(g) for g in grown] == [
        pytest.approx(1, rel=0.1),
        pytest.approx(8, rel=0.1),
        pytest.approx(60, rel=0.1),
    ]
    assert len(set(grown[0])) > 100


@pytest.mark.parametrize(("max_tokens", "read"), [(1, False), (1024, True), (None, True)])
def test_a_reply_may_be_as_long_as_the_tokens_asked_for(server, max_tokens, read):
    server.script = lambda body: Answer(completion("x" * 9_000_000))
    with asking(server, max_tokens=max_tokens) as ask:
        outcome = only(ask([says("a")]))
    assert isinstance(outcome, Result) is read
    assert read or "longer than 8 MiB" in outcome.reason
    assert len(server.bodies) == 1


def test_a_connection_error_that_says_nothing_has_a_name():
    error = openai.APIConnectionError(request=httpx2.Request("POST", "http://127.0.0.1/v1"))
    error.__cause__ = httpx2.ReadError("")
    assert described(error) == "no connection: ReadError"


def test_compressed_replies_are_read_all_the_same():
    body = gzip.compress(b'{"choices": [{"message": {"content": "hello"}}]}')
    with serving() as server:
        server.script = lambda _: Answer(body, 200, {"content-encoding": "gzip"})
        with asking(server) as ask:
            (result,) = ask([says("a")])
    assert result.value.text == "hello"


DRAWN = {
    "content": completion([{"type": "text", "text": "look"}, url_part(url_of(RED))]),
    "images": completion("look", images=[url_part(url_of(RED))]),
    "segments": completion("look", segments=[{"kind": "image", "data": url_of(RED)}]),
}


@pytest.mark.parametrize("where", DRAWN)
def test_an_lvlm_that_answers_with_pictures_fails_and_says_how_to_keep_them(where):
    with serving() as server:
        server.script = lambda body: Answer(DRAWN[where])
        with asking(server) as ask:
            (failure,) = ask([says("draw")])
    assert isinstance(failure, Failure)
    assert "1 picture(s)" in failure.reason
    assert "chat-images:MODEL" in failure.reason
    assert not failure.fault.final


def test_an_lvlms_list_of_texts_is_its_text():
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    with serving() as server:
        server.script = lambda body: Answer(completion(parts))
        with asking(server) as ask:
            (result,) = ask([says("a")])
    assert result.value.text == "one two"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(error("bad key"), 401), "The key in OPENAI_API_KEY is not accepted"),
        (Answer(error("no such model"), 404), "no such model. Check the model's"),
        (Answer(error("not yours"), 403), "may not use this model"),
        (Answer(error("no", "insufficient_quota"), 429), "no credit left"),
        (Answer(error("use max_completion_tokens"), 400), "Check model, max_tokens_field"),
    ],
)
def test_the_preflight_says_what_is_wrong_and_asks_as_the_run_does(server, answer, words):
    bodies = []
    server.preflight = lambda body: bodies.append(body) or answer
    settings = {"temperature": 0.5, "extra_body": {"top_k": 2}}
    with pytest.raises(EndpointError) as caught, asking(server, **settings):
        pass
    assert words in str(caught.value)
    assert f"endpoint {server.url}, model {MODEL!r}" in str(caught.value)
    assert (bodies[0]["temperature"], bodies[0]["top_k"]) == (0.5, 2)


def test_without_a_key_none_is_sent_and_the_error_says_so(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with asking(server):
        assert server.keys == ["Bearer none"]
    server.preflight = lambda body: Answer(error("who are you?"), 401)
    with pytest.raises(EndpointError, match="OPENAI_API_KEY is not set"), asking(server):
        pass
